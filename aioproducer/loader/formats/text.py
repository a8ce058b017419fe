"""Text formats: CSV, NDJSON, plain lines.

Invariants
- A row that cannot be read never stops the rows after it and never disappears: it is a `BadRow`
  with its text.
- Rows come in batches as they arrive; no batch waits for input once it holds a complete row.
- `skip` counts rows, good and bad; an input with fewer rows is not the one it was.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from aioproducer.errors import ConfigError
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.format import too_few_rows
from aioproducer.loader.formats.lines import CutLine, read_lines
from aioproducer.loader.rows import LINE_COLUMNS, BadRow, Dialect, Fields, RowBatch
from aioproducer.loader.streams import not_text
from aioproducer.loader.values import json_float

MAX_ROW_BYTES = 1024 * 1024
KEY_VALUE_COLUMNS = ("key", "value")
"""The columns of lines with a key separator."""


@dataclass(frozen=True, slots=True)
class LinesFormat:
    """Every line is one row with the single column `line`; blank lines are rows too.

    Attributes:
        key_separator: When given, the first one in a line parts the columns `key` and `value`; a
            line without one is a bad row.
        max_row_bytes: A longer line is a bad row.
        null: The text of a column that means null, None when there is none.
    """

    key_separator: str | None = None
    max_row_bytes: int = MAX_ROW_BYTES
    null: str | None = None

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[RowBatch]:
        """See `Format`."""
        return _after(skip, _parsed(stream, self))

    def parse(self, raw: Sequence[bytes], first_row: int = 1) -> RowBatch:
        """Return consecutive lines as rows."""
        separator = self.key_separator.encode() if self.key_separator else None
        columns = LINE_COLUMNS if separator is None else KEY_VALUE_COLUMNS
        lines = [line if type(line) is CutLine else line.removesuffix(b"\r") for line in raw]
        fields = [self._fields(line, separator) for line in lines]
        return RowBatch("", None, first_row, fields, columns, lines)

    def _fields(self, line: bytes, separator: bytes | None) -> Fields | BadRow:
        if type(line) is CutLine:
            return _too_long(line, self.max_row_bytes)
        if separator is None:
            return (self._column(line),)
        key, found, value = line.partition(separator)
        if not found:
            return BadRow(f"no key separator {self.key_separator!r}", line)
        return (self._column(key), self._column(value))

    def _column(self, text: bytes) -> bytes | None:
        return None if self.null is not None and text == self.null.encode() else text


@dataclass(frozen=True, slots=True)
class NdjsonFormat:
    """Every line is a JSON object (NDJSON, JSON lines); blank lines are left out."""

    max_row_bytes: int = MAX_ROW_BYTES

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[RowBatch]:
        """See `Format`."""
        return _after(skip, _parsed(stream, self))

    def parse(self, raw: Sequence[bytes], first_row: int = 1) -> RowBatch:
        """Return consecutive lines as rows; there may be none."""
        lines = [line if type(line) is CutLine else line.strip() for line in raw]
        lines = [line for line in lines if line]
        fields = [self._parse(line) for line in lines]
        return RowBatch("", None, first_row, fields, None, lines, lines_are_json=True)

    def _parse(self, line: bytes) -> Fields | BadRow:
        if type(line) is CutLine:
            return _too_long(line, self.max_row_bytes)
        try:
            fields = _JSON.decode(line.decode("utf-8"))
        except UnicodeDecodeError:
            return BadRow("not valid UTF-8", line)
        except (ValueError, RecursionError) as error:
            return BadRow(f"not valid JSON: {_SPLIT.get(line, error)}", line)
        if not isinstance(fields, dict):
            advice = f"; {_UNPACK}" if isinstance(fields, list) else ""
            return BadRow(f"not a JSON object{advice}", line)
        return fields


def _parsed(stream: io.BufferedIOBase, format_: LinesFormat | NdjsonFormat) -> Iterator[RowBatch]:
    first_row = 1
    for raw in _utf8_lines(stream, format_.max_row_bytes):
        batch = format_.parse(raw, first_row)
        if batch.fields:
            yield batch
            first_row += len(batch.fields)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


_JSON = json.JSONDecoder(parse_float=json_float, parse_constant=_refuse_constant)
_UNPACK = "of an array, make a line of each object: jq -c '.[]'"
_SPLIT = {
    b"[": f"it goes on in the next line; {_UNPACK}",
    b"{": "it goes on in the next line; make one line of each object: jq -c .",
}
"""The first lines of JSON that is no NDJSON, and what to do."""


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values (RFC 4180); a quoted value may contain line feeds.

    Attributes:
        delimiter: One character.
        quote: One character, None when nothing is quoted.
        columns: The columns' names; None when the first row names them.
        encoding: Any encoding in which a line feed is one byte.
        null: The text for null, None when there is none.
        max_row_bytes: A longer row is a bad one.
    """

    delimiter: str = ","
    quote: str | None = '"'
    columns: tuple[str, ...] | None = None
    encoding: str = "utf-8"
    null: str | None = None
    max_row_bytes: int = MAX_ROW_BYTES

    def __post_init__(self) -> None:
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote)):
            if value is not None and len(value) != 1:
                raise ConfigError(f"the CSV {name} must be one character, not {value!r}")
            if value in ("\n", "\r"):
                raise ConfigError(f"the CSV {name} cannot be {value!r}, which ends a row")
        if self.delimiter == self.quote:
            raise ConfigError(f"the CSV delimiter and quote cannot both be {self.quote!r}")
        if twice := _twice(self.columns or ()):
            raise ConfigError(f"the CSV columns name {', '.join(twice)} more than once")
        try:
            line_feed = "\n".encode(self.encoding)
            if line_feed == b"\n":
                line_feed.decode(self.encoding, "surrogateescape")  # as rows are read
        except (LookupError, ValueError):  # some codecs are for the names of hosts, or for tests
            raise ConfigError(f"unknown encoding {self.encoding!r}") from None
        if codecs.lookup(self.encoding).name == "utf-8-sig":  # a byte order mark is dropped anyway
            object.__setattr__(self, "encoding", "utf-8")
        elif line_feed != b"\n":
            raise ConfigError(
                f"no CSV in {self.encoding}: its line feed is not one byte",
                advice=f"convert the file: iconv -f {self.encoding} -t UTF-8",
            )

    @property
    def dialect(self) -> Dialect:
        """The rules by which fields become the text of a row."""
        return Dialect(self.delimiter, self.quote, self.null)

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[RowBatch]:
        """See `Format`."""
        is_utf8 = codecs.lookup(self.encoding).name == "utf-8"
        lines_of = _utf8_lines if is_utf8 else read_lines
        return _after(skip, self.parse(lines_of(stream, self.max_row_bytes)))

    def parse(self, lines: Iterator[list[bytes]]) -> Iterator[RowBatch]:
        """Yield the rows of a file's lines; those of a list before the next one is asked for."""
        return _CsvReader(self, lines).batches()


class _RowTooLongError(Exception):
    """The lines of a row have more bytes than a row may have."""


class _CsvReader:
    """Reads one file; keeps the lines of the row being parsed, for the text of a bad one."""

    def __init__(self, options: CsvFormat, line_lists: Iterator[list[bytes]]) -> None:
        self._options = options
        self._line_lists = line_lists
        self._lines: Iterator[bytes] = iter(())
        self._text: list[str] = []
        self._size = 0
        self._ready = 0
        self._cut = False
        # The module's own limit is one for the whole process; it is only ever raised.
        if csv.field_size_limit() < options.max_row_bytes:
            csv.field_size_limit(options.max_row_bytes)
        self._records = self._parsed()

    def _parsed(self) -> Iterator[list[str]]:
        options = self._options
        return csv.reader(
            self._feed(),
            delimiter=options.delimiter,
            quotechar=options.quote,
            quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )

    def batches(self) -> Iterator[RowBatch]:
        columns = self._options.columns or self._header()
        dialect = self._options.dialect
        first_row = 1
        fields: list[Fields | BadRow] = []
        while (row := self._row(len(columns))) is not None:
            if row:
                fields.append(row)
            if fields and not self._ready:
                yield RowBatch("", None, first_row, fields, columns, dialect=dialect)
                first_row += len(fields)
                fields = []
        if fields:
            yield RowBatch("", None, first_row, fields, columns, dialect=dialect)

    def _feed(self) -> Iterator[str]:
        """Yield the lines from where another one ended."""
        encoding, most = self._options.encoding, self._options.max_row_bytes
        while True:
            for line in self._lines:
                self._ready -= 1
                if type(line) is CutLine:
                    self._cut = True
                # Bytes that are no text become lone surrogates: the row's own bytes can be had
                # back for the dead letter, and no value with one can be encoded by mistake.
                text = line.decode(encoding, "surrogateescape") + "\n"
                self._text.append(text)
                self._size += len(line) + 1
                if self._size > most + 1 and len(self._text) > 1:
                    raise _RowTooLongError
                yield text
            lines = next(self._line_lists, None)
            if lines is None:
                return
            self._lines, self._ready = iter(lines), len(lines)

    def _begin_row(self) -> None:
        self._text.clear()
        self._size, self._cut = 0, False

    def _header(self) -> tuple[str, ...]:
        try:
            columns = tuple(next((row for row in self._records if row), ()))
        except csv.Error as error:
            raise SourceError(f"the CSV header cannot be read: {_reason(error)}") from error
        except _RowTooLongError:
            most = self._options.max_row_bytes
            raise SourceError(f"the CSV header is longer than {most:,} bytes") from None
        self._begin_row()
        _check_header(columns)
        return columns

    def _row(self, width: int) -> Fields | BadRow | None:
        """Return one row; an empty one for a blank line, None at the end."""
        try:
            fields = next(self._records)
        except csv.Error as error:
            row: Fields | BadRow = self._bad(f"not valid CSV: {_reason(error)}")
        except _RowTooLongError:
            row = self._too_long()
            self._records = self._parsed()
        except StopIteration:
            return None
        else:
            row = self._checked(fields, width)
        self._begin_row()
        return row

    def _checked(self, fields: list[str], width: int) -> Fields | BadRow:
        if self._cut:
            return self._too_long()
        if len(fields) != width and fields:
            return self._bad(f"{len(fields)} fields where the header names {width}")
        null = self._options.null
        return fields if null is None else [None if field == null else field for field in fields]

    def _too_long(self) -> BadRow:
        most = self._options.max_row_bytes
        if not self._cut:  # whole: rows may be in it
            return self._bad(f"longer than {most:,} bytes; is a quote not closed?")
        bad = self._bad(f"longer than {most:,} bytes (text cut)")
        return replace(bad, raw=bad.raw[:most])

    def _bad(self, reason: str) -> BadRow:
        text = "".join(self._text).removesuffix("\n").removesuffix("\r")
        return BadRow(reason, text.encode(self._options.encoding, "surrogateescape"))


def _reason(error: csv.Error) -> str:
    """Return the reason of an error; the module's advice for a carriage return is for programs."""
    text = str(error)
    if text.startswith("new-line character"):
        return (
            "a carriage return outside of quotes; where it ends each row, convert the file first: "
            "tr '\\r' '\\n'"
        )
    return text


def _utf8_lines(stream: io.BufferedIOBase, max_line_bytes: int) -> Iterator[list[bytes]]:
    """Yield lines as `read_lines` does; refuse a file whose first line is not of such a text."""
    is_first = True
    for lines in read_lines(stream, max_line_bytes):
        if is_first and (error := not_text(lines[0])) is not None:
            raise error
        is_first = False
        yield lines


def _check_header(columns: Sequence[str]) -> None:
    """Refuse a CSV header that is no text, or that has the same column twice."""
    if any("\0" in name for name in columns):
        raise SourceError(
            "the CSV header has NUL characters; is it UTF-16?",
            advice="convert it: iconv -f UTF-16LE -t UTF-8",
        )
    if twice := _twice(columns):
        raise SourceError(f"the CSV header names {', '.join(twice)} more than once")


def _twice(names: Sequence[str]) -> list[str]:
    """Return the names that are there more than once, to be shown."""
    return sorted(name or "''" for name, count in Counter(names).items() if count > 1)


def _too_long(line: bytes, limit: int) -> BadRow:
    return BadRow(f"longer than {limit:,} bytes (text cut)", bytes(line))


def _after(skip: int, batches: Iterator[RowBatch]) -> Iterator[RowBatch]:
    seen = 0
    for batch in batches:
        seen = batch.first_row + len(batch.fields) - 1
        cut = max(0, skip - batch.first_row + 1)
        if cut == 0:
            yield batch
        elif seen > skip:
            yield replace(
                batch,
                first_row=skip + 1,
                fields=batch.fields[cut:],
                lines=None if batch.lines is None else batch.lines[cut:],
            )
    if seen < skip:
        raise too_few_rows(seen, skip)
