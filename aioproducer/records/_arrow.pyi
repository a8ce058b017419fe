from aioproducer.records._arrow_chunk import ArrowChunk
from aioproducer.records.arrow_layout import ArrowColumns

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
        """The next chunk; None when there are no more.

        Raises:
            SerializationError: the stream failed.
        """

    def close(self) -> None:
        """Releases what is not read; while `next` runs elsewhere, when that has ended."""
