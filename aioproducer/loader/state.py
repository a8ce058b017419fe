"""The state file of a load: the position up to which all is settled, where a later run resumes.

Invariant: every row up to `position` is acknowledged by Kafka or is in the dead-letter file. Rows
after it may have been acknowledged too: a resumed load sends them again (at least once).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from aioproducer.loader.rows import Position
from aioproducer.loader.state_file import read_state, write_state

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Settled:
    """Counts of the rows up to a position, by outcome."""

    acknowledged: int = 0
    rejected: int = 0
    failed: int = 0
    dead_letter_bytes: int = 0

    @property
    def rows(self) -> int:
        """The total."""
        return self.acknowledged + self.rejected + self.failed


@dataclass(frozen=True, slots=True)
class LoadState:
    """The settled part of a load.

    Attributes:
        topic: The destination.
        position: The last row of the settled ones; None before the first.
        complete: The input was read to its end and all of it is settled.
        settled: The counts up to `position`, over all runs.
        input_bytes: The size of the input that was read to its end, if it has one.
        files_before: Checksums of the names and sizes of the inputs before the position's file,
            eight digits each; in transactions a checksum of all these. None in states of earlier
            versions.
        row_checksum: A checksum of the row at `position`, and of the archive's members before its
            own; None for rows that are not of files, and in states of earlier versions.
    """

    topic: str
    position: Position | None = None
    complete: bool = False
    settled: Settled = field(default_factory=Settled)
    input_bytes: int | None = None
    files_before: str | None = None
    row_checksum: str | None = None

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file at `path` atomically; raise `StateError`."""
        write_state(path, self.as_dict())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LoadState | None:
        """Return the state at `path`, None where there is no file; raise `StateError`."""
        return read_state(path, cls.from_dict)

    def as_dict(self) -> dict[str, Any]:
        """Return its attributes for JSON."""
        position = None if self.position is None else self.position._asdict()
        return {"version": _VERSION, **asdict(self), "position": position}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LoadState:
        """Return the state from `as_dict`; raise ValueError, TypeError or KeyError for others."""
        if content["version"] != _VERSION:
            raise ValueError("another version")
        position = content["position"]
        input_bytes = content.get("input_bytes")
        for count in (*content["settled"].values(), input_bytes or 0):
            _check_count(count)
        return cls(
            topic=str(content["topic"]),
            position=None if position is None else _position(position),
            complete=bool(content["complete"]),
            settled=Settled(**content["settled"]),
            input_bytes=input_bytes,
            files_before=_text(content.get("files_before")),
            row_checksum=_text(content.get("row_checksum")),
        )


def _text(content: object) -> str | None:
    return content if isinstance(content, str) else None


def _position(content: Mapping[str, Any]) -> Position:
    file, member, row = content["file"], content["member"], content["row"]
    if not isinstance(file, str) or not isinstance(member, str | None):
        raise TypeError("the position names no file")
    _check_count(row)
    return Position(file, member, row)


def _check_count(count: object) -> None:
    if type(count) is not int or not 0 <= count < 1 << 63:
        raise ValueError("a number of rows is none")
