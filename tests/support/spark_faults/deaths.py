"""When a query is killed, and how; known to those who have no PySpark as well."""

from __future__ import annotations

import os
import signal
from pathlib import Path

MOMENTS = ("before decision", "decided", "half ended", "ended")
"""Of a commit, in order."""


def kill_session(session: int) -> None:
    """SIGKILL for all processes of a session, this one as the last; Spark's have many groups."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(int(status.parent.name))
    for each in sorted(found, key=lambda process: process == os.getpid()):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass
