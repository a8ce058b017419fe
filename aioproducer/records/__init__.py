"""Record batches: the builder's implementation is chosen here, once, when the package is imported.

Owns: the choice between the native core and its pure-Python fallback (`AIOPRODUCER_IMPL` = `native`
or `pure`; unset = native where it is compiled). Not here: sockets, policy, batching decisions.

    _native.pyx / _pure.py   RecordBatchBuilder, murmur2, record_size_bound, single_record_request
    batch.py                 batch header, CRC, reader
    codecs.py                compression

Invariants: both implementations pass the same tests and write the same bytes; neither runs without
the GIL.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from aioproducer.records.hashing import crc32_partition
from aioproducer.records.protocol import BatchBuilder, Payload

ENVIRONMENT_VARIABLE = "AIOPRODUCER_IMPL"
"""What chooses the implementation."""


def _chosen_implementation(wanted: str | None) -> str:
    if wanted not in {None, "", "native", "pure"}:
        raise ImportError(f"{ENVIRONMENT_VARIABLE} must be 'native' or 'pure', not {wanted!r}")
    if wanted == "pure":
        return "pure"
    try:
        from aioproducer.records import _native  # noqa: F401
    except ImportError as error:
        if wanted != "native":
            return "pure"
        raise ImportError(
            f"{ENVIRONMENT_VARIABLE}=native, but aioproducer's native core cannot be imported "
            f"({error}). Install a C compiler and reinstall aioproducer, or unset the variable "
            "to use the pure-Python fallback."
        ) from error
    return "native"


def _require_gil() -> None:
    """Raise on a free-threaded Python that runs without the GIL."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "aioproducer needs the GIL, and this free-threaded Python runs without it: start it "
            "with PYTHON_GIL=1 in the environment, or use an ordinary build"
        )


IMPLEMENTATION: str = _chosen_implementation(os.environ.get(ENVIRONMENT_VARIABLE))
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

if TYPE_CHECKING:
    from aioproducer.records import _pure

    _BUILDERS: tuple[type[BatchBuilder], ...] = (RecordBatchBuilder, _pure.RecordBatchBuilder)

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "IMPLEMENTATION",
    "BatchBuilder",
    "Payload",
    "RecordBatchBuilder",
    "crc32_partition",
    "murmur2",
    "murmur2_partition",
    "record_size_bound",
    "single_record_request",
]
