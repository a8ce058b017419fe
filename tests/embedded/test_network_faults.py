"""Brokers and producer on separate hosts, and a network between them that misbehaves.

Every record is numbered: in the end each is in the log once, in order, and is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.namespaces import (
    BROKERS,
    BROKERS_IPV6,
    MOVED_BROKERS,
    Direction,
    Network,
    Trial,
    Weather,
    two_hosts,
    what_is_missing,
)

MISSING = what_is_missing()
NAME = "kafka.test"
PER_SECOND = 300
REQUEST_TIMEOUT_MS = 500
LONG_TIMEOUT_MS = 10_000

pytestmark = [
    pytest.mark.skipif(MISSING is not None, reason=f"no network namespaces: {MISSING}"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with two_hosts(tmp_path_factory.mktemp("network")) as network:
        for host in (network.brokers, network.client):
            host.resolve_to(kafka_test=[BROKERS])
        await network.brokers.order("listen", host=NAME)
        yield network


ROUGH = {
    "delay": Weather(delay_s=0.1, jitter_s=0.05),
    "loss": Weather(loss=0.1),
}


@pytest.mark.parametrize("weather", ROUGH.values(), ids=ROUGH)
async def test_records_arrive_through_rough_weather(network: Network, weather: Weather) -> None:
    trial = Trial(network)
    await trial.begin(PER_SECOND, LONG_TIMEOUT_MS)
    network.cable.weather = weather
    await trial.acknowledge_more(300)
    await trial.end()


BROKEN = {
    "requests are swallowed": Weather(blocked=frozenset([Direction.TO_BROKERS])),
    "answers are swallowed": Weather(blocked=frozenset([Direction.FROM_BROKERS])),
    "cut in both directions": Weather(blocked=frozenset(Direction)),
    "only small packets pass": Weather(largest=700),
}


@pytest.mark.parametrize("weather", BROKEN.values(), ids=BROKEN)
async def test_records_survive_a_network_that_swallows_packets(
    network: Network, weather: Weather
) -> None:
    trial = Trial(network)
    await trial.begin(PER_SECOND, REQUEST_TIMEOUT_MS)
    swallowed = network.cable.swallowed.total()
    network.cable.weather = weather
    await asyncio.sleep(2.5 * REQUEST_TIMEOUT_MS / 1000)
    assert network.cable.swallowed.total() > swallowed
    assert (await trial.end()).retries


async def test_a_name_whose_first_address_swallows_packets_leads_to_its_other_one(
    network: Network,
) -> None:
    trial = Trial(network)
    network.client.resolve_to(kafka_test=[BROKERS_IPV6, BROKERS])
    beginning = asyncio.create_task(
        trial.begin(PER_SECOND, LONG_TIMEOUT_MS, socket_connection_setup_timeout_ms=800)
    )
    await asyncio.sleep(0)
    network.cable.weather = Weather(dead=frozenset([BROKERS_IPV6]))
    try:
        await beginning
    finally:
        network.client.resolve_to(kafka_test=[BROKERS])
    await trial.end()


async def test_brokers_that_move_to_another_address_are_found_by_their_name(
    network: Network,
) -> None:
    trial = Trial(network)
    await trial.begin(PER_SECOND, REQUEST_TIMEOUT_MS)
    await network.brokers.order("close")
    for host in (network.brokers, network.client):
        host.resolve_to(kafka_test=[MOVED_BROKERS])
    # What is sent to the old address is not even refused.
    network.cable.weather = Weather(dead=frozenset([BROKERS]))
    await network.brokers.order("listen", host=NAME)
    await trial.acknowledge_more()
    await trial.end()
