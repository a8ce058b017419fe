"""ORC, read with pyarrow.

Owns: stripes of an ORC stream. Not here: files, Kafka.

Invariant: memory is bounded by one stripe plus one batch of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_rows import chunks_after, import_pyarrow, rows_at_once
from aioproducer.loader.formats.chunks import Chunk
from aioproducer.loader.streams import seekable

_ROWS_ALWAYS_READ = 1_000_000
_MAX_ROWS_PER_BYTE = 1000


@dataclass(frozen=True, slots=True)
class OrcFormat:
    """Apache ORC files, any compression pyarrow reads."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[Chunk]:
        """See `Format`."""
        pyarrow, orc = import_pyarrow("orc", "ORC")
        try:
            file = orc.ORCFile(seekable(stream, stack))
            _check(file)
            yield from chunks_after(skip, _batches(file))
        except (pyarrow.ArrowException, pyarrow.ArrowInvalid) as error:
            raise SourceError(f"not readable as ORC: {error}") from error


def _check(file: Any) -> None:
    """Refuse a stripe of any number of rows that takes a few bytes: it is read as a whole."""
    if file.nrows > _ROWS_ALWAYS_READ and file.nrows > _MAX_ROWS_PER_BYTE * file.content_length:
        raise SourceError(
            f"not readable as ORC: {file.nrows} rows in {file.content_length} bytes of content"
        )


def _batches(file: Any) -> Iterator[Any]:
    rows = rows_at_once(len(file.schema))
    for number in range(file.nstripes):
        stripe = file.read_stripe(number)
        for start in range(0, stripe.num_rows, rows):
            yield stripe.slice(start, rows)
