"""ORC, read with pyarrow.

Owns: stripes of an ORC stream. Must not know: files, Kafka.

Invariant: memory is bounded by one stripe plus one batch of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from aioproducer.loader.arrow_rows import chunks_behind, import_pyarrow
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats import Chunk
from aioproducer.loader.streams import seekable

_BATCH_ROWS = 1000


@dataclass(frozen=True, slots=True)
class OrcFormat:
    """Apache ORC files, any compression pyarrow reads."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[Chunk]:
        """See `Format`."""
        pyarrow, orc = import_pyarrow("orc", "ORC")
        try:
            file = orc.ORCFile(seekable(stream, stack))
            yield from chunks_behind(skip, _batches(file))
        except (pyarrow.ArrowException, pyarrow.ArrowInvalid) as error:
            raise SourceError(f"not readable as ORC: {error}") from error


def _batches(file: Any) -> Iterator[Any]:
    for number in range(file.nstripes):
        stripe = file.read_stripe(number)
        for start in range(0, stripe.num_rows, _BATCH_ROWS):
            yield stripe.slice(start, _BATCH_ROWS)
