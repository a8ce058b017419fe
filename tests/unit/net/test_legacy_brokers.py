"""Brokers without ApiVersions, and those that only seem to be without it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.hostile import Behaviour, Peer, obedient, versions_response

from aioproducer.errors import NodeDisconnectedError
from aioproducer.net.context import NodeState
from aioproducer.net.legacy_brokers import ranges_of_old_broker
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from net.harness import Harness, harness
from net.virtual import MemoryDialer, virtual_time

OLD = ranges_of_old_broker("0.8.2")


def old_broker(asked: list[list[int]]) -> Behaviour:
    """Answers requests of 0.8 in version 0, and closes the connection on everything else."""

    async def behave(peer: Peer) -> None:
        keys: list[int] = []
        asked.append(keys)
        while True:
            header = await peer.request()
            keys.append(header.api_key)
            if header.api_key == ApiKey.LIST_OFFSETS:
                assert header.api_version == 0
                assert ListOffsetsRequest.decode(header.body, 0).replica_id == -1, "a client"
                peer.respond(header, ListOffsetsResponse())
            elif header.api_key == ApiKey.METADATA:
                assert header.api_version == 0
                peer.respond(header, MetadataResponse())
            else:
                return

    return behave


async def connect_within(it: Harness, dials: int) -> int:
    """Dials until the node is ready; how often that took."""
    for dial in range(1, dials + 1):
        if await it.connect() is None:
            return dial
        await asyncio.sleep(2)
    return -1


@virtual_time
async def test_a_broker_counts_as_old_when_it_is_alive_and_closes_on_api_versions() -> None:
    asked: list[list[int]] = []
    dialer = MemoryDialer({"broker": old_broker(asked)})
    async with harness(dialer, old_broker_versions=OLD) as it:
        assert await connect_within(it, 5) == 3
        assert asked[:2] == [[ApiKey.API_VERSIONS], [ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS]]
        assert isinstance(await it.send(MetadataRequest(topics=[])), MetadataResponse)
        assert it.client.highest_version(ApiKey.PRODUCE) == 0
        assert it.client.highest_version(ApiKey.INIT_PRODUCER_ID) == -1


@virtual_time
async def test_learning_that_a_broker_is_old_is_no_news(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "aioproducer"):
        dialer = MemoryDialer({"broker": old_broker([])})
        async with harness(dialer, old_broker_versions=OLD) as it:
            assert await connect_within(it, 5) == 3
    assert caplog.records == []


@virtual_time
async def test_after_a_lost_connection_the_broker_may_have_been_upgraded() -> None:
    dialer = MemoryDialer({"broker": old_broker([])})
    async with harness(dialer, old_broker_versions=OLD) as it:
        assert await connect_within(it, 5) == 3
        dialer.servers["broker"] = obedient_after_handshake
        it.lose_connection("the broker restarts")
        await it.wait_for_state(NodeState.DISCONNECTED, NodeState.BACKING_OFF)
        await asyncio.sleep(2)
        # A recent one closes the connection on the old probe.
        assert await connect_within(it, 2) == 2
        assert it.client.highest_version(ApiKey.INIT_PRODUCER_ID) != -1


async def obedient_after_handshake(peer: Peer) -> None:
    header = await peer.request()
    if header.api_key == ApiKey.API_VERSIONS:
        peer.respond(header, versions_response())
        await obedient(peer)


@virtual_time
async def test_a_recent_broker_that_closed_once_is_not_taken_for_an_old_one() -> None:
    connections = 0

    async def restarting(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await peer.expect(ApiKey.API_VERSIONS)
            return
        peer.respond(await peer.expect(ApiKey.LIST_OFFSETS), ListOffsetsResponse())
        peer.respond(await peer.expect(ApiKey.API_VERSIONS), versions_response())
        peer.respond(await peer.expect(ApiKey.LIST_OFFSETS), ListOffsetsResponse())
        await obedient(peer)

    dialer = MemoryDialer({"broker": restarting})
    async with harness(dialer, old_broker_versions=OLD) as it:
        assert await connect_within(it, 5) == 2
        assert it.client.highest_version(ApiKey.INIT_PRODUCER_ID) != -1


@pytest.mark.parametrize("fallback", [OLD, None])
def test_a_server_that_closes_on_everything_is_never_taken_for_a_broker(fallback) -> None:
    @virtual_time
    async def run() -> None:
        asked: list[int] = []

        async def closes(peer: Peer) -> None:
            asked.append((await peer.request()).api_key)

        async with harness(MemoryDialer({"broker": closes}), old_broker_versions=fallback) as it:
            assert await connect_within(it, 9) == -1
            others = [key for key in asked if key != ApiKey.API_VERSIONS]
            assert others == ([] if fallback is None else [ApiKey.LIST_OFFSETS] * 3)

    run()


@pytest.mark.parametrize("addresses", [2, 3, 4])
def test_a_recent_broker_is_reached_although_other_addresses_close_each_connection(
    addresses: int,
) -> None:
    @virtual_time
    async def run() -> None:
        dials = 0

        async def next_address(peer: Peer) -> None:
            nonlocal dials
            dials += 1
            if dials % addresses:
                await peer.request()
            else:
                await obedient_after_handshake(peer)

        dialer = MemoryDialer({"broker": next_address})
        async with harness(dialer, old_broker_versions=OLD) as it:
            assert await connect_within(it, 20) % addresses == 0

    run()


@virtual_time
async def test_silence_alone_proves_no_age() -> None:
    asked: list[int] = []

    async def silent(peer: Peer) -> None:
        asked.append((await peer.request()).api_key)
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": silent}), old_broker_versions=OLD) as it:
        assert await connect_within(it, 3) == -1
        assert asked == [ApiKey.API_VERSIONS, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS]


@pytest.mark.parametrize(
    ("timeout_s", "is_supported", "takes_s"), [(30.0, True, 10), (4.0, True, 4), (30.0, False, 30)]
)
def test_a_broker_that_may_be_old_has_ten_seconds_to_answer_api_versions(
    timeout_s: float, is_supported: bool, takes_s: float
) -> None:
    @virtual_time
    async def run() -> None:
        async def silent(peer: Peer) -> None:
            await peer.until_closed()

        async with harness(
            MemoryDialer({"broker": silent}),
            old_broker_versions=OLD if is_supported else None,
            request_timeout_s=timeout_s,
        ) as it:
            start = it.now
            assert isinstance(await it.connect(), NodeDisconnectedError)
            assert it.now - start == pytest.approx(takes_s)

    run()


@pytest.mark.parametrize(("expected", "dials"), [(False, 3), (True, 2)])
def test_a_broker_that_leaves_api_versions_out_counts_as_old(expected: bool, dials: int) -> None:
    @virtual_time
    async def run() -> None:
        async def broker_0_9(peer: Peer) -> None:
            while True:
                header = await peer.request()
                if header.api_key == ApiKey.LIST_OFFSETS:
                    assert header.api_version == 0
                    peer.respond(header, ListOffsetsResponse())
                elif header.api_key == ApiKey.METADATA:
                    peer.respond(header, MetadataResponse())

        async with harness(
            MemoryDialer({"broker": broker_0_9}),
            old_broker_versions=OLD,
            expects_old_brokers=expected,
        ) as it:
            start = it.now
            assert await connect_within(it, 5) == dials
            assert it.now - start < (3 if expected else 16)
            assert it.client.highest_version(ApiKey.PRODUCE) == 0

    run()


def test_versions_that_old_releases_support() -> None:
    for release, produce in (("0.9.0.1", 1), ("0.9", 1), ("0.8.2", 0), ("0.8", 0)):
        assert ranges_of_old_broker(release) == {
            ApiKey.PRODUCE: (0, produce),
            ApiKey.LIST_OFFSETS: (0, 0),
            ApiKey.METADATA: (0, 0),
        }
    assert ranges_of_old_broker("0.10") is None
    assert ranges_of_old_broker("0.10.0") is None
    assert ranges_of_old_broker("4.1") is None
