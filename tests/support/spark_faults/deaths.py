"""The moments at which a query is hit, and ways to kill its processes; needs no PySpark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

MOMENTS = ("before decision", "decided", "half ended", "ended")
"""Of a commit, in order."""
PHASES = ("planning", "writing", *MOMENTS[:3])
"""Of a batch, in order: where it can pause while a broker dies."""
DRIVER_MOMENTS = ("writing", "before decision", "decided", "ended")
"""Of a micro-batch that the driver writes itself, in order."""
PLANNED = "planned"
"""Noted before the plan of each batch, where a query is hit at any moment."""


def kill_session(session: int) -> None:
    """SIGKILL for all processes of a session; Spark's have many groups."""
    for process, status in _processes():
        if int(status[3]) == session:
            _kill(process)


def kill_executor() -> None:
    """SIGKILL for the JVM that has this Spark worker run by its daemon, for both, and this one."""
    daemon = os.getppid()
    parents = {process: int(status[1]) for process, status in _processes()}
    for each in (parents[daemon], daemon, os.getpid()):
        _kill(each)


def executor_process() -> int:
    """Return the process of the JVM that has this Spark worker run by its daemon."""
    daemon = os.getppid()
    return next(int(status[1]) for process, status in _processes() if process == daemon)


def _processes() -> Iterator[tuple[int, list[str]]]:
    """The processes of this machine, each with its status from the state on."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        yield int(status.parent.name), text.rpartition(")")[2].split()


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
