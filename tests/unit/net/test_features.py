"""The transaction version: a finalized feature, as brokers say when they are connected."""

from __future__ import annotations

import asyncio

import pytest
from support import hostile
from support.hostile import SANE_RANGES, Peer, versions_response

from aioproducer.net.context import NodeState
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import ApiVersion, FinalizedFeatureKey
from net.harness import harness
from net.virtual import MemoryDialer, virtual_time

NODES = {1: ("old", 9092), 2: ("new", 9092)}
WITH_V2 = {
    **SANE_RANGES,
    ApiKey.PRODUCE: (0, 12),
    ApiKey.END_TXN: (0, 5),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
}


def at_level(level: int | None, epoch: int) -> hostile.Behaviour:
    """A broker that has a transaction version as of an epoch of the cluster."""

    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        response = versions_response(WITH_V2)
        response.finalized_features_epoch = epoch
        if level is not None:
            response.finalized_features = [FinalizedFeatureKey("transaction.version", level, 1)]
        peer.respond(header, response)
        await peer.until_closed()

    return behave


@virtual_time
async def test_without_a_connection_nothing_is_known() -> None:
    async with harness(MemoryDialer({"broker": at_level(2, 1)})) as it:
        assert it.client.transaction_version() is None
        await it.connect()
        assert it.client.transaction_version() == 2


@virtual_time
async def test_a_version_is_known_after_an_idle_connection_was_closed() -> None:
    dialer = MemoryDialer({"broker": at_level(2, 1)})
    async with harness(dialer, connections_max_idle_s=60.0) as it:
        await it.connect()
        await asyncio.sleep(61)
        assert it.client.state(1) is NodeState.DISCONNECTED
        assert it.client.transaction_version() == 2


@virtual_time
async def test_of_several_closed_connections_the_last_one_counts() -> None:
    async def before_an_upgrade(peer: Peer) -> None:
        peer.respond(await peer.expect(ApiKey.API_VERSIONS), versions_response())
        await peer.until_closed()

    dialer = MemoryDialer({"old": before_an_upgrade, "new": at_level(2, 8)})
    async with harness(dialer, NODES, connections_max_idle_s=60.0) as it:
        for node_id in (1, 2):
            await it.connect(node_id)
            await asyncio.sleep(61)
        assert it.client.transaction_version() == 2


@virtual_time
async def test_of_several_brokers_the_one_that_is_up_to_date_counts() -> None:
    for first, second in ((1, 2), (2, 1)):
        async with harness(
            MemoryDialer({"old": at_level(1, 7), "new": at_level(2, 8)}), NODES
        ) as it:
            await it.connect(first)
            await it.connect(second)
            assert it.client.transaction_version() == 2


@virtual_time
async def test_a_version_can_be_taken_back() -> None:
    async with harness(
        MemoryDialer({"old": at_level(2, 7), "new": at_level(None, 8)}), NODES
    ) as it:
        await it.connect(1)
        await it.connect(2)
        assert it.client.transaction_version() == 0


@virtual_time
@pytest.mark.parametrize(
    ("highest", "usable"),
    [
        ((12, 5, 5), 2),
        ((13, 5, 6), 2),
        ((11, 5, 5), 1),
        ((12, 4, 5), 1),
        ((12, 5, 4), 1),
        ((12, 5, None), 1),
    ],
)
async def test_a_version_whose_requests_a_proxy_lacks_cannot_be_used(
    highest: tuple[int | None, ...], usable: int
) -> None:
    apis = (ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT)
    offered = {api: (0, last) for api, last in zip(apis, highest, strict=True) if last is not None}

    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        response = versions_response({**SANE_RANGES, **offered})
        response.finalized_features = [FinalizedFeatureKey("transaction.version", 2, 1)]
        peer.respond(header, response)
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": behave})) as it:
        await it.connect()
        assert it.client.transaction_version() == usable


@virtual_time
async def test_an_old_broker_has_no_transaction_version() -> None:
    async with harness(MemoryDialer({"broker": at_level(None, -1)})) as it:
        await it.connect()
        assert it.client.transaction_version() == 0


@virtual_time
async def test_no_more_is_remembered_of_a_broker_than_a_real_one_says() -> None:
    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        response = versions_response()
        response.api_keys += [ApiVersion(key, 0, 1) for key in range(1_000, 21_000)]
        response.finalized_features = [
            FinalizedFeatureKey(f"f{number}", 1, 1) for number in range(20_000)
        ]
        peer.respond(header, response)
        await peer.until_closed()

    async with harness(MemoryDialer({"broker": behave})) as it:
        await it.connect()
        link = it.client.link(1)
        assert link is not None and link.versions is not None
        assert len(link.versions.features) == len(link.versions.ranges) == 1_000
