"""Checks of names that may not be file names, and replacement of files.

`pathlib` raises where a name is too long for the file system, and the error shows the name: what
was given may have been meant for another option, and be a secret. `os.path` returns False.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

exists = os.path.exists
is_file = os.path.isfile
is_folder = os.path.isdir


def version_of(name: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Return what changes with the content of a file; None of one that cannot be found."""
    try:
        found = Path(name).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def real_path(name: str) -> str:
    """Return the path of a file without links; of what names none, the name."""
    try:
        return os.path.realpath(name)
    except (OSError, ValueError):  # the working directory is gone, or a zero byte
        return name


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the block a new file's path, which takes the place of `path` after it; raise OSError.

    The name is new each time: another process or thread may be writing as well.
    """
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield beside
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


def path_in_url(url: str) -> str:
    """Return the path of a file's URL; `file:///C:/a` is `C:\\a` on Windows."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    return url2pathname(urlsplit(url).path)
