"""Arrow data as rows to be sent: the contract, and the implementation.

`ArrowSource(data, columns)` takes the capsules of `data` (`__arrow_c_array__`, else
`__arrow_c_stream__`) and refuses columns that cannot be sent; `next()` gives the chunks, each of
them `bulk.Rows`, and None at the end.

Invariants
- Whatever was taken is released exactly once, by `close()` or when the object goes away.
- `next()` of a source that `streams` may take long (a query may run in it) and may be called in any
  thread, one call at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._util.implementation import implementation_with
from aioproducer.records.arrow_layout import ArrowColumns
from aioproducer.records.bulk import BULK_IMPLEMENTATION

__all__ = ["ARROW_IMPLEMENTATION", "ArrowChunk", "ArrowColumns", "ArrowSource"]

ARROW_IMPLEMENTATION: str = implementation_with(BULK_IMPLEMENTATION, "aioproducer.records._arrow")
"""`native` or `pure`: which implementation this process uses."""

if TYPE_CHECKING or ARROW_IMPLEMENTATION == "native":
    from aioproducer.records._arrow import ArrowChunk, ArrowSource
else:
    from aioproducer.records._pure_arrow import ArrowChunk, ArrowSource
