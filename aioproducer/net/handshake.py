"""What happens on a fresh connection before it may carry requests.

Owns: the ordered list of steps and what they learn. Must not know: dialing, backoff, who waits.

A step is a coroutine function over a `Session`; it sends requests, stores what it learned in the
session, and raises a typed error to refuse the connection. Steps run in the order of `STEPS`, all
of them within one request timeout:

    negotiate_versions   ApiVersions: which versions the broker speaks; who we are (KIP-35, KIP-511)
                         and whom we mean to talk to (KIP-1242); see `old_brokers` for those that
                         do not know it
    look_for_sasl        SaslHandshake without SASL in the settings, where the last connection was
                         closed at its first request: does the listener want SASL?
    authenticate         SASL, where the settings ask for it (KIP-43, KIP-152)

`authenticate` runs once more before a session ends (KIP-368); see `link`.

Invariants: every request of a step carries the session's deadline; the sequence of versions tried
for ApiVersions strictly falls, so negotiation ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aioproducer.errors import (
    NodeDisconnectedError,
    ProtocolError,
    RebootstrapRequiredError,
    RequestTimeoutError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_from_code,
)
from aioproducer.net.cluster_check import CHECKING_VERSION, ClusterCheck
from aioproducer.net.connection import Connection
from aioproducer.net.legacy_brokers import Age
from aioproducer.net.responses import BareFrame
from aioproducer.net.security.hang_ups import in_negotiation
from aioproducer.net.security.sasl.authentication import NO_MECHANISM, authenticate, wants_sasl
from aioproducer.net.security.tls_failures import refusal
from aioproducer.net.settings import NetSettings
from aioproducer.net.versions import BrokerVersions
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import encode_request
from aioproducer.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.wire.messages.list_offsets import ListOffsetsRequest
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.wire.schema import Message

_UNSUPPORTED_VERSION = 35
_MOST_REMEMBERED = 1_000
"""APIs and features of one broker: Kafka has some dozens, and each connection remembers its own."""


@dataclass(slots=True)
class Session:
    """One connection on its way to being ready."""

    connection: Connection
    settings: NetSettings
    check: ClusterCheck
    host: str
    deadline: float
    age: Age = Age.UNKNOWN
    """What earlier connections have told, and this one tells, of the broker's age."""
    may_want_sasl: bool = False
    """Whether an earlier connection, without SASL, was closed at its first request."""
    had_answered: bool = False
    """Whether earlier connections were of use: then it is no matter of the options."""
    versions: BrokerVersions | None = None
    lifetime_s: float | None = None
    """How long the broker lets us go on without authenticating again (KIP-368)."""

    def version_of(self, kind: type[Message]) -> int:
        """The version in which to send a request of this kind."""
        if self.versions is None:
            raise TypeError("the versions have to be negotiated first")
        return self.versions.choose(kind, 0, None, node_id=self.connection.node_id)

    async def request(self, message: Message, version: int) -> Message:
        """Sends one request of the handshake and waits for its answer."""
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
        if response is None:
            raise TypeError(f"{type(message).__name__} has no answer to wait for")
        return response

    async def exchange_frames(self, token: bytes) -> bytes:
        """Sends a SASL token as a frame of its own, as before KIP-152; returns the one it gets."""
        connection = self.connection
        response = await connection.send(
            [len(token).to_bytes(4, "big") + token],
            correlation_id=connection.next_correlation_id(),
            request_type=BareFrame,
            version=0,
            deadline=self.deadline,
        )
        if not isinstance(response, BareFrame):
            raise TypeError("a token was not answered by a token")
        return response.data


Step = Callable[[Session], Awaitable[None]]


async def negotiate_versions(session: Session) -> None:
    """Learns which versions the broker speaks, or is taken to speak where it cannot say so."""
    ranges = session.settings.old_broker_versions
    if ranges is None or session.settings.sasl is not None:
        await _ask_for_versions(session)
        return
    if session.age is Age.OLD:
        session.versions = BrokerVersions(ranges, node_id=session.connection.node_id)
        return
    suspected, session.age = session.age is Age.SUSPECTED, Age.UNKNOWN
    if not suspected:
        try:
            await _ask_for_versions(session)
        except NodeDisconnectedError:
            session.age = Age.SUSPECTED
            raise
        return
    known_to_all_old = ListOffsetsRequest(replica_id=-1)
    await session.request(known_to_all_old, 0)
    try:
        # A broker answers in order: an answer to the second means that the first gets none.
        await asyncio.gather(_ask_for_versions(session), session.request(known_to_all_old, 0))
    except (NodeDisconnectedError, ProtocolError) as error:
        if not isinstance(error.__cause__, RequestTimeoutError):
            session.age = Age.OLD
        raise


async def _ask_for_versions(session: Session) -> None:
    """Asks which versions the broker speaks, falling back to what it understands (KIP-511).

    A broker that does not know the version answers UNSUPPORTED_VERSION and names the range it knows
    for ApiVersions itself; one that names none (before 2.4) is asked again with version 0.
    """
    check, node_id = session.check, session.connection.node_id
    version = check.version_for(node_id)
    while True:
        request = ApiVersionsRequest()
        if version >= 3:
            request.client_software_name = session.settings.software_name
            request.client_software_version = session.settings.software_version
        if version >= CHECKING_VERSION:
            request.cluster_id, request.node_id = check.cluster_id, node_id
        response = await session.request(request, version)
        if not isinstance(response, ApiVersionsResponse):
            raise TypeError(f"ApiVersions answered by {type(response).__name__}")
        ranges = {
            api.api_key: (api.min_version, api.max_version)
            for api in response.api_keys[:_MOST_REMEMBERED]
        }
        theirs = ranges.get(ApiKey.API_VERSIONS, (0, 0))[1]
        if response.error_code == 0:
            session.versions = BrokerVersions(
                ranges,
                node_id=node_id,
                features={
                    feature.name: feature.max_version_level
                    for feature in response.finalized_features[:_MOST_REMEMBERED]
                },
                features_epoch=response.finalized_features_epoch,
            )
            check.spoken = theirs
            return
        if response.error_code != _UNSUPPORTED_VERSION:
            error = error_from_code(
                response.error_code, "the broker refused ApiVersions", node_id=node_id
            )
            if isinstance(error, RebootstrapRequiredError) and session.settings.rebootstrap:
                check.refusal = error
            raise error
        if version == 0:
            raise UnsupportedVersionError(
                "the broker supports no version of ApiVersions, not even 0", node_id=node_id
            )
        version = theirs if 0 <= theirs < version else 0


async def look_for_sasl(session: Session) -> None:
    """Finds out whether a listener that closes connections without SASL wants SASL.

    Raises:
        AuthenticationError: it does, and names its mechanisms.
    """
    if session.settings.sasl is not None or not session.may_want_sasl:
        return
    try:
        version = session.version_of(SaslHandshakeRequest)
    except UnsupportedVersionError:
        return
    answer = await session.request(SaslHandshakeRequest(mechanism=NO_MECHANISM), version)
    if not isinstance(answer, SaslHandshakeResponse):
        raise TypeError(f"SaslHandshake answered by {type(answer).__name__}")
    if answer.error_code == UnsupportedSaslMechanismError.code and answer.mechanisms:
        raise wants_sasl(answer.mechanisms, session)


STEPS: tuple[Step, ...] = (negotiate_versions, look_for_sasl, authenticate)


async def shake_hands(session: Session) -> BrokerVersions:
    """Runs all steps; returns the versions the broker speaks."""
    try:
        for step in STEPS:
            await step(session)
    except NodeDisconnectedError as error:
        # In TLS 1.3 the broker's refusal of our certificate comes after TLS itself is done.
        refused = refusal(error.__cause__, session.host)
        if refused is None:
            if session.versions is not None or session.had_answered:
                raise
            uses_tls = session.connection.uses_tls
            raise in_negotiation(error, uses_tls=uses_tls) from error.__cause__
        raise refused.with_context(node_id=session.connection.node_id) from error
    if session.versions is None:
        raise TypeError("no step of the handshake negotiated the versions")
    return session.versions
