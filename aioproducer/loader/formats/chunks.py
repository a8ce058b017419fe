"""`Format`, the interface of all formats, and `Chunk`, the rows that it yields."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from aioproducer.loader.errors import SourceError
from aioproducer.loader.rows import BadRow, Dialect, Fields, RowBatch


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one member that follow each other; the fields are those of `RowBatch`."""

    first_row: int
    fields: Sequence[Fields | BadRow]
    columns: tuple[str, ...] | None
    lines: Sequence[bytes] | None = None
    lines_are_json: bool = False
    dialect: Dialect | None = None

    def batch(self, file: str, member: str | None, progress: int = 0) -> RowBatch:
        """Return the rows with where they are from."""
        return RowBatch(
            file,
            member,
            self.first_row,
            self.fields,
            self.columns,
            self.lines,
            self.lines_are_json,
            progress,
            self.dialect,
        )


class Format(Protocol):
    """A way to turn one stream into rows."""

    def read(self, stream: io.BufferedIOBase, skip: int, stack: ExitStack) -> Iterator[Chunk]:
        """Return the rows after the first `skip`; `stack` closes what is opened for them."""
        ...


def imported(module: str, what: str, extra: str) -> Any:
    """Return a module of a package that reading `what` needs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise SourceError(
            f"reading {what} needs {module.partition('.')[0]}, which cannot be imported",
            advice=f"install it: pip install 'aioproducer[{extra}]'",
        ) from error


def too_few_rows(seen: int, skip: int) -> SourceError:
    """Return the error of an input that ends before the position to resume from."""
    return SourceError(f"it has {seen:,} rows where at least {skip:,} were read before")
