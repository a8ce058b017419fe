"""Real faults on real Kafka: no record is lost, duplicated, reordered or left without outcome.

Two short scenarios run by default. All of them, with 50,000 records and more each, run with
AIOPRODUCER_TEST_FAULTS=1 (`make faults`) on separate brokers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, ClassVar, TypeVar

import pytest
import pytest_asyncio
from support.clusters import ClusterUnderTest
from support.faults import (
    SCENARIOS,
    FaultGround,
    Load,
    OurClient,
    Scenario,
    Verdict,
    fault_ground,
    freeze_leaders,
    kill_leaders,
    run,
)
from support.faults.proxy import NetworkFault

TestFunction = TypeVar("TestFunction", bound=Callable[..., object])

FULL = bool(os.environ.get("AIOPRODUCER_TEST_FAULTS"))
SHORT_LOAD = Load(records=6_000, per_second=500, request_timeout_ms=3_000)
FULL_LOAD = Load(records=50_000)
SHORT = [
    Scenario("kill -9", "one leader is killed and restarted", kill_leaders(1)),
    Scenario("SIGSTOP", "one leader is frozen for 7 s", freeze_leaders(1)),
]


def assert_flawless(verdict: Verdict, scenario: Scenario, load: Load) -> None:
    assert verdict.violations == {}
    assert (verdict.failed, verdict.refused) == (0, 0), verdict.reasons
    assert verdict.acknowledged == verdict.accepted >= load.records
    assert verdict.retries or not scenario.felt, "the fault was not felt at all"


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(240)
@pytest.mark.parametrize("scenario", SHORT, ids=lambda scenario: scenario.name)
async def test_a_broken_leader_costs_no_record(kafka: ClusterUnderTest, scenario: Scenario) -> None:
    if not kafka.handle.disturbable:
        pytest.skip("this cluster is not ours to disturb")
    ground = FaultGround(kafka.handle, {})
    verdicts = await run(scenario, ground, [OurClient], SHORT_LOAD)
    assert_flawless(verdicts[OurClient.name], scenario, SHORT_LOAD)


class CarelessClient(OurClient):
    """Run without idempotence: the scenarios have to notice."""

    options: ClassVar[Mapping[str, Any]] = {"enable_idempotence": False}


def full(test: TestFunction) -> TestFunction:
    """Marks a test of the long form."""
    for mark in (
        pytest.mark.kafka,
        pytest.mark.faults,
        pytest.mark.skipif(not FULL, reason="takes minutes: AIOPRODUCER_TEST_FAULTS=1 runs it"),
    ):
        test = mark(test)
    return test


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground() -> AsyncIterator[FaultGround]:
    async with fault_ground() as ground:
        yield ground


@full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.asyncio(loop_scope="module")
async def test_every_record_survives_the_scenario(ground: FaultGround, name: str) -> None:
    struck_before = struck(ground)
    verdicts = await run(SCENARIOS[name], ground, [OurClient], FULL_LOAD)
    assert_flawless(verdicts[OurClient.name], SCENARIOS[name], FULL_LOAD)
    if SCENARIOS[name].through_proxy:
        assert struck(ground) > struck_before


@full
@pytest.mark.timeout(600)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_producer_without_idempotence_is_convicted(ground: FaultGround) -> None:
    scenario = SCENARIOS["network: lost answers"]
    verdicts = await run(scenario, ground, [CarelessClient], SHORT_LOAD)
    verdict = verdicts[CarelessClient.name]
    assert verdict.duplicated > 0
    assert (verdict.lost, verdict.unresolved) == (0, 0)


def struck(ground: FaultGround) -> int:
    """Return how many pieces of traffic met a fault of the network."""
    return sum(
        count
        for proxy in ground.proxies.values()
        for fault, count in proxy.struck.items()
        if fault is not NetworkFault.NONE
    )
