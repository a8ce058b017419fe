"""ORC, read with pyarrow.

Invariant: memory is bounded by one stripe as it is in the file plus one batch of rows. A text that
is written once and used by many rows is copied for each row of a batch, so a batch has few.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_process import ArrowFormat
from aioproducer.loader.formats.arrow_rows import parts_after, rows_at_once
from aioproducer.loader.formats.format import imported

_ROWS_ALWAYS_READ = 1_000_000
_MAX_ROWS_PER_BYTE = 1000
_MAX_BLOCK_BYTES = 8 << 20
"""Limit of a compression block, for which each column has buffers. Writers use 64 to 256 KiB."""
_ROWS_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class OrcFormat(ArrowFormat):
    """Apache ORC files, any compression pyarrow reads."""

    name: ClassVar[str] = "ORC"


def read_orc(file: io.BufferedIOBase, skip: int) -> Iterator[Any]:
    """Yield the rows after the first `skip` as record batches.

    Only for `arrow_worker`: a malformed file can end the process.
    """
    opened = imported("pyarrow.orc", "ORC", "arrow").ORCFile(file)
    _check(opened)
    yield from parts_after(skip, _batches(file, len(opened.schema)))


def _check(file: Any) -> None:
    """Refuse any number of rows that takes a few bytes, and blocks that decompress to gigabytes."""
    if file.compression_size > _MAX_BLOCK_BYTES:
        raise SourceError(
            f"not readable as ORC: compressed in blocks of {file.compression_size} bytes, "
            f"where {_MAX_BLOCK_BYTES} are allowed"
        )
    if file.nrows > _ROWS_ALWAYS_READ and file.nrows > _MAX_ROWS_PER_BYTE * file.content_length:
        raise SourceError(
            f"not readable as ORC: {file.nrows} rows in {file.content_length} bytes of content"
        )


def _batches(source: Any, columns: int) -> Iterator[Any]:
    # `ORCFile` reads whole stripes only.
    dataset = imported("pyarrow.dataset", "ORC", "arrow")
    fragment = dataset.OrcFileFormat().make_fragment(source)
    batches: Iterator[Any] = fragment.to_batches(
        batch_size=min(_ROWS_AT_ONCE, rows_at_once(columns)),
        batch_readahead=0,
        fragment_readahead=0,
        use_threads=False,
    )
    return batches
