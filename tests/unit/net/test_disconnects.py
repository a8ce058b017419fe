"""Connections that the other side ends while they are idle, on virtual time."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.hostile import (
    SANE_RANGES,
    Behaviour,
    Peer,
    after_handshake,
    closes,
    closes_before_answering,
    obedient,
    silent,
)

from aioproducer.errors import NodeDisconnectedError, ProtocolError
from aioproducer.errors.advice import ADVICE
from aioproducer.net.context import NodeState
from aioproducer.net.legacy_brokers import ranges_of_old_broker
from aioproducer.testing.framing import REQUEST_TYPES
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import MetadataResponse
from net.harness import harness
from net.virtual import MemoryDialer, virtual_time


@virtual_time
async def test_a_close_by_the_broker_after_useful_work_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dialer = MemoryDialer({"broker": after_handshake(obedient)})
    async with harness(dialer) as it:
        await it.connect()
        await it.ask()
        await asyncio.sleep(300)
        with caplog.at_level(logging.INFO, "aioproducer"):
            await dialer.close_connections()
            await it.wait_for_state(NodeState.BACKING_OFF)
        assert it.client.connection_failures(1) is None
        assert it.client.any_ready()
        assert it.client.has_no_live_connections()
        assert caplog.records == []
        it.client.maybe_connect(1, it.now)
        assert it.client.state(1) is NodeState.BACKING_OFF, "no peer is dialed in a tight loop"
        await asyncio.sleep(0.1)
        assert await it.connect() is None
        assert not it.client.has_no_live_connections()


@virtual_time
async def test_a_broker_is_not_suspected_when_the_program_cancels_the_tasks() -> None:
    async with harness(MemoryDialer({"broker": after_handshake(silent)})) as it:
        await it.connect()
        request = it.send()
        (reader,) = [each for each in asyncio.all_tasks() if "-read-" in each.get_name()]
        reader.cancel()
        with pytest.raises(NodeDisconnectedError):
            await request
        error = it.client.connection_failures(1)
        assert error is not None
        assert error.message == "interrupted by CancelledError()"
        assert error.advice == "close the producer before its tasks are cancelled"


@virtual_time
async def test_brokers_that_are_gone_are_found_out_at_the_next_dial() -> None:
    dialer = MemoryDialer({"broker": after_handshake(obedient)})
    async with harness(dialer) as it:
        await it.connect()
        await it.ask()
        await asyncio.sleep(300)
        dialer.servers.clear()
        await dialer.close_connections()
        await it.wait_for_state(NodeState.BACKING_OFF)
        await asyncio.sleep(0.1)
        assert await it.connect() is not None
        assert not it.client.any_ready()
        assert it.client.has_no_live_connections(), "it may come back"


@pytest.mark.parametrize(("asks", "lasts_s"), [(True, 0.5), (False, 300)])
def test_a_connection_that_was_short_or_useless_counts_as_a_failure(
    asks: bool, lasts_s: float
) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"broker": after_handshake(obedient)})
        async with harness(dialer) as it:
            await it.connect()
            if asks:
                await it.ask()
            await asyncio.sleep(lasts_s)
            await dialer.close_connections()
            await it.wait_for_state(NodeState.BACKING_OFF)
            assert isinstance(it.client.connection_failures(1), NodeDisconnectedError)
            assert not it.client.any_ready()
            assert it.client.has_no_live_connections()

    run()


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_connection_that_ends_with_a_request_or_an_invalid_frame_counts_as_a_failure(
    is_asked: bool,
) -> None:
    @virtual_time
    async def run() -> None:
        async def answers_once(peer: Peer) -> None:
            peer.respond(await peer.expect(ApiKey.METADATA), MetadataResponse())
            await asyncio.sleep(300)
            if is_asked:
                await peer.request()
            else:
                peer.raw(b"\0\0\0\x08" + bytes(8))

        async with harness(MemoryDialer({"broker": after_handshake(answers_once)})) as it:
            await it.connect()
            await it.ask()
            if is_asked:
                with pytest.raises(NodeDisconnectedError):
                    await it.ask(timeout_s=600)
            await it.wait_for_state(NodeState.BACKING_OFF)
            kind = NodeDisconnectedError if is_asked else ProtocolError
            assert isinstance(it.client.connection_failures(1), kind)
            assert not it.client.any_ready()

    run()


@virtual_time
async def test_while_another_broker_is_connected_no_reconnect_is_urgent() -> None:
    dialer = MemoryDialer({"one": after_handshake(obedient), "other": after_handshake(obedient)})
    async with harness(dialer, {1: ("one", 9092), 2: ("other", 9092)}) as it:
        for node_id in (1, 2):
            await it.connect(node_id)
            await it.ask(node_id)
        await asyncio.sleep(300)
        dialer.connections[0].peer.close()  # type: ignore[union-attr]
        await it.wait_for_state(NodeState.BACKING_OFF)
        assert not it.client.has_no_live_connections()
        dialer.connections[1].peer.close()  # type: ignore[union-attr]
        await it.wait_for_state(NodeState.BACKING_OFF, node_id=2)
        assert it.client.has_no_live_connections()


@virtual_time
async def test_a_connection_made_since_shows_that_brokers_are_up_until_it_is_closed_by_them() -> (
    None
):
    dialer = MemoryDialer({"one": after_handshake(obedient), "other": after_handshake(obedient)})
    nodes = {1: ("one", 9092), 2: ("other", 9092)}
    async with harness(dialer, nodes, connections_max_idle_s=60.0) as it:
        await it.connect(1)
        await it.ask(1)
        await asyncio.sleep(30)
        await dialer.close_connections()
        await it.wait_for_state(NodeState.BACKING_OFF, node_id=1)
        assert it.client.has_no_live_connections()
        await it.connect(2)
        await it.ask(2)
        await asyncio.sleep(61)
        assert it.client.state(2) is NodeState.DISCONNECTED, "the client closed it"
        assert not it.client.has_no_live_connections()
        await it.connect(2)
        await it.ask(2)
        await asyncio.sleep(30)
        await dialer.close_connections()
        await it.wait_for_state(NodeState.BACKING_OFF, node_id=2)
        assert it.client.has_no_live_connections()


@pytest.mark.parametrize("later", [closes, closes_before_answering, after_handshake(closes)])
def test_a_broker_that_has_answered_is_not_suspected_of_tls_or_sasl(later: Behaviour) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"broker": after_handshake(obedient)})
        async with harness(dialer) as it:
            await it.connect()
            await it.ask()
            dialer.servers["broker"] = later
            await dialer.close_connections()
            await it.wait_for_state(NodeState.BACKING_OFF)
            await asyncio.sleep(1)
            if await it.connect() is None:
                with pytest.raises(NodeDisconnectedError):
                    await it.ask()
            error = it.client.connection_failures(1)
            assert error is not None
            assert "if that always happens" not in str(error)
            assert error.advice == ADVICE["broker-away"]

    run()


@pytest.mark.parametrize(
    ("behaviour", "hint"),
    [(closes_before_answering, "may be one for TLS"), (after_handshake(closes), "one for SASL")],
)
def test_a_broker_that_never_answered_is_suspected(behaviour: Behaviour, hint: str) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"broker": behaviour})
        async with harness(dialer) as it:
            for _ in range(3):
                if await it.connect() is None:
                    with pytest.raises(NodeDisconnectedError):
                        await it.ask()
                assert hint in str(it.client.connection_failures(1))
                await asyncio.sleep(2)

    run()


@virtual_time
async def test_an_answer_in_a_handshake_proves_nothing() -> None:
    async def closes_after_versions(peer: Peer) -> None:
        sasl = REQUEST_TYPES[ApiKey.SASL_HANDSHAKE].VALID_VERSIONS
        await peer.handshake({**SANE_RANGES, ApiKey.SASL_HANDSHAKE: sasl})
        await peer.request()

    dialer = MemoryDialer({"broker": closes_after_versions})
    async with harness(dialer) as it:
        assert await it.connect() is None
        with pytest.raises(NodeDisconnectedError):
            await it.ask()
        await asyncio.sleep(2)
        error = await it.connect()  # asks whether the listener wants SASL, and gets no answer
        assert error is not None
        assert error.advice == ADVICE["hung-up"]


OLD = ranges_of_old_broker("0.8.2")


@pytest.mark.parametrize(
    ("node_id", "behaviour", "settings", "dials"),
    [
        (-1, closes_before_answering, {}, [2, 3]),
        (-1, closes_before_answering, {"expects_old_brokers": True}, [1, 2]),
        (-1, silent, {}, [1, 2]),
        (0, closes_before_answering, {}, [1, 2]),
        (1, closes_before_answering, {}, [1, 2]),
    ],
)
def test_a_bootstrap_server_that_closes_the_first_connection_is_checked_for_tls_once(
    node_id: int, behaviour: Behaviour, settings: dict[str, bool], dials: list[int]
) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"broker": behaviour})
        nodes = {max(node_id, 0): ("broker", 9092)}
        async with harness(dialer, nodes, old_broker_versions=OLD, **settings) as it:
            it.client.set_bootstrap([("broker", 9092)])
            counts = []
            for _ in range(2):
                assert isinstance(await it.connect(node_id), NodeDisconnectedError)
                counts.append(len(dialer.dials))
                await asyncio.sleep(2)
            assert counts == dials

    run()


@virtual_time
async def test_a_bootstrap_server_that_has_answered_is_not_checked_for_tls() -> None:
    dialer = MemoryDialer({"broker": after_handshake(obedient)})
    async with harness(dialer) as it:
        it.client.set_bootstrap([("broker", 9092)])
        await it.connect(-1)
        await it.ask(-1)
        dialer.servers["broker"] = closes_before_answering
        await dialer.close_connections()
        await it.wait_for_state(NodeState.BACKING_OFF, node_id=-1)
        await asyncio.sleep(2)
        assert isinstance(await it.connect(-1), NodeDisconnectedError)
        assert len(dialer.dials) == 2


@virtual_time
async def test_a_broker_that_closes_an_unused_connection_is_not_suspected() -> None:
    async with harness(MemoryDialer({"broker": after_handshake(closes)})) as it:
        await it.connect()
        await it.wait_for_state(NodeState.BACKING_OFF)
        assert "if that always happens" not in str(it.client.connection_failures(1))
