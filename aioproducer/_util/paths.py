"""Questions about names that may be no file names at all.

`pathlib` raises where a name is too long for the file system, and the error shows the name: what
was given may have been meant for another option, and be a secret.
"""

from __future__ import annotations

import os
from pathlib import Path


def exists(name: str | os.PathLike[str]) -> bool:
    """Return whether there is anything of this name."""
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def is_file(name: str | os.PathLike[str]) -> bool:
    """Return whether this is a regular file, or a link to one."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def is_folder(name: str | os.PathLike[str]) -> bool:
    """Return whether this is a folder, or a link to one."""
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):
        return False
