"""The mapping of a row to a record: the columns that become key, value, headers and so on.

Invariants
- A mapping is compiled once per set of columns, so no column is looked up by name for each row.
- A column that no row can have raises `MappingError` at once; a value that cannot be mapped rejects
  its row with a reason.
- `partition_by` hashes as Java's producer hashes keys (murmur2): rows with equal values in these
  columns get the same partition, whatever their keys are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_args
from zlib import crc32

from aioproducer.loader.errors import MappingError
from aioproducer.loader.rows import LINE_COLUMNS, BadRow, Dialect, Fields, RowBatch
from aioproducer.loader.values import (
    TimestampUnit,
    encode_text,
    partition_number,
    timestamp_ms,
    to_bytes,
    to_json,
)
from aioproducer.records import murmur2
from aioproducer.types import HeaderPairs

_Getter = Callable[[Any], Any]
_VALUE_FORMATS = ("json", "raw")
_LINE_END = "\r\n"


class MappedRecord(NamedTuple):
    """The arguments of `Producer.send`, besides the topic."""

    value: bytes | None
    key: bytes | None
    headers: HeaderPairs | None
    partition: int | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class RecordMapping:
    """The columns that become key, value, headers, timestamp and partition.

    Attributes:
        key: Columns whose texts, joined by `key_join`, are the key; none for null keys. A row in
            which every one of them is null has a null key.
        key_join: The separator of the columns of a key.
        value: One column that alone is the value; None for the whole row in `value_format`.
        value_format: The whole row as JSON, or `raw`: the line as it is in the input (CSV
            fields joined again in the file's dialect; Parquet rows as JSON). Plain lines are always
            raw, and a line of NDJSON is passed on as it is.
        headers: Headers every record gets.
        header_columns: (header name, column) pairs.
        timestamp: The column with the record's timestamp: an ISO 8601 text or a number.
        timestamp_unit: What such a number counts.
        partition: The column with the partition's number. A row for one that the topic did not have
            when the load began is rejected.
        partition_by: Columns whose hash chooses the partition, in place of the key's.
        value_encoder: Makes the value of the whole row, in place of `value_format`; it gets the
            row's fields by name, and raises ValueError for a row that it cannot do.
    """

    key: tuple[str, ...] = ()
    key_join: str = "+"
    value: str | None = None
    value_format: Literal["json", "raw"] = "json"
    headers: HeaderPairs = ()
    header_columns: tuple[tuple[str, str], ...] = ()
    timestamp: str | None = None
    timestamp_unit: TimestampUnit = "ms"
    partition: str | None = None
    partition_by: tuple[str, ...] = ()
    value_encoder: Callable[[Mapping[str, Any]], bytes] | None = None

    def __post_init__(self) -> None:
        for name, columns in (("key", self.key), ("partition_by", self.partition_by)):
            if isinstance(columns, str):  # its characters would be taken for columns
                raise MappingError(f"{name} takes a tuple of columns: ({columns!r},)")
        if self.value_format not in _VALUE_FORMATS:
            known = " or ".join(_VALUE_FORMATS)
            raise MappingError(f"value_format is {known}, not {self.value_format!r}")
        if self.partition is not None and self.partition_by:
            raise MappingError("a partition column and partition-by columns exclude each other")
        if self.timestamp_unit not in get_args(TimestampUnit):
            units = ", ".join(get_args(TimestampUnit))
            raise MappingError(f"a timestamp counts {units}, not {self.timestamp_unit!r}")
        if self.value is not None and self.value_format == "raw":
            raise MappingError("a value column and the raw row as value exclude each other")
        if self.value_encoder is not None and (self.value or self.value_format == "raw"):
            raise MappingError("a value column or the raw row, and a schema, exclude each other")


class RowMapper:
    """A `RecordMapping` at work; `partitions` is the topic's number of partitions.

    0 if it is not known: `partition_by` needs it, and with it a row for another partition is bad.
    """

    def __init__(self, mapping: RecordMapping, partitions: int) -> None:
        self._mapping = mapping
        self._partitions = partitions
        self._compiled: dict[tuple[str, ...] | None, _CompiledMapping] = {}

    def map(self, batch: RowBatch) -> list[MappedRecord | BadRow]:
        """Return one record or one rejection per row, in the rows' order."""
        compiled = self._compiled.get(batch.columns)
        if compiled is None:
            compiled = _CompiledMapping(self._mapping, batch.columns, self._partitions)
            self._compiled[batch.columns] = compiled
        lines = batch.lines if compiled.takes_lines(batch) else None
        return [
            fields
            if isinstance(fields, BadRow)
            else compiled.record(fields, batch, index, lines[index] if lines else None)
            for index, fields in enumerate(batch.fields)
        ]


class _CompiledMapping:
    def __init__(
        self, mapping: RecordMapping, columns: tuple[str, ...] | None, partitions: int
    ) -> None:
        self._mapping = mapping
        self._columns = columns
        self._key = self._joined(mapping.key)
        self._partition_by = self._joined(mapping.partition_by)
        self._value = self._getter(mapping.value)
        self._timestamp = self._getter(mapping.timestamp)
        self._partition = self._getter(mapping.partition)
        self._header_columns = [
            (name, self._column(column)) for name, column in mapping.header_columns
        ]
        self._texts_to_json = None if columns is None else _json_of_texts(columns)
        self._partitions = partitions

    def takes_lines(self, batch: RowBatch) -> bool:
        """Return whether the lines themselves are the values."""
        encoded = self._mapping.value_encoder is not None
        if self._value is not None or batch.lines is None or encoded:
            return False
        wanted_raw = self._mapping.value_format == "raw"
        return wanted_raw or batch.lines_are_json or batch.columns == LINE_COLUMNS

    def record(
        self, fields: Fields, batch: RowBatch, index: int, line: bytes | None
    ) -> MappedRecord | BadRow:
        mapping = self._mapping
        try:
            return MappedRecord(
                value=self._row_value(fields, batch.dialect) if line is None else line,
                key=None if self._key is None else self._key(fields),
                headers=self._headers(fields) if self._header_columns else mapping.headers or None,
                partition=self._chosen_partition(fields),
                timestamp_ms=None
                if self._timestamp is None
                else timestamp_ms(self._timestamp(fields), mapping.timestamp_unit),
            )
        except KeyError as error:
            reason = f"no field {error.args[0]!r}"
        except ValueError as error:
            reason = str(error)
        except RecursionError:
            reason = "nested too deeply"
        return BadRow(reason, row_text(batch, index))

    def _row_value(self, fields: Fields, dialect: Dialect | None) -> bytes | None:
        if self._value is not None:
            return to_bytes(self._value(fields))
        if self._mapping.value_encoder is not None:
            return self._mapping.value_encoder(_named(fields, self._columns))
        if dialect is not None and self._mapping.value_format == "raw":
            return csv_line(fields, dialect)
        if self._texts_to_json is not None:
            try:
                return encode_text(self._texts_to_json(fields))
            except TypeError:
                pass
        return encode_text(to_json(_named(fields, self._columns)))

    def _headers(self, fields: Fields) -> HeaderPairs:
        own = tuple((name, to_bytes(get(fields))) for name, get in self._header_columns)
        return (*self._mapping.headers, *own)

    def _chosen_partition(self, fields: Fields) -> int | None:
        if self._partition is not None:
            number = partition_number(self._partition(fields))
            if number is not None and 0 < self._partitions <= number:
                raise ValueError(
                    f"there is no partition {number}: the topic has {self._partitions}"
                )
            return number
        if self._partition_by is None:
            return None
        hashed = self._partition_by(fields)
        return None if hashed is None else (murmur2(hashed) & 0x7FFFFFFF) % self._partitions

    def _column(self, name: str) -> _Getter:
        return itemgetter(self._place(name))

    def _place(self, name: str) -> str | int:
        if self._columns is None:
            return name
        if name not in self._columns:
            known = ", ".join(self._columns)
            raise MappingError(f"there is no column {name!r}; the columns are {known}")
        return self._columns.index(name)

    def _getter(self, name: str | None) -> _Getter | None:
        return None if name is None else self._column(name)

    def _joined(self, names: Sequence[str]) -> Callable[[Fields], bytes | None] | None:
        """Return a function that joins columns to one value's bytes; null if all of them are."""
        if not names:
            return None
        if len(names) == 1:
            only = self._column(names[0])
            return lambda fields: to_bytes(only(fields))
        text_joint, joint = self._mapping.key_join, self._mapping.key_join.encode("utf-8")
        take = itemgetter(*(self._place(name) for name in names))

        def join(fields: Fields) -> bytes | None:
            values = take(fields)
            try:
                return encode_text(text_joint.join(values))
            except TypeError:  # not all of them are texts
                parts = [to_bytes(value) for value in values]
            if all(part is None for part in parts):
                return None
            return joint.join(part or b"" for part in parts)

        return join


def _json_of_texts(columns: Sequence[str]) -> Callable[[Fields], str]:
    """Return what `to_json` does, for rows of texts alone, three times as fast, or `TypeError`."""
    pairs = (encode_basestring(name).replace("%", "%%") + ":%s" for name in columns)
    template = "{" + ",".join(pairs) + "}"
    return lambda fields: template % tuple(map(encode_basestring, fields))


def row_text(batch: RowBatch, index: int) -> bytes:
    """Return a row's text for a dead letter: its line, its fields as CSV, or its JSON."""
    fields = batch.fields[index]
    if isinstance(fields, BadRow):
        return fields.raw
    if batch.lines is not None:
        return batch.lines[index]
    if batch.dialect is not None:
        return csv_line(fields, batch.dialect)
    if batch.columns is not None and all(isinstance(field, str) for field in fields):
        return csv_line(fields, Dialect())
    try:
        text = json.dumps(_named(fields, batch.columns), default=repr)
    except (RecursionError, TypeError, ValueError) as error:
        text = json.dumps(f"no JSON form: {error}")
    return text.encode("utf-8", "surrogateescape")


def row_checksum(batch: RowBatch, index: int) -> str:
    """Return eight digits for a row's text, and for the archive's members before its own."""
    return f"{crc32(row_text(batch, index), batch.members_before):08x}"


def _named(fields: Fields, columns: tuple[str, ...] | None) -> Mapping[str, Any]:
    return dict(fields if columns is None else zip(columns, fields, strict=True))


def csv_line(fields: Fields, dialect: Dialect) -> bytes:
    """Return the text of a row in a dialect of CSV."""
    texts = [dialect.null if field is None else field for field in fields]
    if dialect.quote is None:
        text = dialect.delimiter.join("" if field is None else str(field) for field in texts)
    else:
        line = io.StringIO()
        # Only a field with characters of the line's end is quoted because of them.
        csv.writer(
            line, delimiter=dialect.delimiter, quotechar=dialect.quote, lineterminator=_LINE_END
        ).writerow(texts)
        text = line.getvalue().removesuffix(_LINE_END)
    return text.encode("utf-8", "surrogateescape")
