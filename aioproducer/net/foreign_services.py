"""Recognition of services other than Kafka by the first bytes they send."""

from __future__ import annotations

import string
from typing import Final

from aioproducer.errors import NotKafkaError

# As a frame size, each of these is far above the limit.
_BEGINNINGS: Final = {
    b"HTTP": "an HTTP server",
    b"<!DO": "an HTTP server",
    b"<!do": "an HTTP server",
    b"<htm": "an HTTP server",
    b"<HTM": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
    b"220-": "a mail or FTP server",
    b"* OK": "an IMAP server",
    b"+OK ": "a mail server",
    b"-ERR": "a Redis or mail server",
    b"AMQP": "an AMQP broker",
    b"INFO": "a NATS server",
    b"RFB ": "a VNC server",
    b"E\0\0\0": "a PostgreSQL server",
}
_SETTINGS: Final = b"\4\0\0\0\0"
"""Type, flags and stream of HTTP/2's first frame; no request has the correlation id 0."""
_TEXT: Final = frozenset(string.printable.encode("ascii"))

ANSWERS_TO_BE_SURE: Final = 3
"""Number of consecutive invalid responses after which the peer is not taken for a broker."""


def may_be_http2(prefix: bytes) -> bool:
    """Return whether a frame may be the first one of HTTP/2; four more bytes show it."""
    return prefix[:2] == b"\0\0" and prefix[3:] == _SETTINGS[:1]


def check_kafka(prefix: bytes) -> None:
    """Refuse the first bytes of a frame that another service sends."""
    start = bytes(prefix)
    service = _BEGINNINGS.get(start)
    if start[3:] == _SETTINGS:
        service = "an HTTP/2 (gRPC) server"
    if service is None and _TEXT.issuperset(start):
        service = "a server with a text protocol"
    if service is None and start[1:] == b"\0\0\0" and 0x20 <= start[0] < 0x80:
        # The header of its greeting: three bytes length, packet 0.
        service = "a MySQL or MariaDB server"
    if service is not None:
        raise NotKafkaError(f"{service} answers there, not a Kafka broker")
