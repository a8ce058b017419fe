"""A session is renewed while requests are in flight (KIP-368), on virtual time.

The broker checks the order of what arrives: a request between the first and the last message of
an authentication ends the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.hostile import SANE_RANGES, Peer

from aioproducer.errors import NodeDisconnectedError, SaslAuthenticationFailedError
from aioproducer.errors.advice import ADVICE
from aioproducer.net.client import NodeNotReady
from aioproducer.net.context import NodeState
from aioproducer.net.security.sasl import fixed
from aioproducer.net.security.sasl.plain import Plain
from aioproducer.testing.framing import REQUEST_TYPES, RequestHeader
from aioproducer.types import SaslCredentials
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeResponse
from net.harness import Harness, harness
from net.virtual import MemoryDialer, virtual_time

LIFETIME_S = 100.0
RANGES = {**SANE_RANGES, ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


class Broker:
    """Answers authentication at once and other requests after `pause_s`, in order."""

    def __init__(self, lifetime_ms: int = round(LIFETIME_S * 1000)) -> None:
        self.lifetime_ms = lifetime_ms
        self.arrived: list[str] = []
        self.pause_s = 0.0
        self.sasl_pause_s = 0.0
        self.refuses = False
        self.peer: Peer | None = None

    async def __call__(self, peer: Peer) -> None:
        self.peer = peer
        await peer.handshake(RANGES)
        while True:
            header = await peer.request()
            self.arrived.append(ApiKey(header.api_key).name)
            await self._answer(peer, header)

    async def _answer(self, peer: Peer, header: RequestHeader) -> None:
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            peer.respond(header, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        elif header.api_key == ApiKey.SASL_AUTHENTICATE:
            await asyncio.sleep(self.sasl_pause_s)
            answer = SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
            if self.refuses:
                answer = SaslAuthenticateResponse(error_code=58, error_message="no longer")
            peer.respond(header, answer)
        else:
            await asyncio.sleep(self.pause_s)
            peer.respond(header, REQUEST_TYPES[ApiKey(header.api_key)].RESPONSE())


@asynccontextmanager
async def connected(
    broker: Broker | None = None, **settings: Any
) -> AsyncIterator[tuple[Broker, Harness]]:
    broker = broker or Broker()
    sasl = Plain(fixed(SaslCredentials("me", "password")))
    async with harness(MemoryDialer({"broker": broker}), sasl=sasl, **settings) as it:
        assert await it.connect() is None
        assert broker.arrived == ["SASL_HANDSHAKE", "SASL_AUTHENTICATE"]
        broker.arrived.clear()
        yield broker, it


@virtual_time
async def test_nothing_is_written_between_the_messages_of_a_renewal() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.96 * LIFETIME_S)
        broker.sasl_pause_s = 5.0
        assert not it.client.is_ready(1, it.now)
        it.client.maybe_connect(1, it.now)
        await asyncio.sleep(1)
        assert it.client.state(1) is NodeState.HANDSHAKING
        assert not it.client.is_ready(1, it.now)
        try:
            it.send()
        except NodeNotReady:
            pass
        else:
            raise AssertionError("a request went out during the renewal")
        await it.wait_for_state(NodeState.READY)
        await it.ask()
        assert broker.arrived == ["SASL_HANDSHAKE", "SASL_AUTHENTICATE", "METADATA"]
        counted = it.client.io_stats
        assert (counted.authentications, counted.endless_authentications) == (1, 0)
        assert (counted.renewals, counted.failed_renewals) == (1, 0)
        assert counted.renewal_time == counted.renewal_time_max == pytest.approx(5)


@virtual_time
async def test_a_renewal_waits_for_the_end_of_a_throttle_time() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.96 * LIFETIME_S)
        it.client.link(1).throttle(it.now + 2)
        it.client.maybe_connect(1, it.now)
        assert it.client.ready_at(1, it.now) == it.now + 2
        await asyncio.sleep(1.9)
        assert broker.arrived == []
        await asyncio.sleep(0.1)
        it.client.maybe_connect(1, it.now)
        await it.wait_for_state(NodeState.READY)
        assert broker.arrived == ["SASL_HANDSHAKE", "SASL_AUTHENTICATE"]


@virtual_time
async def test_answers_to_earlier_requests_come_during_a_renewal() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.84 * LIFETIME_S)
        broker.pause_s = 9.0
        earlier = [it.send() for _ in range(3)]
        await asyncio.sleep(0.12 * LIFETIME_S)
        assert [answer.done() for answer in earlier] == [True, False, False]
        it.client.maybe_connect(1, it.now)
        await it.wait_for_state(NodeState.READY)
        assert all(answer.done() and answer.exception() is None for answer in earlier)
        assert broker.arrived == ["METADATA"] * 3 + ["SASL_HANDSHAKE", "SASL_AUTHENTICATE"]
        broker.pause_s = 0.0
        assert await it.ask() is not None


@virtual_time
async def test_a_session_is_renewed_between_85_and_95_percent_of_its_life() -> None:
    async with connected() as (_, it):
        await asyncio.sleep(0.8505 * LIFETIME_S)
        assert it.client.is_ready(1, it.now), "it is never the first moment for this seed"
        await asyncio.sleep(0.0995 * LIFETIME_S)
        assert not it.client.is_ready(1, it.now)


@pytest.mark.parametrize(("lifetime_ms", "is_endless"), [(-1, True), (0, True), (1, False)])
def test_a_session_without_a_lifetime_is_never_renewed(lifetime_ms: int, is_endless: bool) -> None:
    @virtual_time
    async def run() -> None:
        async with connected(Broker(lifetime_ms)) as (_, it):
            await asyncio.sleep(0.01)
            assert it.client.is_ready(1, it.now) is is_endless
            assert it.client.io_stats.endless_authentications == is_endless

    run()


@virtual_time
async def test_a_session_without_a_lifetime_is_not_renewed_when_an_earlier_one_ended() -> None:
    async with connected() as (broker, it):
        broker.lifetime_ms = 0
        await asyncio.sleep(LIFETIME_S)
        assert await it.connect() is None
        assert it.client.is_ready(1, it.now)


@virtual_time
async def test_an_unused_connection_is_not_renewed_and_may_idle_out() -> None:
    async with connected(connections_max_idle_s=250.0) as (broker, it):
        await asyncio.sleep(240)
        assert broker.arrived == []
        assert it.client.state(1) is NodeState.READY
        await asyncio.sleep(20)
        assert it.client.state(1) is NodeState.DISCONNECTED


@virtual_time
async def test_a_connection_that_waits_for_credentials_is_not_idle() -> None:
    async def give() -> SaslCredentials:
        await asyncio.sleep(8)
        return SaslCredentials("me", "password")

    dialer = MemoryDialer({"broker": Broker()})
    async with harness(dialer, sasl=Plain(give), connections_max_idle_s=5.0) as it:
        assert await it.connect() is None
        while it.client.is_ready(1, it.now):
            await it.ask()
            await asyncio.sleep(4)
        assert await it.connect() is None
        assert len(dialer.dials) == 1
        await asyncio.sleep(4.9)
        assert it.client.state(1) is NodeState.READY
        await asyncio.sleep(0.2)
        assert it.client.state(1) is NodeState.DISCONNECTED


@virtual_time
async def test_a_connection_that_proved_useful_is_so_after_a_renewal() -> None:
    async with connected() as (broker, it):
        await it.ask()
        await asyncio.sleep(0.96 * LIFETIME_S)
        assert await it.connect() is None
        await asyncio.sleep(0.5 * LIFETIME_S)
        assert broker.peer is not None
        broker.peer.writer.close()
        await it.wait_for_state(NodeState.BACKING_OFF)
        assert it.client.has_no_live_connections()


@virtual_time
async def test_a_broker_that_answered_before_a_renewal_only_is_not_suspected_after_it() -> None:
    async with connected() as (broker, it):
        await it.ask()
        await asyncio.sleep(0.96 * LIFETIME_S)
        assert await it.connect() is None
        broker.pause_s = 2.0
        lost = it.send()
        await asyncio.sleep(1)
        assert broker.peer is not None
        broker.peer.writer.close()
        await asyncio.sleep(2)
        assert isinstance(lost.exception(), NodeDisconnectedError)
        error = it.client.connection_failures(1)
        assert error is not None
        assert error.advice == ADVICE["broker-away"]


@virtual_time
async def test_a_refused_renewal_ends_the_connection_and_backs_off() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.96 * LIFETIME_S)
        broker.refuses = True
        error = await it.connect()
        assert type(error) is SaslAuthenticationFailedError
        counted = it.client.io_stats
        assert (counted.failed_renewals, counted.failed_authentications) == (1, 0)
        assert error.message == "no longer (PLAIN, the principal of this connection)"
        assert it.client.state(1) is NodeState.BACKING_OFF
        assert not it.client.any_connected()


@virtual_time
async def test_requests_in_flight_at_a_refused_renewal_may_be_tried_again() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.84 * LIFETIME_S)
        broker.pause_s, broker.refuses = 12.0, True
        earlier = [it.send() for _ in range(2)]
        await asyncio.sleep(0.12 * LIFETIME_S)
        it.client.maybe_connect(1, it.now)
        await asyncio.wait(earlier)
        assert earlier[0].exception() is None
        assert earlier[1].exception() is None
        await it.wait_for_state(NodeState.BACKING_OFF, NodeState.DISCONNECTED)


@virtual_time
async def test_a_connection_lost_during_a_renewal_fails_as_any_other() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.84 * LIFETIME_S)
        broker.pause_s = 1000.0
        earlier = it.send()
        await asyncio.sleep(0.12 * LIFETIME_S)
        it.client.maybe_connect(1, it.now)
        await asyncio.wait([earlier])
        assert isinstance(earlier.exception(), NodeDisconnectedError)
        assert earlier.exception().retriable


async def lose_during_renewal(broker: Broker, it: Harness) -> None:
    await asyncio.sleep(0.96 * LIFETIME_S)
    broker.sasl_pause_s = 1000.0
    it.client.maybe_connect(1, it.now)
    await asyncio.sleep(1)
    assert broker.peer is not None
    broker.peer.writer.close()
    broker.sasl_pause_s = 0.0
    await it.wait_for_state(NodeState.BACKING_OFF)


@virtual_time
async def test_a_broker_is_not_suspected_of_wrong_credentials_when_lost_during_a_renewal() -> None:
    async with connected() as (broker, it):
        await lose_during_renewal(broker, it)
        error = it.client.connection_failures(1)
        assert error is not None
        assert "during authentication" not in error.message
        assert it.client.has_no_live_connections()


@virtual_time
async def test_the_backoff_does_not_grow_with_each_session_that_ends_in_its_renewal() -> None:
    async with connected(reconnect_backoff_s=1.0, reconnect_backoff_max_s=60.0) as (broker, it):
        for _ in range(6):
            await it.ask()
            await lose_during_renewal(broker, it)
            assert it.client.ready_at(1, it.now) - it.now <= 1.2
            await asyncio.sleep(1.2)
            assert await it.connect() is None


@virtual_time
async def test_nothing_is_left_of_a_renewal_that_is_given_up() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.96 * LIFETIME_S)
        broker.sasl_pause_s = 50.0
        it.client.maybe_connect(1, it.now)
        await asyncio.sleep(1)
        it.lose_connection("not needed")
        await asyncio.sleep(1)
        broker.sasl_pause_s = 0.0
        assert await it.connect() is None
        assert await it.ask() is not None


@virtual_time
async def test_a_broker_that_leaves_the_cluster_during_a_renewal_is_closed_after_it() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.8 * LIFETIME_S)
        broker.pause_s = 20.0
        earlier = it.send()
        await asyncio.sleep(0.16 * LIFETIME_S)
        it.client.maybe_connect(1, it.now)
        await asyncio.sleep(1)
        it.client.set_nodes({})
        await earlier


@virtual_time
async def test_a_broker_that_left_the_cluster_is_removed_after_a_renewal_that_failed() -> None:
    async with connected() as (broker, it):
        await asyncio.sleep(0.84 * LIFETIME_S)
        broker.pause_s = 20.0
        earlier = it.send()
        await asyncio.sleep(0.12 * LIFETIME_S)
        it.client.maybe_connect(1, it.now)
        it.client.set_nodes({})
        assert broker.peer is not None
        broker.peer.writer.close()
        await asyncio.wait([earlier])
        assert isinstance(earlier.exception(), NodeDisconnectedError)
        await asyncio.sleep(1)
        it.client.set_nodes({})
        assert it.client._retired == {}
