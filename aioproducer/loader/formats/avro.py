"""Avro container files, decoded with fastavro (the extra `schema-registry`), imported when used.

Invariants
- Memory is bounded by one block of the file and one chunk of rows, whatever the file says.
- Native code decodes only schemas of bounded depth; types that contain themselves are decoded in
  Python, where too deep a value is an error.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.avro_container import Container
from aioproducer.loader.formats.format import imported, too_few_rows
from aioproducer.loader.rows import BadRow, RowBatch
from aioproducer.loader.values import to_json
from aioproducer.serializers.registry.avro_bounds import Bounds, bounds_of
from aioproducer.serializers.registry.avro_schema import AvroSchemaError, resolve, without_defaults

_CHUNK_ROWS: Final = 1000
_CHUNK_VALUES: Final = 1_000_000
_MAX_ROW_VALUES: Final = 4 << 20
_OUR_DECIMAL: Final = "aioproducer-decimal"
_OUR_UUID: Final = "aioproducer-uuid"
_MAX_DECIMAL_BYTES: Final = 1000
_MAX_DECIMAL_DIGITS: Final = 2500
_MAX_EMPTY_ROWS: Final = 1000
"""How many rows that take no bytes a block may have."""


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Apache Avro container files with a schema of a record, in any codec fastavro reads."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[RowBatch]:
        """See `Format`."""
        for first_row, fields in avro_rows(stream, skip):
            yield RowBatch("", None, first_row, fields, None)


def avro_rows(stream: io.BufferedIOBase, skip: int = 0) -> Iterator[tuple[int, list[Any]]]:
    """Yield records in chunks, each with the number of its first one, without the first `skip`.

    A record with a value that Python does not have, such as a date after the year 9999, is a
    `BadRow`.
    """
    fastavro = imported("fastavro", "Avro", "schema-registry")
    try:
        container = Container(stream)
        if not isinstance(container.schema, dict) or container.schema.get("type") != "record":
            raise SourceError("its schema is no record: there are no columns")
        bounds = bounds_of(resolve(container.schema))
        decoder = _Decoder(fastavro, container.schema, bounds)
        seen = 0
        for count, content in container.blocks():
            most = len(content) // bounds.min_bytes if bounds.min_bytes else _MAX_EMPTY_ROWS
            if count > most:
                raise ValueError(f"a block of {len(content)} bytes says that it has {count} rows")
            first_row = max(seen, skip) + 1
            seen += count
            if seen > skip:
                left_out = count - (seen - first_row + 1)
                for rows in _chunks(decoder, content, count, left_out=left_out, bounds=bounds):
                    yield first_row, rows
                    first_row += len(rows)
    except (*_DAMAGED, AvroSchemaError) as error:
        raise SourceError(f"not readable as Avro: {error}") from error
    except RecursionError:
        raise SourceError("not readable as Avro: it is nested too deeply") from None
    if seen < skip:
        raise too_few_rows(seen, skip)


_DAMAGED: Final = (ValueError, EOFError, TypeError, KeyError, IndexError, ArithmeticError)


class _Decoder:
    """Decodes rows of a schema."""

    def __init__(self, fastavro: Any, schema: Any, bounds: Bounds) -> None:
        self._parse: Callable[[Any], Any] = fastavro.parse_schema
        # Reading uses no defaults, and they may be without end.
        self._schema = without_defaults(schema)
        try:
            parsed = self._parse(_with_logical_types(self._schema, _OUR_TYPES))
        except Exception as error:  # fastavro's, and others
            raise SourceError(f"not readable as Avro: its schema is malformed: {error}") from error
        name = "fastavro._read_py" if bounds.recursive else "fastavro.read"
        reading = importlib.import_module(name)
        for kind in ("bytes", "fixed"):
            reading.LOGICAL_READERS[f"{kind}-{_OUR_DECIMAL}"] = _decimal
        reading.LOGICAL_READERS[f"fixed-{_OUR_UUID}"] = _uuid
        self._read: Callable[..., Any] = reading.schemaless_reader
        self.row: Callable[[io.BytesIO], Any] = lambda data: self._read(data, parsed, None)

    @cached_property
    def _plain(self) -> Any:
        return self._parse(_with_logical_types(self._schema, {}))

    def bad_row(self, data: io.BytesIO, start: int, error: Exception) -> BadRow:
        """Return a row with a value that its logical type does not have, such as a year 10000."""
        data.seek(start)
        try:
            row = self._read(data, self._plain, None)
        except EOFError:
            raise
        except Exception:
            raise error from None
        return BadRow(f"a value cannot be read: {error}", to_json(row).encode())


_OUR_TYPES: Final = {"decimal": _OUR_DECIMAL, "uuid": _OUR_UUID}


def _with_logical_types(schema: Any, ours: Mapping[str, str]) -> Any:
    """Return a schema with our names of some logical types, or without any if there are none.

    fastavro gives such values to `_decimal` and `_uuid`, by its custom logical types.
    """
    if isinstance(schema, list):
        return [_with_logical_types(each, ours) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: _with_logical_types(each, ours)
        if name in ("type", "items", "values", "fields")
        else each
        for name, each in schema.items()
        if ours or name != "logicalType"
    }
    if made.get("type") in ("bytes", "fixed") and (logical := made.get("logicalType")) is not None:
        made["logicalType"] = ours.get(logical, logical)
    return made


def _decimal(data: bytes, schema: dict[str, Any], _: object = None) -> Decimal:
    """Return the decimal that bytes are; one that is longer than any real one is refused."""
    if len(data) > _MAX_DECIMAL_BYTES:
        raise SourceError(f"not readable as Avro: a decimal of {len(data)} bytes")
    context = Context(prec=_MAX_DECIMAL_DIGITS)
    unscaled = context.create_decimal(int.from_bytes(data, "big", signed=True))
    try:
        return unscaled.scaleb(-int(schema.get("scale", 0)), context)
    except ArithmeticError:
        raise SourceError("not readable as Avro: a decimal of too large a scale") from None


def _uuid(data: bytes, schema: object, _: object = None) -> UUID | bytes:
    """Return the UUID that a fixed is, which fastavro leaves as bytes."""
    return UUID(bytes=data) if len(data) == 16 else data


def _chunks(
    decoder: _Decoder, content: bytes, count: int, *, left_out: int, bounds: Bounds
) -> Iterator[list[Any]]:
    """Yield the rows of a block, without the first ones."""
    most_rows = max(1, min(_CHUNK_ROWS, _CHUNK_VALUES // bounds.values))
    most_bytes = _MAX_ROW_VALUES // (bounds.values_per_byte or 1)
    if not bounds.values_per_byte:
        most_bytes = max(most_bytes, len(content))
    # A window, so that no row can have more than twice as many bytes.
    data, base, begun = io.BytesIO(content[: 2 * most_bytes]), 0, 0
    rows: list[Any] = []
    for number in range(count):
        if (start := data.tell()) > most_bytes:
            base, start = base + start, 0
            data = io.BytesIO(content[base : base + 2 * most_bytes])
        try:
            try:
                row = decoder.row(data)
            except (ValueError, ArithmeticError) as error:
                row = decoder.bad_row(data, start, error)
        except EOFError:
            if len(content) - base > 2 * most_bytes:
                raise SourceError(
                    f"row {number + 1} of a block exceeds {most_bytes} bytes"
                ) from None
            raise
        if number >= left_out:
            rows.append(row)
        at = base + data.tell()
        if len(rows) == most_rows or (rows and at - begun >= most_bytes):
            yield rows
            rows, begun = [], at
    if rows:
        yield rows
