"""Connections name the intended broker, and find that they reached another one (KIP-1242)."""

from __future__ import annotations

import pytest
from support.hostile import SANE_RANGES, Behaviour, Peer, obedient, versions_response

from aioproducer.errors import RebootstrapRequiredError
from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.context import NodeState
from aioproducer.types import Node
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.api_versions import ApiVersionsRequest
from net.harness import Harness, harness
from net.virtual import MemoryDialer, virtual_time

REBOOTSTRAP_REQUIRED = 129

Said = list[tuple[int, str | None, int]]
"""(version, cluster id, node id) of every ApiVersions request."""


def broker(said: Said, *, speaks: int = 5, code: int = 0) -> Behaviour:
    """Records each call, and answers with `code`."""

    async def behave(peer: Peer) -> None:
        header = await peer.expect(ApiKey.API_VERSIONS)
        request = ApiVersionsRequest.decode(header.body, header.api_version)
        said.append((header.api_version, request.cluster_id, request.node_id))
        ranges = {**SANE_RANGES, ApiKey.API_VERSIONS: (0, speaks)}
        peer.respond(header, versions_response(ranges, code))
        await obedient(peer)

    return behave


@pytest.mark.parametrize(
    ("node_id", "latest", "version"), [(0, 5, 5), (7, 6, 5), (0, 4, 3), (-1, 5, 3), (-2, 5, 3)]
)
def test_the_first_request_names_the_cluster_to_brokers_that_can_check_it(
    node_id: int, latest: int, version: int
) -> None:
    check = ClusterCheck(True, "cluster-a", latest_version=latest)
    assert check.version_for(node_id) == version


async def meet_bootstrap_server(it: Harness) -> None:
    it.client.set_bootstrap([("boot", 9092)])
    assert await it.connect(-1) is None
    it.client.set_nodes({1: Node(1, "broker", 9092)}, "cluster-a")


@virtual_time
async def test_a_broker_gets_cluster_and_node_and_a_bootstrap_server_neither() -> None:
    said: Said = []
    dialer = MemoryDialer({"boot": broker(said), "broker": broker(said)})
    async with harness(dialer, {}) as it:
        await meet_bootstrap_server(it)
        assert await it.connect(1) is None
        assert said == [(3, None, -1), (5, "cluster-a", 1)]


@virtual_time
async def test_older_clusters_cost_no_second_request() -> None:
    said: Said = []
    dialer = MemoryDialer({"boot": broker(said, speaks=4), "broker": broker(said, speaks=4)})
    async with harness(dialer, {}) as it:
        await meet_bootstrap_server(it)
        assert await it.connect(1) is None
        assert [version for version, _, _ in said] == [3, 3]


@pytest.mark.parametrize("off", [{"check_cluster": False}, {"rebootstrap": False}])
def test_nothing_is_sent_when_the_check_is_off_or_no_client_would_start_over(
    off: dict[str, bool],
) -> None:
    @virtual_time
    async def run() -> None:
        said: Said = []
        dialer = MemoryDialer({"boot": broker(said), "broker": broker(said)})
        async with harness(dialer, {}, **off) as it:
            await meet_bootstrap_server(it)
            assert await it.connect(1) is None
            assert said == [(3, None, -1), (3, None, -1)]

    run()


@virtual_time
async def test_nothing_is_said_while_the_cluster_is_unknown() -> None:
    said: Said = []
    async with harness(MemoryDialer({"broker": broker(said)})) as it:
        assert await it.connect(1) is None
        assert said == [(3, None, -1)]


@pytest.mark.parametrize("rebootstrap", [True, False])
def test_a_broker_that_is_not_the_one_meant_asks_to_start_over(rebootstrap: bool) -> None:
    @virtual_time
    async def run() -> None:
        dialer = MemoryDialer({"boot": broker([]), "broker": broker([], code=REBOOTSTRAP_REQUIRED)})
        async with harness(dialer, {}, rebootstrap=rebootstrap) as it:
            await meet_bootstrap_server(it)
            error = await it.connect(1)
            assert isinstance(error, RebootstrapRequiredError)
            assert it.client.rebootstrap_required is (error if rebootstrap else None)
            it.client.rebootstrap()
            assert it.client.rebootstrap_required is None

    run()


@virtual_time
async def test_starting_over_drops_brokers_and_dials_bootstrap_servers_anew() -> None:
    said: Said = []
    dialer = MemoryDialer(
        {"10.0.0.1": broker(said), "10.0.0.2": broker(said), "broker": broker(said)},
        {"boot": ["10.0.0.1"]},
    )
    async with harness(dialer, {}) as it:
        await meet_bootstrap_server(it)
        await it.connect(1)
        dialer.names["boot"] = ["10.0.0.2"]
        it.client.rebootstrap()
        assert it.client.state(1) is NodeState.DISCONNECTED
        assert it.client.least_loaded_node(it.now) == -1
        assert not it.client.is_ready(-1, it.now)
        assert await it.connect(-1) is None
        assert [host for _, host in dialer.dials] == ["10.0.0.1", "broker", "10.0.0.2"]
        assert said[-1] == (3, None, -1)
        assert [connection.is_lost for connection in dialer.connections] == [True, True, False]


@virtual_time
async def test_brokers_of_another_cluster_at_the_same_places_are_dialed_anew() -> None:
    said: Said = []
    dialer = MemoryDialer({"boot": broker(said), "broker": broker(said)})
    async with harness(dialer, {}) as it:
        await meet_bootstrap_server(it)
        await it.connect(1)
        it.client.set_nodes({1: Node(1, "broker", 9092)}, "cluster-b")
        assert not it.client.is_ready(1, it.now)
        assert await it.connect(1) is None
        assert said[1:] == [(5, "cluster-a", 1), (5, "cluster-b", 1)]
