from aioproducer.records.protocol import BatchBuilder

class Share:
    """The rows of one call in one batch, and their positions."""

    def __init__(self, builder: BatchBuilder) -> None: ...
    def add(self, row: int, index: int, /) -> None:
        """Note a record that was appended otherwise."""

    @property
    def records(self) -> int:
        """The number of the call's records in the batch."""

    @property
    def first_index(self) -> int:
        """The lowest index in the batch that a record of the call has."""

    @property
    def last_index(self) -> int:
        """The highest one."""

    def runs(self) -> list[tuple[int, int, int]]:
        """`(row, index, count)` for rows that follow one another in the batch too."""

class OpenBatches:
    """The batches of one topic that rows may be written to."""

    def __init__(self, partitions: int, hashes_keys: bool) -> None: ...
    def add_batch(self, partition: int, share: Share, /) -> None:
        """Rows of this partition go to the batch of `share` from now on."""

    def stick(self, partition: int, room: int, /) -> None:
        """Rows that nothing else decides go to this partition while less than `room` is used."""

    def take_sticky_bytes(self) -> int:
        """End `stick`; return how much was used, in bytes."""

def fill_items(
    items: list[object],
    batches: OpenBatches | None,
    partition: object,
    start: int,
    stop: int,
    number: int,
    timestamp_ms: int,
    size_limit: int,
    budget: int,
    /,
) -> tuple[int, bool]:
    """`Rows.fill` for items of one topic; `partition` is for those that name none."""
