"""Listener interface for connection events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aioproducer.errors import KafkaError
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.net.connection import Connection


class ConnectionObserver(Protocol):
    """Listener of connection events; the methods must not raise."""

    def response_received(
        self, request_type: type[Message], version: int, response: Message
    ) -> None:
        """Handle a response; its future is about to be done."""

    def capacity_freed(self) -> None:
        """Handle free capacity: fewer requests in flight, or an empty write buffer.

        Also called after `response_received`, once all responses received with it were handled.
        """

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        """Handle the end of a connection with the number of failed requests."""
