"""Addresses of brokers as other clients take them: the port may be left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aioproducer.config.option import plain
from aioproducer.errors import ConfigError

_PORT: Final = 9092


def servers_option(servers: str | Iterable[Any], *, ignores_schemes: bool = False) -> list[str]:
    """Return addresses with their ports, 9092 where there is none; no empty ones.

    With `ignores_schemes`, `PROTOCOL://` is left out; otherwise such an address is refused later.
    """
    if isinstance(servers, str):
        servers = servers.split(",")
    given = [plain(server) for server in servers]
    if None in given:  # such as that of a variable of the environment that is not set
        raise ConfigError(
            f"bootstrap_servers must be addresses, not {given!r}", advice="give host:port"
        )
    addresses = [str(server).strip() for server in given]
    if ignores_schemes:
        addresses = [address.rpartition("://")[2] for address in addresses]
    return [_with_port(address) for address in addresses if address]


def _with_port(address: str) -> str:
    if "://" in address:
        return address
    if address.startswith("["):
        return address if "]:" in address else f"{address}:{_PORT}"
    if address.count(":") > 1:  # IPv6 without brackets has no port
        return f"[{address}]:{_PORT}"
    return address if ":" in address else f"{address}:{_PORT}"
