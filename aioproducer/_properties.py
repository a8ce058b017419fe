"""Reading Kafka's two text forms: properties files and `host:port` lists.

Owns: the syntax of `java.util.Properties` (comments, `=`, `:` or blanks as separators, continued
lines, escapes) in UTF-8, and of bootstrap servers. Must not know: which options exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from aioproducer.errors import ConfigError

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_ENTRY: Final = re.compile(r"((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_SERVER: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[\w.-]+)):(?P<port>\d{1,5})"
)


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties file; of a key given twice the last counts, as in Java."""
    entries = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        if match:
            entries[_unescaped(match[1])] = _unescaped(match[2])
    return entries


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines, continued ones joined."""
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ConfigError(f"malformed \\uxxxx escape in {text!r}")
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    plain = _ESCAPE.sub(character, text)
    # Java's characters are UTF-16 units: two escapes may make up one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_servers(servers: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of bootstrap servers.

    Raises:
        ConfigError: one is not `host:port`, or stands there twice.
    """
    addresses: dict[tuple[str, int], None] = {}
    for server in servers:
        address = _parse_server(server)
        if address in addresses:
            raise ConfigError(f"bootstrap_servers names {server!r} twice")
        addresses[address] = None
    if not addresses:
        raise ConfigError("bootstrap_servers is empty; give at least one host:port")
    return tuple(addresses)


def _parse_server(server: str) -> tuple[str, int]:
    if "://" in server:
        raise ConfigError(
            f"bootstrap_servers: {server!r} has a scheme; give host:port, and the kind of "
            "connection in security_protocol"
        )
    match = _SERVER.fullmatch(server)
    if match is None:
        raise ConfigError(
            f"bootstrap_servers: {server!r} is not host:port (IPv6 addresses stand in brackets)"
        )
    port = int(match["port"])
    if not 0 < port < 65_536:
        raise ConfigError(f"bootstrap_servers: {server!r} has a port outside 1-65535")
    return match["v6"] or match["host"].lower(), port
