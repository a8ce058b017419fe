"""Files in a directory where all users may make some, as in `/tmp`.

Another user may have made a file there, or a link of its name, before this process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def others_may_write(directory: Path) -> bool:
    """Return whether all users may make files in a directory (not known on Windows)."""
    return os.name == "posix" and bool(directory.stat().st_mode & stat.S_IWOTH)


def belongs_to_another_user(descriptor: int) -> bool:
    """Return whether another user owns the file that is open."""
    return os.fstat(descriptor).st_uid != os.geteuid()
