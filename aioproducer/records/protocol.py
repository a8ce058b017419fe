"""The contract of the native core and its pure-Python fallback: one Protocol, two implementations.

Invariants of every builder:
- a record is appended whole or not at all, also when the call raises;
- the buffer it was given is never resized and never written beyond `size`;
- given the same calls, all implementations yield the same bytes, indexes and errors.
"""

from __future__ import annotations

from typing import Protocol

from aioproducer.types import HeaderPairs

Payload = bytes | bytearray | memoryview
"""What a key or a value may be; it is copied when it is appended."""


class BatchBuilder(Protocol):
    """Encodes records, one after the other, into the body of a RecordBatch v2 (KIP-98).

    `owner` is whatever the open builder's user wants to find again with it; None once closed, so
    that a builder kept somewhere keeps nothing else alive. `most` is how many records it takes.
    """

    owner: object
    most: int

    def __init__(self, buffer: bytearray) -> None:
        """Take `buffer` as the space for the records; it is pinned while the builder exists."""
        ...

    @property
    def count(self) -> int:
        """The number of appended records."""
        ...

    @property
    def size(self) -> int:
        """The bytes of the buffer that the records take."""
        ...

    @property
    def largest(self) -> int:
        """The size of the largest record in bytes."""
        ...

    @property
    def base_timestamp(self) -> int:
        """The first record's timestamp in ms, -1 while the batch is empty."""
        ...

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp in ms, -1 while the batch is empty."""
        ...

    def try_append(
        self,
        timestamp_ms: int,
        key: Payload | None,
        value: Payload | None,
        headers: HeaderPairs,
        /,
    ) -> int:
        """Append one record and return its index in the batch, -1 when the buffer is full.

        Raise `TypeError` or `ValueError` for a value that cannot be encoded.
        """
        ...

    def move_to(self, buffer: bytearray) -> None:
        """Go on in a larger buffer, with the records so far copied, and let go of the old one."""
        ...

    def close(self) -> None:
        """Take no more records (`try_append` returns -1), and let go of `owner`."""
        ...

    def release(self) -> None:
        """Close, and let go of the buffer too; the records are gone."""
        ...

    def body(self) -> memoryview:
        """Return the bytes of the records appended so far, a view of the buffer."""
        ...
