"""Avro container files, read with fastavro (the extra `schema-registry`), imported when used.

Owns: records of an Avro stream. Must not know: files, Kafka, registries: a container file brings
its schema.

Invariant: memory is bounded by one block of the file and one chunk of rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats import Chunk, too_few_rows

_CHUNK_ROWS = 1000


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Apache Avro container files whose schema is a record, any codec fastavro reads."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[Chunk]:
        """See `Format`."""
        for first_row, fields in avro_rows(stream, skip):
            yield Chunk(first_row, fields, None)


def avro_rows(stream: io.BufferedIOBase, skip: int = 0) -> Iterator[tuple[int, list[Any]]]:
    """Records in chunks, each with the number of its first one; `skip` of them are left out.

    Raises:
        SourceError: this is no such file, or fastavro is not installed.
    """
    fastavro = _import_fastavro()
    try:
        reader = fastavro.reader(stream)
        schema, records = reader.writer_schema, iter(reader)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise SourceError("its schema is no record: there are no columns")
        skipped = sum(1 for _ in islice(records, skip))
        first_row = skip + 1
        while fields := list(islice(records, _CHUNK_ROWS)):
            yield first_row, fields
            first_row += len(fields)
    except (ValueError, EOFError, TypeError, KeyError, IndexError) as error:
        raise SourceError(f"not readable as Avro: {error}") from error
    if skipped < skip:
        raise too_few_rows(skipped, skip)


def _import_fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise SourceError(
            "reading Avro needs fastavro, which cannot be imported",
            advice="install it: pip install 'aioproducer[schema-registry]'",
        ) from error
    return fastavro
