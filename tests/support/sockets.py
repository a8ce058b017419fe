"""The kernel's list of TCP connections of this machine (Linux).

Owns: reading /proc/net/tcp and tcp6. Not here: which process opened the sockets.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_CLOSE_WAIT = "08"
_LOCAL, _REMOTE, _STATE = 1, 2, 3


def ports_of(bootstrap_servers: str) -> set[int]:
    """The ports of a list of servers."""
    return {int(server.rpartition(":")[2]) for server in bootstrap_servers.split(",")}


def in_close_wait(ports: Collection[int]) -> list[str]:
    """Connections to these ports whose far end has closed and whose near end has not.

    Skips the test where the kernel has no such list.
    """
    if not _TABLES[0].exists():
        pytest.skip("no /proc/net/tcp: this system does not show the states of its connections")
    rows = [
        row.split()
        for table in _TABLES
        if table.exists()
        for row in table.read_text().splitlines()[1:]
    ]
    return [
        f"{row[_LOCAL]} -> {row[_REMOTE]}"
        for row in rows
        if row[_STATE] == _CLOSE_WAIT and int(row[_REMOTE].rpartition(":")[2], 16) in ports
    ]
