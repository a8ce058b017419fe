"""The dead-letter file: one JSON object per row that did not get into Kafka.

Each line is `{"file", "member", "row", "stage", "reason", "raw"}`: `stage` is `row` for a row that
could not become a record and `delivery` for a record Kafka did not take; text that is not valid
UTF-8 is in `raw_base64` instead of `raw`.

Invariants
- Rows are in input order. `size` is the length of what was written, so that a resumed load
  cuts off what belongs to rows it will read again.
- `sync()` returns when everything written is on disk; the state file is written only after it.
- One load at a time has the file open (except on Windows): another one would cut off its rows.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from aioproducer._util.printable import printable
from aioproducer.loader.errors import DeadLetterError
from aioproducer.loader.rows import Position
from aioproducer.loader.shared_directories import open_own

Stage = Literal["row", "delivery"]
_LONGEST_LINE = 64 * 1024 * 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class DeadLetterFile:
    """Writes rejected rows to `path`.

    An existing dead-letter file is cut to the first `keep_bytes`, those of a resumed run; None
    appends to it. Any other file with content is refused, and so is one that is not of a resumed
    run if its rows are of a file for which `is_input` returns False.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep_bytes: int | None = 0,
        is_input: Callable[[str], bool] | None = None,
    ) -> None:
        self.path: Path = Path(path)
        with writing(self.path):
            self._file = os.fdopen(_opened(self.path), "ab")
            status = os.fstat(self._file.fileno())
            self.can_go_back: bool = stat.S_ISREG(status.st_mode)
            """Whether written rows can be removed again; not from a pipe."""
            if self.can_go_back and self._file.tell():
                self._refuse_others(
                    _first_entry(self.path, status), None if keep_bytes else is_input
                )
            self.size: int = self._file.tell() if self.can_go_back else 0
            if keep_bytes is not None and keep_bytes < self.size:
                self.go_back(keep_bytes)
            if self.size and not _ends_with_line(self.path):  # a load was killed while it wrote
                self.size += self._file.write(b"\n")

    def _refuse_others(
        self, entry: Mapping[str, object] | None, is_input: Callable[[str], bool] | None
    ) -> None:
        """Close and refuse a file that is no dead-letter file, or that of other inputs."""
        if entry is None:
            reason = "exists and is no dead-letter file"
        elif is_input is not None and not is_input(str(entry["file"])):
            reason = f"has rows of {printable(str(entry['file']))}, which is no input of this load"
        else:
            return
        self._file.close()
        raise DeadLetterError(
            f"{self.path} {reason}; it was left as it is",
            advice="name another file for the dead letters",
        )

    def write(self, position: Position, stage: Stage, reason: str, raw: bytes) -> None:
        """Append one rejected row."""
        line = line_of(position, stage, reason, raw)
        with writing(self.path):
            self._file.write(line)
        self.size += len(line)

    def go_back(self, size: int) -> None:
        """Remove what was written after so many bytes."""
        with writing(self.path):
            self._file.flush()
            self._file.truncate(size)
        self.size = size

    def sync(self) -> None:
        """Put everything written on disk."""
        with writing(self.path):
            self._file.flush()
            if self.can_go_back:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write what is still in memory and close the file."""
        with writing(self.path):
            self._file.close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise a `DeadLetterError` for an `OSError` of the block, which writes a dead-letter file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.ENXIO:
            reason = "it is a pipe that no process reads"
        elif isinstance(error, BlockingIOError):
            reason = "another load is writing it"
        raise DeadLetterError(f"cannot write the dead-letter file {path}: {reason}") from error


def line_of(
    position: Position, stage: Stage, reason: str, raw: bytes | None, **more: object
) -> bytes:
    """Return the line of a rejected row, with `more` fields after the usual ones."""
    entry = {
        **position._asdict(),
        "stage": stage,
        "reason": reason,
        **text_fields("raw", raw),
        **more,
    }
    return json.dumps(entry).encode("ascii") + b"\n"


def text_fields(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return bytes as a field of this name, or, if they are not UTF-8, `<name>_base64`."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode("ascii")}


def _opened(path: Path) -> int:
    """Open the file, or create it; return its descriptor.

    Rows may be confidential: a new file is for its owner alone. Where all users may make files, as
    in `/tmp`, another user may have made this one, or a link of this name.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its reader, and the loop with it.
        flags = _APPEND & ~os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        # A named pipe of another user is refused as well: its reader would get the rows.
        descriptor = open_own(path, flags, DeadLetterError, "dead letters")
    except FileNotFoundError:
        # O_EXCL: a link to a file that is not there makes none.
        descriptor = os.open(path, _APPEND | os.O_EXCL, 0o600)
    try:
        _lock(descriptor)
    except BlockingIOError:
        os.close(descriptor)
        raise
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor


def _lock(descriptor: int) -> None:
    """Lock a file until it is closed; raise `BlockingIOError` if another load has it open."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return  # loads can share a pipe or a device
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass


def _first_entry(path: Path, opened: os.stat_result) -> Mapping[str, object] | None:
    """Return the first line of a dead-letter file; None if it is something else."""
    with path.open("rb") as file:
        if not os.path.samestat(os.fstat(file.fileno()), opened):
            return None  # another file took its name meanwhile
        try:
            entry = json.loads(file.readline(_LONGEST_LINE))
        except (ValueError, RecursionError):
            return None
    known = isinstance(entry, dict) and {*Position._fields, "stage", "reason"} <= entry.keys()
    return entry if known else None


def _ends_with_line(path: Path) -> bool:
    """Return whether the last byte of a file ends a line."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
