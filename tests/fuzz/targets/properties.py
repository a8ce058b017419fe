"""Configuration as text: properties files, server lists, and the values of options.

Input: the text of a properties file in UTF-8. Unknown options are left out, since finding the
nearest known name takes its time, and those that name a class: reading one imports what it names.
"""

from __future__ import annotations

from collections.abc import Iterator

from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.config.names import VERDICTS
from aioproducer.config.option import Kind
from aioproducer.config.properties import parse_properties, parse_servers
from aioproducer.config.verdicts import Alias
from aioproducer.errors import ConfigError
from fuzz.guard import Target, require

_CLASSES = {row.name for row in OPTIONS.values() if row.kind is Kind.OBJECT}
_NAMES_OF_CLASSES = {
    *_CLASSES,
    *(OPTIONS[name].kafka_name for name in _CLASSES),
    *(
        name
        for name, verdict in VERDICTS.items()
        if isinstance(verdict, Alias) and verdict.option in _CLASSES
    ),
}
_KNOWN = {*OPTIONS, *VERDICTS, *(row.kafka_name for row in OPTIONS.values())} - _NAMES_OF_CLASSES
_ESCAPED = str.maketrans({each: f"\\{each}" for each in "\\:=#! \t\f"} | {"\n": "\\n", "\r": "\\r"})


def run(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        entries = parse_properties(text)
    except ConfigError:
        return
    written = "\n".join(
        f"{key.translate(_ESCAPED)}={value.translate(_ESCAPED)}" for key, value in entries.items()
    )
    again = parse_properties(written)
    require(again == entries, "{} came back as {}", entries, again)
    for value in entries.values():
        try:
            servers = parse_servers(value.split(","))
        except ConfigError:
            continue
        require(all(0 < port < 65536 for _, port in servers), "{} came of {!r}", servers, value)
    _configure({key: value for key, value in entries.items() if key in _KNOWN})


def _configure(properties: dict[str, str]) -> None:
    try:
        config = ProducerConfig.from_properties(properties)
    except ConfigError:
        return
    require(repr(config.replace()) == repr(config), "a copy of a configuration differs")


def seeds() -> Iterator[bytes]:
    yield b"bootstrap.servers=a:9092,[::1]:9093\nlinger.ms: 5\nacks all\n"
    yield "# remark\n! another\n\n  client.id = gr\\u00f6\\\n   \u00dfer\\ \\t\n".encode()
    yield b"a\\:b\\=c\\\\ = d\\\r\n  e\rf\\ud83d\\ude00=\\ud83d\n=only\nempty\n"
    yield b"broken=\\u12\n"
    for row in OPTIONS.values():
        if row.kind is not Kind.OBJECT:
            for value in ("", "1", "-1", "1.5", "true", "none", "gzip", "all"):
                yield f"{row.kafka_name}={value}\n".encode()


TARGET = Target("properties", run, seeds, bytes_per_byte=500, extra_bytes=1024 * 1024)
