"""A JSON file with the progress of a load.

Invariant: the file is always complete: written beside its place, flushed to disk, then renamed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from aioproducer._util.paths import replacing
from aioproducer.loader.errors import StateError
from aioproducer.loader.shared_directories import open_own

_T = TypeVar("_T")
_LONGEST = 32 * 1024 * 1024
"""Bytes: a state has eight for each input before its position."""
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # Windows has none
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write_state(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Replace the file at `path` atomically; raise `StateError`."""
    target = Path(path)
    try:
        with (
            replacing(target) as beside,
            os.fdopen(os.open(beside, _CREATE, 0o600), "w", encoding="utf-8") as file,
        ):
            json.dump(content, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StateError(f"cannot write the state file {target}: {error.strerror}") from error


def read_state(
    path: str | os.PathLike[str], decode: Callable[[Any], _T], *, of: str = "a load"
) -> _T | None:
    """Return the decoded file at `path`, or None if there is none; raise `StateError`.

    `decode` raises `ValueError`, `TypeError` or `KeyError` if the file is not a state of an `of`.
    """
    try:
        return decode(json.loads(_text_of(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"cannot read the state file {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise StateError(
            f"{path} is not a state file of {of}",
            advice="delete it to start over, or name another one",
        ) from error


def _text_of(path: str | os.PathLike[str]) -> str:
    """Return the content of a file, unless it is a pipe, a device or too large for a state.

    Where all users may make files, as in `/tmp`, another user may have made this one, or a link of
    this name: by such a state a load would leave out rows and report success.
    """
    descriptor = open_own(path, _READ, StateError, "state")
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        if status.st_size > _LONGEST:
            raise ValueError("it is too long")
        return file.read(status.st_size).decode("utf-8")
