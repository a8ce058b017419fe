"""`Session`: the state of the handshake on one connection, and its requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.connection import Connection
from aioproducer.net.legacy_brokers import BrokerGeneration
from aioproducer.net.responses import BareFrame
from aioproducer.net.security.sasl import UnansweredToken
from aioproducer.net.settings import NetSettings
from aioproducer.net.versions import BrokerVersions
from aioproducer.wire.framing import encode_request
from aioproducer.wire.schema import Message

_Answer = TypeVar("_Answer", bound=Message)


@dataclass(slots=True)
class Session:
    """State of the handshake on one connection."""

    connection: Connection
    settings: NetSettings
    check: ClusterCheck
    host: str
    deadline: float
    generation: BrokerGeneration = BrokerGeneration.UNKNOWN
    """The age of the broker, learned from earlier connections and this one."""
    may_want_sasl: bool = False
    """True if an earlier connection, without SASL, was closed at its first request."""
    had_answered: bool = False
    """True if a request was answered at this address before: then the options are right."""
    versions: BrokerVersions | None = None
    lifetime_s: float | None = None
    """Seconds until the broker requires authentication again (KIP-368); None for no limit."""

    def version_of(self, kind: type[Message]) -> int:
        """Return the version in which to send a request of this kind."""
        if self.versions is None:
            raise TypeError("the versions have to be negotiated first")
        return self.versions.choose(kind, node_id=self.connection.node_id)

    async def request(self, message: Message, version: int, kind: type[_Answer]) -> _Answer:
        """Send one request of the handshake and return its response, which is of this kind."""
        connection = self.connection
        correlation_id = connection.next_correlation_id()
        frame = encode_request(message, version, correlation_id, self.settings.client_id)
        response = await connection.send(
            [frame],
            correlation_id=correlation_id,
            request_type=type(message),
            version=version,
            deadline=self.deadline,
        )
        if not isinstance(response, kind):
            raise TypeError(f"{type(message).__name__} answered by {type(response).__name__}")
        return response

    async def exchange_frames(self, token: bytes) -> bytes:
        """Send a SASL token as a bare frame, as before KIP-152; return the broker's token.

        It is empty for an `UnansweredToken`, once that is sent.
        """
        connection = self.connection
        is_answered = not isinstance(token, UnansweredToken)
        response = await connection.send(
            [len(token).to_bytes(4, "big") + token],
            correlation_id=connection.next_correlation_id(),
            request_type=BareFrame,
            version=0,
            deadline=self.deadline,
            expect_response=is_answered,
        )
        if not is_answered:
            return b""
        if not isinstance(response, BareFrame):
            raise TypeError("a token was not answered by a token")
        return response.data
