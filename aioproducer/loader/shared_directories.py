"""Files in a directory where all users may make some, as in `/tmp`.

Another user may have made a file there, or a link of its name, before this process.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aioproducer.loader.errors import LoaderError


def open_own(
    path: str | os.PathLike[str], flags: int, kind: type[LoaderError], purpose: str
) -> int:
    """Open an existing file; raise `kind` if another user may have made it for this load.

    That is a file of another user in a directory where all users may create files. A link in such a
    directory is an `OSError`.
    """
    # Windows does not say whether they may.
    others_write = os.name == "posix" and Path(path).parent.stat().st_mode & stat.S_IWOTH
    descriptor = os.open(path, flags | (os.O_NOFOLLOW if others_write else 0))
    if others_write and os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise kind(
            f"{path} belongs to another user, in a directory where all users may write",
            advice=f"name a file in a directory of yours for the {purpose}",
        )
    return descriptor
