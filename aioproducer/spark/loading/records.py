"""Rows of Spark's tasks into records, by the loader's own `RowMapper`.

Invariants
- The in-process loader's code decides what a row becomes, so both give the same records.
- Each row becomes a record, or a reason why not: the task fails by it, or it is kept in the columns
  `rejection`.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, unquote

import pyarrow as pa

from aioproducer.loader.errors import RejectedRowError, SourceError
from aioproducer.loader.formats.arrow_rows import fields_of, rows_of
from aioproducer.loader.formats.avro import avro_rows
from aioproducer.loader.formats.chunks import Chunk
from aioproducer.loader.formats.lines import cut_lines
from aioproducer.loader.formats.text import CsvFormat, LinesFormat, NdjsonFormat
from aioproducer.loader.mapping import MappedRecord, RecordMapping, RowMapper, csv_line
from aioproducer.loader.rows import LINE_COLUMNS, BadRow, Fields, RowBatch
from aioproducer.loader.streams import not_text
from aioproducer.spark.loading.frames import BROKEN, FILE, Input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_AT_ONCE: Final = 1000
REJECTION: Final = "rejection"

_PIECE: Final = 1024 * 1024
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
        if self.files.name in {"avro", "ndjson"}:
            return  # each row has its own
        known = tuple(name for name in columns if name not in {FILE, BROKEN})
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
        read = self._reader()
        for batch in batches:
            named = batch.rename_columns(list(self.columns)) if self.columns else batch
            for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                for file, rows in read(named.slice(start, ROWS_AT_ONCE)):
                    yield self._records(file, mapper.map(rows))

    # -- rows ------------------------------------------------------------------------------------

    def _reader(self) -> Callable[[pa.RecordBatch], Iterator[tuple[Sequence[str], RowBatch]]]:
        """Return the source of rows for the files, with the file of each row."""
        if self.files.name == "avro":
            return self._avro
        if isinstance(self.files.format, LinesFormat | NdjsonFormat):
            return self._lines
        if isinstance(self.files.format, CsvFormat):
            rejected = lru_cache(partial(_rejected_lines, self.files.format))
            return partial(self._csv, self.files.format, lru_cache(_is_utf8), rejected)
        return self._table

    def _table(self, batch: pa.RecordBatch) -> Iterator[tuple[Sequence[str], RowBatch]]:
        files, batch = _without(batch, FILE)
        yield files, _batch_of(Chunk(1, rows_of(batch), tuple(batch.schema.names)))

    def _csv(
        self,
        known: CsvFormat,
        is_utf8: Callable[[str], bool],
        rejected: Callable[[str], Mapping[int, str]],
        batch: pa.RecordBatch,
    ) -> Iterator[tuple[Sequence[str], RowBatch]]:
        files, batch = _without(batch, FILE)
        own = batch.schema.get_field_index(BROKEN)  # the columns of folders follow it
        broken, batch = _without(batch, BROKEN)
        may_be_other = codecs.lookup(known.encoding).name == "utf-8"
        fields: list[Fields | BadRow] = []
        for file, row, text in zip(files, fields_of(batch), broken, strict=True):
            if text is not None:
                fields.append(BadRow("not as many fields as the header names", text.encode()))
                continue
            values = [_csv_field(field, known.null) for field in row[:own]]
            line = known.delimiter.join(field or "" for field in row[:own])
            if known.quote and "\n" in line and (why := rejected(file).get(_bare(line, known))):
                fields.append(BadRow(why, csv_line(values, known.dialect)))
            elif may_be_other and _is_replaced(values) and not is_utf8(file):
                fields.append(BadRow("not valid UTF-8", csv_line(values, known.dialect)))
            else:
                fields.append([*values, *row[own:]])
        names = tuple(batch.schema.names)
        yield files, _batch_of(Chunk(1, fields, names, dialect=known.dialect))

    def _lines(self, batch: pa.RecordBatch) -> Iterator[tuple[Sequence[str], RowBatch]]:
        known = cast("LinesFormat | NdjsonFormat", self.files.format)
        files, batch = _without(batch, FILE)
        texts, folders = _without(batch, "value")
        for file, text in zip(files, texts, strict=True):
            if (found := not_text(text)) is not None:
                raise SourceError(f"cannot read {file}: {found.message}", advice=found.advice)
        if isinstance(known, NdjsonFormat):  # it leaves blank lines out
            filled = [place for place, text in enumerate(texts) if text.strip()]
            files, texts = [files[place] for place in filled], [texts[place] for place in filled]
            folders = folders.take(filled)
        chunk = known.parse(cut_lines(texts, known.max_row_bytes))
        yield files, _batch_of(_in_folders(chunk, folders) if folders.num_columns else chunk)

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
                        yield [file] * len(rows), _batch_of(Chunk(1, rows, None))
            except SourceError as error:
                raise SourceError(
                    f"cannot read {file}: {error.message}", advice=error.advice
                ) from error

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


def _batch_of(chunk: Chunk) -> RowBatch:
    return chunk.batch("", None)  # the file of each row is kept beside it


def _csv_field(field: Any, null: str | None) -> Any:
    """As the loader's reader gives it: to Spark's an empty field is null."""
    text = "" if field is None else field
    return None if text == null else text


def _bare(text: str, known: CsvFormat) -> int:
    """Return a hash of the text of a row, without what the loader's and Spark's readers change."""
    return hash(text.replace(known.quote or "", "").replace("\r\n", "\n").rstrip("\n"))


def _rejected_lines(known: CsvFormat, file: str) -> Mapping[int, str]:
    """Return the rows that the loader's reader rejects, by `_bare`, and why.

    To Spark's, a quote that is not closed takes the rows after it as a value. Without them if the
    file cannot be read by another reader than Spark's.
    """
    found: dict[int, str] = {}
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(_opened(unquote(file)))
            for chunk in known.read(stream, 0, stack):
                for row in chunk.fields:
                    if isinstance(row, BadRow):
                        text = row.raw.decode(known.encoding, "surrogateescape")
                        found[_bare(text, known)] = row.reason
    except (SourceError, OSError):
        pass
    return found


def _is_replaced(values: Sequence[str | None]) -> bool:
    """Return whether a row has the character that Spark reads for bytes that are no UTF-8."""
    return any(value is not None and "\ufffd" in value for value in values)


def _is_utf8(file: str) -> bool:
    """Return whether a file is UTF-8, and has such characters itself; no if it cannot be read."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with _opened(unquote(file)) as stream:
            while piece := stream.read(_PIECE):
                decoder.decode(piece)
        decoder.decode(b"", final=True)
    except (UnicodeDecodeError, SourceError, OSError):
        return False
    return True


def _in_folders(chunk: Chunk, folders: pa.RecordBatch) -> Chunk:
    """Return the rows of lines, with the columns that folders name."""
    names = tuple(folders.schema.names)
    fields: list[Fields | BadRow] = []
    for row, values in zip(chunk.fields, fields_of(folders), strict=True):
        if isinstance(row, BadRow):
            fields.append(row)
        elif isinstance(row, Mapping):
            fields.append({**row, **dict(zip(names, values, strict=True))})
        else:
            fields.append((*row, *values))
    if chunk.columns is None:
        return replace(chunk, fields=fields, lines=None, lines_are_json=False)
    return replace(chunk, fields=fields, columns=(*chunk.columns, *names))


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
