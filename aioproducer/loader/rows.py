"""Rows, and their positions in the input.

Invariants
- Rows travel in batches, so that nothing is paid per row that can be paid per batch.
- Row numbers count from 1 in each member of each file; a bad row has a number like any other, a
  CSV header and blank lines have none. Reading the same input again gives the same numbers.
- `RowBatch.fields`, and `lines` where there are any, are equally long; a `BadRow` takes the place
  in `fields` of the row that could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from aioproducer._util.printable import printable

Fields = Sequence[Any] | Mapping[str, Any]
"""One row's values: by place where the batch names its columns, else by name."""

LINE_COLUMNS = ("line",)
"""The columns of plain lines."""


class Position(NamedTuple):
    """One row of the input: file, member of an archive (None for a plain file), row number."""

    file: str
    member: str | None
    row: int

    def __str__(self) -> str:
        where = self.file if self.member is None else f"{self.file}:{self.member}"
        return f"{printable(where)} row {self.row}"


class Dialect(NamedTuple):
    """The text of rows of CSV: what separates fields, what quotes them, and what null is."""

    delimiter: str = ","
    quote: str | None = '"'
    null: str | None = None


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read: why, and its text in the input."""

    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows of one member that follow each other.

    Attributes:
        file: The input's name as the caller gave it.
        member: The member of the archive, None for a plain file.
        first_row: The number of the first row.
        fields: One entry per row, a `BadRow` where it could not be read.
        columns: The names of the fields where rows are sequences, None where they are mappings.
        lines: The text of every row where one line is one row.
        lines_are_json: Each line is the row's JSON already.
        progress: Bytes of the whole input consumed so far, to compare with `Source.total_bytes`.
        dialect: Of CSV, what joins fields to a row's text; None for other formats.
        members_before: A checksum of the archive's members before this one.
    """

    file: str
    member: str | None
    first_row: int
    fields: Sequence[Fields | BadRow]
    columns: tuple[str, ...] | None
    lines: Sequence[bytes] | None = None
    lines_are_json: bool = False
    progress: int = 0
    dialect: Dialect | None = None
    members_before: int = 0

    def position(self, index: int) -> Position:
        """Return the position of row `index` of this batch in the input."""
        return Position(self.file, self.member, self.first_row + index)


class Source(Protocol):
    """A source of rows. `batches` runs in its own thread, off the event loop."""

    @property
    def name(self) -> str:
        """The name of this input for people."""
        ...

    @property
    def total_bytes(self) -> int | None:
        """The size of the whole input, None when it is not known beforehand."""
        ...

    def batches(self, after: Position | None = None) -> Iterator[RowBatch]:
        """Return the rows after `after`, or all of them; raise `SourceError`."""
        ...

    def interrupt(self) -> None:
        """End a read that waits for input, from any thread; the iterator then ends normally."""
        ...
