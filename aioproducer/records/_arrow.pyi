from aioproducer.records.arrow_layout import ArrowColumns
from aioproducer.records.bulk import OpenBatches
from aioproducer.types import HeaderPairs

class ArrowChunk:
    """Rows of an Arrow source; see `aioproducer.records.bulk.Rows`."""

    def __len__(self) -> int: ...
    def topics(self, start: int, stop: int, /) -> list[str | None]:
        """Return the topics that these rows name; None for rows that name none."""

    def fill(
        self,
        batches: list[OpenBatches | None],
        start: int,
        stop: int,
        number: int,
        timestamp_ms: int,
        size_limit: int,
        budget: int,
        /,
    ) -> tuple[int, bool]:
        """Write rows into open batches."""

    def record(
        self, row: int
    ) -> tuple[str | None, bytes | None, bytes | None, HeaderPairs, int | None, int | None]:
        """Topic, key, value, headers, partition, timestamp_ms.

        Raises:
            SerializationError: they cannot be read.
        """

    def close(self) -> None:
        """Releases the array; the rows are gone."""

class ArrowSource:
    """See `aioproducer.records.arrow`.

    Raises:
        TypeError: the data are not Arrow data.
        SerializationError: a column does not exist or cannot be sent.
    """

    def __init__(self, data: object, columns: ArrowColumns) -> None: ...
    @property
    def streams(self) -> bool:
        """Whether `next` may take long."""

    def next(self) -> ArrowChunk | None:
        """Return the next chunk; None when there are no more.

        Raises:
            SerializationError: the stream failed.
        """

    def close(self) -> None:
        """Releases what is not read; while `next` runs elsewhere, when that has ended."""
