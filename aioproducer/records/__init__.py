"""Record batches: the builder's implementation is chosen here, once, when the package is imported.

Owns: the choice between the native core and its pure-Python twin (`AIOPRODUCER_IMPL` = `native` or
`pure`; unset = native where it is compiled). Must not know: sockets, policy, batching decisions.

    _native.pyx / _pure.py   RecordBatchBuilder, murmur2, record_size_bound (see protocol.py)
    batch.py                 batch header, CRC, reader
    codecs.py                compression

Invariant: both implementations pass the same tests and write the same bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aioproducer.records.hashing import crc32_partition
from aioproducer.records.protocol import BatchBuilder, Payload

_ENVIRONMENT_VARIABLE = "AIOPRODUCER_IMPL"


def _chosen_implementation(wanted: str | None) -> str:
    if wanted not in {None, "", "native", "pure"}:
        raise ImportError(f"{_ENVIRONMENT_VARIABLE} must be 'native' or 'pure', not {wanted!r}")
    if wanted == "pure":
        return "pure"
    try:
        from aioproducer.records import _native  # noqa: F401
    except ImportError as error:
        if wanted != "native":
            return "pure"
        raise ImportError(
            f"{_ENVIRONMENT_VARIABLE}=native, but aioproducer's native core cannot be imported "
            f"({error}). Install a C compiler and reinstall aioproducer, or unset the variable "
            "to use the pure-Python twin."
        ) from error
    return "native"


IMPLEMENTATION: str = _chosen_implementation(os.environ.get(_ENVIRONMENT_VARIABLE))
"""`native` or `pure`: which core this process uses."""

if TYPE_CHECKING or IMPLEMENTATION == "native":
    from aioproducer.records._native import (
        RecordBatchBuilder,
        murmur2,
        murmur2_partition,
        record_size_bound,
    )
else:
    from aioproducer.records._pure import (
        RecordBatchBuilder,
        murmur2,
        murmur2_partition,
        record_size_bound,
    )

if TYPE_CHECKING:
    from aioproducer.records import _pure

    _BUILDERS: tuple[type[BatchBuilder], ...] = (RecordBatchBuilder, _pure.RecordBatchBuilder)

__all__ = [
    "IMPLEMENTATION",
    "BatchBuilder",
    "Payload",
    "RecordBatchBuilder",
    "crc32_partition",
    "murmur2",
    "murmur2_partition",
    "record_size_bound",
]
