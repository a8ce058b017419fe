"""Services that are no Kafka brokers, recognized by the first bytes they send.

Owns: how they begin. Must not know: connections, who tries again.
"""

from __future__ import annotations

import string
from typing import Final

from aioproducer.errors import NotKafkaError

# As the size of a frame each of these is far above what is allowed.
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
_TEXT: Final = frozenset(string.printable.encode("ascii"))

ANSWERS_TO_BE_SURE: Final = 3
"""After so many answers in a row that no broker can have sent, none is expected any more."""


def check_kafka(prefix: bytes) -> None:
    """Looks at the first bytes of a frame.

    Raises:
        NotKafkaError: they are those of another service.
    """
    start = bytes(prefix)
    service = _BEGINNINGS.get(start)
    if service is None and _TEXT.issuperset(start):
        service = "a server with a text protocol"
    if service is None and _is_mysql(start):
        service = "a MySQL or MariaDB server"
    if service is not None:
        raise NotKafkaError(f"{service} answers there, not a Kafka broker")


def _is_mysql(start: bytes) -> bool:
    """Whether this is the header of its greeting: the length in three bytes, then packet 0."""
    return start[1:] == b"\0\0\0" and 0x20 <= start[0] < 0x80
