"""Processes without the modules and names of POSIX, as on Windows."""

from __future__ import annotations

import subprocess
import sys

from support.children import environment

_WITHOUT_POSIX = """
import asyncio, logging, multiprocessing, os, random, select, signal, socket, sys, threading
MISSING = {
    os: "fork register_at_fork memfd_create O_NONBLOCK O_CLOEXEC O_NOFOLLOW O_DIRECTORY geteuid"
    " killpg",
    select: "poll epoll",
    signal: "SIGHUP SIGKILL SIGSTOP SIGCONT",
    socket: "send_fds recv_fds",
}
for module, names in MISSING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
"""


def output_without_posix(program: str, *arguments: str) -> str:
    """Return what a program prints; it must end without a message on standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT_POSIX + program, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stderr == ""
    return ended.stdout.strip()
