"""Many records into open batches without a call for each: the contract, and the implementation.

`Share`          the rows of one call in one batch, and their positions
`OpenBatches`    the batches of one topic that rows may be written to
`fill_items`     writes items of a list: values or `(key, value, headers, timestamp_ms, partition)`

A `fill` takes rows in order, from `start` up to `stop`, and stops at the first one that cannot be
written at once. A row is written whole and noted in a `Share`, or not at all. A row that names no
partition goes where `send()` would send it: by the hash of its key, or to the partition that
`stick` has set, of which no more is used than was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer._util.implementation import implementation_with
from aioproducer.records import IMPLEMENTATION

if TYPE_CHECKING:
    from aioproducer.records._pure_bulk import Bounds

__all__ = [
    "BULK_IMPLEMENTATION",
    "Bounds",
    "OpenBatches",
    "Rows",
    "Share",
    "UnfilledRows",
    "fill_items",
]


class Rows(Protocol):
    """Rows that `fill` and similar calls write, numbered from 0."""

    def topics(self, start: int, stop: int, /) -> list[str | None]:
        """Return the topics that these rows name; None if they name none."""
        ...

    def fill(self, batches: list[OpenBatches | None], *bounds: *Bounds) -> tuple[int, bool]:
        """Write rows, in order, as long as nothing has to be decided.

        `batches` are the open ones of each topic of the last `topics()`, as those are numbered.
        Return the first row that was not written, and whether that one has to go another way.
        """
        ...


class UnfilledRows:
    """Rows that are all left to the caller: `fill` writes none."""

    def fill(self, batches: list[OpenBatches | None], *bounds: *Bounds) -> tuple[int, bool]:
        """See `Rows`."""
        return bounds[0], True


BULK_IMPLEMENTATION: str = implementation_with(IMPLEMENTATION, "aioproducer.records._bulk")
"""`native` or `pure`: which implementation this process uses. The fallback works with any builder.
"""

if TYPE_CHECKING or BULK_IMPLEMENTATION == "native":
    from aioproducer.records._bulk import OpenBatches, Share, fill_items
else:
    from aioproducer.records._pure_bulk import OpenBatches, Share, fill_items
