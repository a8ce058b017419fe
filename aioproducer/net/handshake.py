"""Handshake: the steps on a new connection before it is ready for requests.

A step is a coroutine function with a `Session`; it sends requests, stores results in the session,
and raises to reject the connection. `STEPS` has their order; all of them share one request timeout.
`authenticate` runs again before a session ends (KIP-368); see `link`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aioproducer.errors import (
    NodeDisconnectedError,
    NotKafkaError,
    ProtocolError,
    RebootstrapRequiredError,
    RequestTimeoutError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_from_code,
)
from aioproducer.net.cluster_check import CHECKING_VERSION
from aioproducer.net.legacy_brokers import BrokerGeneration
from aioproducer.net.security.disconnect_hints import in_negotiation
from aioproducer.net.security.sasl.authentication import NO_MECHANISM, authenticate, wants_sasl
from aioproducer.net.security.tls_failures import late_refusal_of
from aioproducer.net.session import Session
from aioproducer.net.versions import BrokerVersions
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.wire.messages.list_offsets import ListOffsetsRequest
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.wire.schema import Message

_SOFTWARE_NAME = "aioproducer"
_UNSUPPORTED_VERSION = 35
_MOST_REMEMBERED = 1_000
"""Limit of APIs and features per connection; Kafka has some dozens."""


Step = Callable[[Session], Awaitable[None]]


async def negotiate_versions(session: Session) -> None:
    """Set the versions that the broker supports, or is assumed to support (old brokers)."""
    ranges = session.settings.old_broker_versions
    if ranges is None or session.settings.sasl is not None:
        await _ask_for_versions(session)
        return
    if session.generation is BrokerGeneration.OLD:
        session.versions = BrokerVersions(ranges)
        return
    suspected = session.generation is BrokerGeneration.SUSPECTED
    session.generation = BrokerGeneration.UNKNOWN
    if not suspected:
        try:
            await _ask_for_versions(session)
        except NodeDisconnectedError:
            session.generation = BrokerGeneration.SUSPECTED
            raise
        return
    known_to_all_old = ListOffsetsRequest(replica_id=-1)
    await session.request(known_to_all_old, 0, Message)
    try:
        # Brokers answer in order: a response to the second means that the first gets none.
        again = session.request(known_to_all_old, 0, Message)
        await asyncio.gather(_ask_for_versions(session), again)
    except (NodeDisconnectedError, ProtocolError) as error:
        if not isinstance(error.__cause__, RequestTimeoutError):
            session.generation = BrokerGeneration.OLD
        raise


async def _ask_for_versions(session: Session) -> None:
    """Request the broker's versions, with a fallback to older versions of ApiVersions (KIP-511).

    A broker without the version answers UNSUPPORTED_VERSION with its range for ApiVersions. If the
    range is missing (before 2.4), version 0 is sent next.
    """
    check, node_id = session.check, session.connection.node_id
    version = check.version_for(node_id)
    while True:
        # Before version 3 both are left out.
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE_NAME,
            client_software_version=session.settings.software_version,
        )
        if version >= CHECKING_VERSION:
            request.cluster_id, request.node_id = check.cluster_id, node_id
        response = await session.request(request, version, ApiVersionsResponse)
        ranges = {
            api.api_key: (api.min_version, api.max_version)
            for api in response.api_keys[:_MOST_REMEMBERED]
        }
        theirs = ranges[ApiKey.API_VERSIONS][1] if ApiKey.API_VERSIONS in ranges else 0
        if response.error_code == 0:
            _check_broker(ranges)
            session.versions = BrokerVersions(
                ranges,
                features={
                    feature.name: feature.max_version_level
                    for feature in response.finalized_features[:_MOST_REMEMBERED]
                },
                features_epoch=response.finalized_features_epoch,
            )
            check.latest_version = theirs
            return
        if response.error_code != _UNSUPPORTED_VERSION:
            error = error_from_code(
                response.error_code, "the broker refused ApiVersions", node_id=node_id
            )
            if isinstance(error, RebootstrapRequiredError) and session.settings.rebootstrap:
                check.rebootstrap_error = error
            raise error
        if version == 0:
            raise UnsupportedVersionError(
                "the broker supports no version of ApiVersions, not even 0", node_id=node_id
            )
        version = theirs if 0 <= theirs < version else 0


def _check_broker(ranges: Mapping[int, tuple[int, int]]) -> None:
    """Refuse the APIs of a controller (KRaft), which answers ApiVersions as well."""
    if ApiKey.BROKER_REGISTRATION in ranges and ApiKey.METADATA not in ranges:
        raise NotKafkaError(
            "a Kafka controller answers there, not a broker",
            advice="name a broker's listener in bootstrap_servers: those that "
            "controller.listener.names has are for brokers alone",
        )


async def probe_sasl(session: Session) -> None:
    """Raise if a listener that closes connections requires SASL; the error names its mechanisms."""
    if session.settings.sasl is not None or not session.may_want_sasl:
        return
    try:
        version = session.version_of(SaslHandshakeRequest)
    except UnsupportedVersionError:
        return
    request = SaslHandshakeRequest(mechanism=NO_MECHANISM)
    answer = await session.request(request, version, SaslHandshakeResponse)
    if answer.error_code == UnsupportedSaslMechanismError.code and answer.mechanisms:
        raise wants_sasl(answer.mechanisms, session)


STEPS: tuple[Step, ...] = (negotiate_versions, probe_sasl, authenticate)


async def shake_hands(session: Session) -> BrokerVersions:
    """Run all steps; return the versions that the broker supports."""
    try:
        for step in STEPS:
            await step(session)
    except NodeDisconnectedError as error:
        refused = late_refusal_of(error.__cause__, session.host)
        if refused is None:
            if session.versions is not None or session.had_answered:
                raise
            uses_tls = session.connection.uses_tls
            raise in_negotiation(error, uses_tls=uses_tls) from error.__cause__
        raise refused.with_context(node_id=session.connection.node_id) from error
    if session.versions is None:
        raise TypeError("no step of the handshake negotiated the versions")
    return session.versions
