"""Services that are no Kafka brokers, told by the first bytes they send.

Owns: how they begin. Must not know: connections, who tries again.
"""

from __future__ import annotations

from typing import Final

from aioproducer.errors import NotKafkaError

# As the size of a frame each of these is far above what is allowed.
_BEGINNINGS: Final = {
    b"HTTP": "an HTTP server",
    b"SSH-": "an SSH server",
    b"220 ": "a mail or FTP server",
    b"220-": "a mail or FTP server",
    b"-ERR": "a Redis or mail server",
    b"AMQP": "an AMQP broker",
    b"ERR ": "a server with a text protocol",
}


def check_kafka(prefix: bytes) -> None:
    """Looks at the first bytes of a frame.

    Raises:
        NotKafkaError: they are those of another service.
    """
    service = _BEGINNINGS.get(bytes(prefix))
    if service is not None:
        raise NotKafkaError(f"{service} answers there, not a Kafka broker")
