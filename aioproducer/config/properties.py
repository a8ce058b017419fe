"""Reading Kafka's two text forms: `java.util.Properties` in UTF-8, and `host:port` lists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from aioproducer._util.printable import printable
from aioproducer._util.secrets import hides_arguments, shown_name, without_login
from aioproducer.errors import ConfigError

_LONGEST_SHOWN: Final = 200
_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_MALFORMED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_ENTRY: Final = re.compile(r"((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_SERVER: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]{1,5})"
)


@hides_arguments
def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties file; of a key given twice the last counts, as in Java.

    A `ConfigError` names line and key, never a value.
    """
    if text.lstrip()[:1] in ("{", "["):
        raise ConfigError(
            "the file is JSON, or has sections, and is not a properties file",
            advice="write one line name=value for each option",
        )
    entries = {}
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        if match is None:
            continue
        key, value = match[1], match[2]
        for part, shown in ((key, "a key"), (value, f"the value of {shown_name(key)}")):
            if _MALFORMED.search(part):
                raise ConfigError(
                    f"line {number}: {shown} has a malformed \\uXXXX escape",
                    advice="write a backslash as two (\\\\)",
                )
        entries[_unescaped(key)] = _unescaped(value)
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with the number of the first of each; continued ones joined, no comments."""
    pending: list[str] = []
    first = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(_BLANKS)
        if not any(pending):  # also after a line that is a backslash alone, as in Java
            pending, first = [], number
            if not line or line[0] in "#!":
                continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending.append(line[:-1])
            continue
        yield first, "".join((*pending, line))
        pending = []
    if pending:
        yield first, "".join(pending)


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPES.get(escape, escape)

    plain = _ESCAPE.sub(character, text)
    # Java's characters are UTF-16 units: two escapes may make up one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_servers(servers: Collection[str]) -> tuple[tuple[str, int], ...]:
    """Return the hosts and ports of bootstrap servers; of one that is named again, the first."""
    if any("@" in server for server in servers):
        # None is shown: a comma in a password divides it among several servers.
        raise ConfigError(
            f"bootstrap_servers: one of {len(servers)} servers has `@` and is not host:port",
            advice="give user name and password as sasl_username and sasl_password",
        )
    addresses = dict.fromkeys(map(_parse_server, servers))
    if not addresses:
        raise ConfigError("bootstrap_servers is empty; give at least one host:port")
    return tuple(addresses)


def _parse_server(server: str) -> tuple[str, int]:
    if "://" in server:
        raise ConfigError(
            f"bootstrap_servers: {_shown(server)!r} has a scheme; give host:port, and the "
            "kind of connection in security_protocol"
        )
    match = _SERVER.fullmatch(server)
    if match is None:
        raise ConfigError(
            f"bootstrap_servers: {_shown(server)!r} is not host:port", advice=_server_advice(server)
        )
    port = int(match["port"])
    if not 0 < port < 65_536:
        raise ConfigError(
            f"bootstrap_servers: {_shown(server)!r} has a port outside 1-65535",
            advice="give the port of the broker's listener, often 9092 or 9093",
        )
    return match["v6"] or match["host"].lower(), port


def _shown(server: str) -> str:
    return printable(without_login(server), _LONGEST_SHOWN)


def _server_advice(server: str) -> str:
    """Return what to do about text that is not `host:port`."""
    if "$" in server or "{" in server:
        return "this is a placeholder that nothing has replaced: set what it names"
    if '"' in server or "'" in server:
        return "leave out quotes and brackets: text such as a:9092,b:9092, or a list"
    if "#" in server:
        return "put a comment on a separate line"
    if ";" in server or any(character.isspace() for character in server):
        return "separate servers by commas: a:9092,b:9092"
    if server.startswith(("/", ".")):
        return "Kafka has no Unix sockets: give host and port"
    if "/" in server:
        return "leave out the path; ZooKeeper's address is none of a broker's"
    if server.startswith("[") or server.count(":") > 1:
        return "an IPv6 address is in brackets and followed by the port: [::1]:9092"
    if ":" not in server:
        return "add the port of the broker's listener, as in kafka:9092"
    return "give a host name or address and the number of a port: broker.example:9092"
