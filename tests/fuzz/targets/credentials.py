"""Texts that hold secrets: PEM, JAAS lines, proxy URLs, placeholders, addresses of a registry.

Input: the text in UTF-8. A mark is put into it, which no error may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from support.frames import shown_by

from aioproducer.cli.options import _property
from aioproducer.config.jaas import parse_jaas
from aioproducer.config.permissions import Permissions
from aioproducer.config.properties import parse_properties
from aioproducer.config.providers import with_values
from aioproducer.config.proxy_url import parse_proxy_url
from aioproducer.errors import ConfigError
from aioproducer.net.security.pem import parse_pem
from aioproducer.serializers.registry.http import addresses
from fuzz.guard import Target, require

MARK = "Hunter2Hunter2Hunter2/4711"
"""In place of `@@`; it looks like no name of an option."""


def run(data: bytes) -> None:
    text = data.decode("utf-8", "replace").replace("@@", MARK)
    parsers: list[Callable[[], object]] = [
        lambda: parse_pem(text, MARK),
        lambda: parse_jaas(text, "PLAIN"),
        lambda: parse_proxy_url(text),
        lambda: parse_properties(text),
        lambda: addresses(text, None),
        lambda: with_values({"config.providers": "env,file,dir", "x": text}, Permissions(())),
    ]
    for parse in parsers:
        try:
            parse()
        except ConfigError as error:
            if parse is not parsers[-1]:
                require(MARK not in shown_by(error), "it shows its secret: {}", error)
            require(str(error).isprintable(), "not printable: {!r}", str(error))
    if "=" not in text:
        try:
            _property(text)
        except ConfigError as error:
            require(MARK not in str(error), "it shows its secret: {}", error)


def seeds() -> Iterator[bytes]:
    yield b"-----BEGIN PRIVATE KEY-----\n@@\n-----END PRIVATE KEY-----\n"
    yield b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE"
    yield b'a.PlainLoginModule required username="me" password="@@";'
    yield b"PlainLoginModule required username=me password='@@' x=@@;"
    yield b"socks5://me:@@@proxy:1080"
    yield b"http://me:@@@registry:8081,https://other/path"
    yield rb"sasl.password=@@\u12"
    yield b"${env:@@} ${file:/x:@@} ${dir:/x:@@}"
    yield b"sasl.password:@@"


TARGET = Target("credentials", run, seeds, bytes_per_byte=3000, extra_bytes=1 << 20)
