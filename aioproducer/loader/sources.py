"""Sources of rows: files in every supported format, and rows already in memory."""

from __future__ import annotations

import io
import lzma
import os
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from aioproducer._util.paths import exists, is_file, real_path
from aioproducer._util.printable import printable
from aioproducer.errors import ConfigError
from aioproducer.loader.errors import SourceError
from aioproducer.loader.formats.arrow_process import ArrowFormat, ArrowProcess
from aioproducer.loader.formats.avro import AvroFormat
from aioproducer.loader.formats.format import Format
from aioproducer.loader.formats.orc import OrcFormat
from aioproducer.loader.formats.parquet import ParquetFormat
from aioproducer.loader.formats.text import CsvFormat, LinesFormat, NdjsonFormat
from aioproducer.loader.rows import Position, RowBatch
from aioproducer.loader.streams import STDIN, Member, ReadInterruptedError, members

FORMATS: Mapping[str, Format] = {
    "csv": CsvFormat(),
    "tsv": CsvFormat(delimiter="\t"),
    "ndjson": NdjsonFormat(),
    "parquet": ParquetFormat(),
    "orc": OrcFormat(),
    "avro": AvroFormat(),
    "lines": LinesFormat(),
}
"""The formats by the names people use."""

_FORMAT_BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".txt": "lines",
    ".log": "lines",
}
_ROWS_PER_BATCH = 500
_LONGEST_BATCH_S = 0.1


def format_named(name: str) -> str | None:
    """Return the format of a file's name; None if it has none."""
    return _FORMAT_BY_SUFFIX.get(PurePosixPath(name).suffix.lower())


class FileSource:
    """Rows of files, one file after the other.

    Args:
        files: Paths, or `-` for standard input. Each may be gzipped or a zip archive, whose members
            are read in their order.
        format: A `Format`, or a name in `FORMATS`; None takes it from each name's suffix (in an
            archive, members with an unknown one, and plain text, are then left out).
        formats: What the names mean, to read CSV in another dialect for instance.
        member: Only the members of archives that fit this pattern (`*.csv`).
    """

    def __init__(
        self,
        files: str | Path | Sequence[str | Path],
        *,
        format: Format | str | None = None,  # noqa: A002
        formats: Mapping[str, Format] = FORMATS,
        member: str | None = None,
    ) -> None:
        names = [files] if isinstance(files, str | Path) else files
        self._files = [str(name) for name in names]
        if not self._files:
            raise ConfigError("a load needs at least one input")
        if "" in self._files:
            raise ConfigError("the name of an input is empty")
        known: dict[str, str] = {}
        for name in self._files:
            place = name if name == STDIN else real_path(name)
            if place in known:
                shown = f"{name}, which is {known[place]}," if known[place] != name else name
                raise ConfigError(f"the input {shown} is given more than once")
            known[place] = name
        if isinstance(format, str) and format not in formats:
            raise ConfigError(f"unknown format {format!r}; known are {', '.join(formats)}")
        if format is None and STDIN in self._files:
            raise ConfigError(f"standard input has no name to infer a format from: {_NAME_IT}")
        self._format = formats[format] if isinstance(format, str) else format
        self._formats = formats
        self._member = member
        self._interrupt = threading.Event()

    @property
    def name(self) -> str:
        """The file's name, or the first one's and how many more there are."""
        first = self._files[0]
        first = "standard input" if first == STDIN else printable(Path(first).name)
        more = len(self._files) - 1
        return f"{first} and {more} more" if more else first

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files; `-` is standard input."""
        return tuple(map(Path, self._files))

    @property
    def total_bytes(self) -> int | None:
        """The size of all files; None when one of them has none, as a pipe."""
        sizes = [size_of(name) for name in self._files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def interrupt(self) -> None:
        """See `Source`."""
        self._interrupt.set()

    def check(self) -> None:
        """Raise `SourceError` if a file is missing or may not be read."""
        for file in self._files:
            if file != STDIN and not os.access(file, os.R_OK):
                reason = "permission denied" if exists(file) else "no such file or directory"
                raise SourceError(f"cannot read {file}: {reason}")

    def batches(self, after: Position | None = None) -> Iterator[RowBatch]:
        """See `Source`."""
        # Each reading has its own: the end of an earlier one must not end this one.
        self._interrupt = interrupt = threading.Event()
        return self._batches(after, interrupt)

    def _batches(self, after: Position | None, interrupt: threading.Event) -> Iterator[RowBatch]:
        if after is not None and Path(after.file) not in self.paths:
            raise SourceError(f"cannot resume in {after.file}: it is not among the inputs")
        done = 0 if after is None else self.paths.index(Path(after.file))
        before = sum(size_of(file) or 0 for file in self._files[:done])
        with ArrowProcess() as process:
            for file in self._files[done:]:
                with _readable(file):
                    try:
                        yield from self._file_batches(file, after, before, process, interrupt)
                    except ReadInterruptedError:
                        return
                after = None
                before += size_of(file) or 0

    def _file_batches(
        self,
        file: str,
        after: Position | None,
        before: int,
        process: ArrowProcess,
        interrupt: threading.Event,
    ) -> Iterator[RowBatch]:
        found_any = read_any = False
        for member in members(file, interrupt, self._member):
            found_any = True
            format_ = self._format or self._format_by_name(member)
            if format_ is None:
                continue
            read_any = True
            if after is not None and after.member != member.name:
                continue
            skip = 0 if after is None else after.row
            after = None
            read: Callable[[io.BufferedIOBase, int, ExitStack], Iterator[RowBatch]] = format_.read
            if isinstance(format_, ArrowFormat):
                read = partial(process.read, format_.name)
            with ExitStack() as stack:
                for batch in read(member.open(stack), skip, stack):
                    yield replace(
                        batch,
                        file=member.file,
                        member=member.name,
                        progress=before + member.consumed(),
                        members_before=member.before,
                    )
        if not found_any:
            wanted = "" if self._member is None else f" that fits {self._member!r}"
            raise SourceError(f"the archive has no file{wanted}")
        if not read_any:
            raise SourceError("no format is known for the name of any member", advice=_NAME_IT)
        if after is not None:
            raise SourceError(f"cannot resume in {after.member}: there is no such member")

    def _format_by_name(self, member: Member) -> Format | None:
        name = format_named(member.format_name)
        if member.name is None:
            if name is None:
                raise SourceError("no format is known for its name", advice=_NAME_IT)
            return self._formats[name]
        # A text member is as likely a note about the data as data.
        return None if name is None or name == "lines" else self._formats[name]


_NAME_IT = f"name the format: {', '.join(FORMATS)}"


class RowsSource:
    """Rows that are in memory or made by a generator, each a mapping from name to value.

    Resuming after a position draws the rows before it again and drops them: `rows` must give the
    same rows in the same order. An iterator, such as a generator, can be read once: a transaction
    with a row that Kafka refuses is not repeated without it. While a generator waits, the load
    cannot stop, and its last rows, at most 500, are not sent.
    """

    _clock = staticmethod(time.monotonic)

    def __init__(self, rows: Iterable[Mapping[str, Any]], *, name: str = "rows") -> None:
        self._rows = rows
        self._name = name
        self._is_begun = False

    @property
    def name(self) -> str:
        """See `Source`."""
        return self._name

    @property
    def total_bytes(self) -> int | None:
        """Not known."""
        return None

    def interrupt(self) -> None:
        """See `Source`; no effect: no row waits for input, and another load may read as well."""

    def batches(self, after: Position | None = None) -> Iterator[RowBatch]:
        """See `Source`."""
        if self._is_begun and isinstance(self._rows, Iterator):
            raise SourceError(
                f"cannot read {self._name} again: an iterator gives its rows once",
                advice="load what can be read again, such as a list",
            )
        self._is_begun = True
        first_row = 1 if after is None else after.row + 1
        rows = islice(iter(self._rows), first_row - 1, None)
        while batch := list(self._next_rows(rows)):
            yield RowBatch(self._name, None, first_row, batch, columns=None)
            first_row += len(batch)

    def _next_rows(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield a full batch, or what has come within a while: a generator may take its time."""
        until = self._clock() + _LONGEST_BATCH_S
        for row in islice(rows, _ROWS_PER_BATCH):
            yield row
            if self._clock() > until:
                return


def size_of(file: str | Path) -> int | None:
    """Return the size of a file; None for what has none, as a pipe, or is not there."""
    return None if str(file) == STDIN or not is_file(file) else Path(file).stat().st_size


@contextmanager
def _readable(file: str) -> Iterator[None]:
    """Turn every failure of a read into one error that names the file."""
    shown = "standard input" if file == STDIN else file
    try:
        yield
    except SourceError as error:
        raise SourceError(f"cannot read {shown}: {error.message}", advice=error.advice) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise SourceError(f"cannot read {shown}: {reason.lower()}") from error
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise SourceError(f"cannot read {shown}: damaged or cut off: {error}") from error
    except MemoryError as error:
        raise SourceError(f"cannot read {shown}: it takes more memory than there is") from error
    except RecursionError as error:
        raise SourceError(f"cannot read {shown}: it is nested too deeply") from error
