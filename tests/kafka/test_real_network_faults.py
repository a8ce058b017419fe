"""The network between real brokers and the producer misbehaves: 50,000 records of 1 kB each.

The long form of `tests/embedded/test_network_faults.py`; runs with AIOPRODUCER_TEST_FAULTS=1
(`make faults`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.namespaces import (
    BROKERS,
    Direction,
    Network,
    Trial,
    Weather,
    two_hosts,
    what_is_missing,
)

MISSING = what_is_missing()
RECORDS = 50_000
PER_SECOND = 1_500
REQUEST_TIMEOUT_MS = 3_000
SPELL_S = 5.0

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.faults,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not os.environ.get("AIOPRODUCER_TEST_FAULTS"),
        reason="takes minutes: AIOPRODUCER_TEST_FAULTS=1 runs it",
    ),
    pytest.mark.skipif(MISSING is not None, reason=f"no network namespaces: {MISSING}"),
    pytest.mark.asyncio(loop_scope="module"),
]

SPELLS = {
    "delay": Weather(delay_s=0.05, jitter_s=0.02),
    "loss": Weather(loss=0.02),
    "requests are swallowed": Weather(blocked=frozenset([Direction.TO_BROKERS])),
    "answers are swallowed": Weather(blocked=frozenset([Direction.FROM_BROKERS])),
    "cut in both directions": Weather(blocked=frozenset(Direction)),
    "only small packets pass": Weather(largest=700),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with two_hosts(tmp_path_factory.mktemp("network"), "kafka") as network:
        await network.brokers.order("listen", host=BROKERS)
        yield network


@pytest.mark.parametrize("weather", SPELLS.values(), ids=SPELLS)
async def test_every_record_survives_spells_of_bad_weather(
    network: Network, weather: Weather
) -> None:
    trial = Trial(network)
    await trial.begin(PER_SECOND, REQUEST_TIMEOUT_MS)
    left = RECORDS
    while left > 0:
        network.cable.weather = weather
        await asyncio.sleep(SPELL_S)
        network.cable.weather = Weather()
        await trial.acknowledge_more(RECORDS // 5)
        left -= RECORDS // 5
    verdict = await trial.end()
    assert verdict.accepted >= RECORDS
    assert verdict.retries or weather.delay_s or weather.loss
