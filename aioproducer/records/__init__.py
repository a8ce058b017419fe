"""Record batches: builder, header, CRC, compression.

    _native.pyx / _pure.py   RecordBatchBuilder, murmur2, record_size_bound, single_record_request
    batch.py                 batch header, CRC, reader
    codecs.py                compression

Invariants: both implementations pass the same tests and write the same bytes; neither runs without
the GIL.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aioproducer._util.implementation import core_implementation
from aioproducer.records._validation import Payload
from aioproducer.records.hashing import crc32_partition


def _require_gil() -> None:
    """Raise on a free-threaded Python that runs without the GIL."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "aioproducer needs the GIL, and this free-threaded Python runs without it: start it "
            "with PYTHON_GIL=1 in the environment, or use an ordinary build"
        )


IMPLEMENTATION: str = core_implementation("aioproducer.records._native")
"""`native` or `pure`: which core this process uses."""

_require_gil()

if TYPE_CHECKING or IMPLEMENTATION == "native":
    from aioproducer.records._native import (
        RecordBatchBuilder,
        murmur2,
        murmur2_partition,
        record_size_bound,
        single_record_request,
    )
else:
    from aioproducer.records._pure import (
        RecordBatchBuilder,
        murmur2,
        murmur2_partition,
        record_size_bound,
        single_record_request,
    )

__all__ = [
    "IMPLEMENTATION",
    "Payload",
    "RecordBatchBuilder",
    "crc32_partition",
    "murmur2",
    "murmur2_partition",
    "record_size_bound",
    "single_record_request",
]
