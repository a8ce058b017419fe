"""Who is told what happens on a connection.

Owns: what a connection asks of them. Must not know: what they make of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.errors import KafkaError
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.net.connection import Connection


class ConnectionObserver(Protocol):
    """Who is told what happens to a connection; the calls must not raise."""

    def response_received(
        self, request_type: type[Message], version: int, response: Message
    ) -> None:
        """A response came; its future is about to be done."""

    def capacity_freed(self) -> None:
        """Requests left the connection, or the write buffer was emptied.

        Called after `response_received`, too, once all that came with that response was handled.
        """

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        """The connection is over, and this many requests have failed with it."""
