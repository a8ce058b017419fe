"""Rows of Spark's tasks into records, by the loader's own `RowMapper`.

Invariants
- The in-process loader's code decides what a row becomes, so both give the same records.
- Each row becomes a record, or a reason why not: the task fails by it, or it is kept in the columns
  `rejection`.
"""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import quote

import pyarrow as pa

from aioproducer.loader.errors import RejectedRowError, SourceError
from aioproducer.loader.formats.arrow_rows import fields_of, rows_of
from aioproducer.loader.formats.avro import avro_rows
from aioproducer.loader.formats.lines import cut_lines
from aioproducer.loader.formats.text import CsvFormat, LinesFormat, NdjsonFormat
from aioproducer.loader.mapping import MappedRecord, RecordMapping, RowMapper
from aioproducer.loader.rows import LINE_COLUMNS, BadRow, Fields, RowBatch
from aioproducer.loader.streams import not_text
from aioproducer.spark.loading.frames import FILE, Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_AT_ONCE: Final = 1000
REJECTION: Final = "rejection"

_SHOWN_BYTES: Final = 80
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_REJECTION: Final = pa.struct(
    [("file", pa.string()), ("reason", pa.string()), ("raw", pa.binary())]
)
_SQL: Final[Mapping[str, str]] = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "timestamp": "bigint",
    REJECTION: "struct<file:string,reason:string,raw:binary>",
}


@dataclass(frozen=True, slots=True)
class RowsToRecords:
    """The function for `mapInArrow`.

    Attributes:
        files: what the rows come from.
        mapping: what becomes of them.
        partitions: how many the topic has; used for `partition_by` alone.
        keeps_bad_rows: whether they get a column, instead of ending the task.
        columns: the names of the columns that rows have here, by place; empty if they have them.
    """

    files: Input
    mapping: RecordMapping
    partitions: int = 0
    keeps_bad_rows: bool = False
    columns: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """The columns of the result, in Spark's words."""
        return ", ".join(f"{name} {_SQL[name]}" for name in self._columns)

    def check(self, columns: Sequence[str]) -> None:
        """Refuse a mapping that no row of these columns can fulfil."""
        if self.files.name in {"avro", "ndjson"} or isinstance(self.files.format, CsvFormat):
            return  # each row, or file, has its own
        known = tuple(name for name in columns if name != FILE)
        if self.files.name == "lines":
            known = LINE_COLUMNS + known[1:]
        RowMapper(self.mapping, self.partitions).map(RowBatch("", None, 1, [], known))

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the records of rows; in tasks columns are called by their places.

        `mapInArrow` takes `a.b` for a field of a column `a`.
        """
        self.check(rows.columns)
        made = replace(self, columns=tuple(rows.columns))
        return rows.toDF(*map(str, range(len(rows.columns)))).mapInArrow(made, self.schema)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield records for rows, batch by batch."""
        mapper = RowMapper(self.mapping, self.partitions)
        for files, rows in self._rows(self._slices(batches)):
            yield self._records(files, mapper.map(rows))

    # -- rows ------------------------------------------------------------------------------------

    def _slices(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            named = batch.rename_columns(list(self.columns)) if self.columns else batch
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                yield named.slice(start, ROWS_AT_ONCE)

    def _rows(self, slices: Iterator[pa.RecordBatch]) -> Iterator[tuple[Sequence[str], RowBatch]]:
        """Yield the rows of the files, which do not name them, with the file of each row."""
        if isinstance(self.files.format, CsvFormat):
            return self._csv(self.files.format, slices)
        read = self._table
        if self.files.name == "avro":
            read = self._avro
        elif isinstance(self.files.format, LinesFormat | NdjsonFormat):
            read = partial(self._lines, set())
        return chain.from_iterable(map(read, slices))

    def _table(self, batch: pa.RecordBatch) -> Iterator[tuple[Sequence[str], RowBatch]]:
        files, batch = _without(batch, FILE)
        yield files, RowBatch("", None, 1, rows_of(batch), tuple(batch.schema.names))

    def _csv(
        self, known: CsvFormat, slices: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[Sequence[str], RowBatch]]:
        for file, parts in groupby(_lines_by_file(slices), key=itemgetter(0)):
            try:
                for rows in _csv_rows(known, parts):
                    yield [file] * len(rows.fields), rows
            except SourceError as error:
                raise _cannot_read(file, error) from error

    def _lines(
        self, checked: set[str], batch: pa.RecordBatch
    ) -> Iterator[tuple[Sequence[str], RowBatch]]:
        known = cast("LinesFormat | NdjsonFormat", self.files.format)
        files, batch = _without(batch, FILE)
        texts, folders = _without(batch, "value")
        for file, text in zip(files, texts, strict=True):
            if file not in checked and (found := not_text(text)) is not None:
                raise _cannot_read(file, found)
            checked.add(file)
        if isinstance(known, NdjsonFormat):  # it leaves blank lines out
            filled = [place for place, text in enumerate(texts) if text.strip()]
            files, texts = [files[place] for place in filled], [texts[place] for place in filled]
            folders = folders.take(filled)
        rows = known.parse(cut_lines(texts, known.max_row_bytes))
        if folders.num_columns:
            rows = _in_folders(rows, folders.schema.names, fields_of(folders))
        yield files, rows

    def _avro(self, batch: pa.RecordBatch) -> Iterator[tuple[Sequence[str], RowBatch]]:
        files, folders = _without(batch, FILE)
        for file, values in zip(files, fields_of(folders), strict=True):
            named = dict(zip(folders.schema.names, values, strict=True))
            try:
                with _opened(file) as stream:
                    for _, fields in avro_rows(stream):
                        rows = [
                            row if isinstance(row, BadRow) else {**row, **named} for row in fields
                        ]
                        yield [file] * len(rows), RowBatch("", None, 1, rows, None)
            except SourceError as error:
                raise _cannot_read(file, error) from error

    # -- records ---------------------------------------------------------------------------------

    @property
    def _columns(self) -> list[str]:
        mapping = self.mapping
        wanted = {
            "key": bool(mapping.key),
            "value": True,
            "headers": bool(mapping.headers or mapping.header_columns),
            "partition": mapping.partition is not None or bool(mapping.partition_by),
            "timestamp": mapping.timestamp is not None,
            REJECTION: self.keeps_bad_rows,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]

    def _records(
        self, files: Sequence[str], records: Sequence[MappedRecord | BadRow]
    ) -> pa.RecordBatch:
        rejections: list[dict[str, Any] | None] = [None] * len(records)
        good: list[MappedRecord] = []
        for place, record in enumerate(records):
            if isinstance(record, MappedRecord):
                good.append(record)
                continue
            if not self.keeps_bad_rows:
                raise _rejected(files[place], record)
            rejections[place] = {"file": files[place], "reason": record.reason, "raw": record.raw}
            good.append(_NO_RECORD)
        columns = {
            "key": lambda: pa.array([each.key for each in good], pa.binary()),
            "value": lambda: pa.array([each.value for each in good], pa.binary()),
            "headers": lambda: pa.array([_headers(each) for each in good], _HEADERS),
            "partition": lambda: pa.array([each.partition for each in good], pa.int32()),
            "timestamp": lambda: pa.array([each.timestamp_ms for each in good], pa.int64()),
            REJECTION: lambda: pa.array(rejections, _REJECTION),
        }
        return pa.RecordBatch.from_pydict({name: columns[name]() for name in self._columns})


_NO_RECORD: Final = MappedRecord(None, None, None, None, None)


def _headers(record: MappedRecord) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in record.headers or ()]


def _rejected(file: str, row: BadRow) -> RejectedRowError:
    shown = row.raw[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    text = " ".join(f"{file}: {row.reason}: {shown}".split())
    return RejectedRowError(text, advice="name a dead-letter file to go on past such rows")


_Part: TypeAlias = tuple[str, list[bytes], pa.RecordBatch]
"""A file, lines of it that follow each other, and the columns that its folders name."""


def _lines_by_file(slices: Iterator[pa.RecordBatch]) -> Iterator[_Part]:
    for each in slices:
        files, batch = _without(each, FILE)
        lines, folders = _without(batch, "value")
        for file, places in groupby(range(len(files)), key=files.__getitem__):
            start, *others = places
            yield file, lines[start : start + 1 + len(others)], folders.slice(start, 1)


def _csv_rows(known: CsvFormat, parts: Iterator[_Part]) -> Iterator[RowBatch]:
    """Return the rows of a file."""
    _, first, folders = next(parts)
    if (found := not_text(first[0])) is not None:
        raise found
    first[0] = first[0].removeprefix(BOM_UTF8)
    lines = chain([first], (part[1] for part in parts))
    batches = known.parse(cut_lines(each, known.max_row_bytes) for each in lines)
    names, (values,) = folders.schema.names, fields_of(folders)
    return (_in_folders(each, names, repeat(values)) for each in batches) if names else batches


def _cannot_read(file: str, reason: SourceError) -> SourceError:
    return SourceError(f"cannot read {file}: {reason.message}", advice=reason.advice)


def _in_folders(rows: RowBatch, names: Sequence[str], known: Iterable[tuple[Any, ...]]) -> RowBatch:
    """Return the rows of lines, with the columns that folders name; `known` has those of each."""
    fields: list[Fields | BadRow] = []
    for row, values in zip(rows.fields, known, strict=False):
        if isinstance(row, BadRow):
            fields.append(row)
        elif isinstance(row, Mapping):
            fields.append({**row, **dict(zip(names, values, strict=True))})
        else:
            fields.append((*row, *values))
    if rows.columns is None:
        return replace(rows, fields=fields, lines=None, lines_are_json=False)
    return replace(rows, fields=fields, columns=(*rows.columns, *names))


def _without(batch: pa.RecordBatch, name: str) -> tuple[list[Any], pa.RecordBatch]:
    """Return one column's values, and the other columns."""
    place = batch.schema.get_field_index(name)
    return batch.column(place).to_pylist(), batch.remove_column(place)


def _opened(path: str) -> io.BufferedIOBase:
    """Return a file of any file system that pyarrow supports."""
    from pyarrow.fs import FileSystem

    uri = quote(path.replace("s3a://", "s3://", 1), safe=":/@=,+")
    try:
        system, name = FileSystem.from_uri(uri)
        return io.BufferedReader(system.open_input_stream(name))
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
