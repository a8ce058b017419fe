"""Ports for servers that come and go."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, closing
from pathlib import Path

from aioproducer.testing.kafka.errors import ClusterError

_LOWEST = 20_000
_ATTEMPTS = 1000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different ports on which nothing listens now.

    They are below the ports that the system gives to outgoing connections. A client connects to a
    broker's port while the broker is down; if it could be an outgoing port, the system would at
    times choose it for that very connection and connect the client to itself.

    Raises:
        ClusterError: No free ports were found.
    """
    highest = _lowest_ephemeral_port() - 1
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                return ports
            candidate = random.randint(min(_LOWEST, highest - count), highest)
            probe = held.enter_context(closing(socket.socket()))
            try:
                probe.bind((host, candidate))
            except OSError:
                continue
            ports.append(candidate)
    raise ClusterError(f"no {count} free ports below {highest} on {host}")


def _lowest_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
