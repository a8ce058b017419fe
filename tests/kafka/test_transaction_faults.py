"""Transactions under real faults on real Kafka: whole, once and in order, or not at all.

One short scenario runs by default. All of them, with 500 committed transactions each and both
transaction versions, run with AIOPRODUCER_TEST_FAULTS=1 (`make faults`) on separate brokers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
import pytest_asyncio
from support.clusters import ClusterUnderTest
from support.faults import FaultGround, fault_ground
from support.transactions.client import Phase
from support.transactions.pipeline import run_pipeline
from support.transactions.runner import BROKER_CONFIG, Load, Result, run
from support.transactions.scenarios import SCENARIOS, Scenario, kill_coordinator

TestFunction = TypeVar("TestFunction", bound=Callable[..., object])

FULL = bool(os.environ.get("AIOPRODUCER_TEST_FAULTS"))
SHORT_LOAD = Load(transactions=60, java=False)
SHORT = Scenario("EndTxn", "the coordinator dies twice", kill_coordinator(Phase.COMMIT))
FULL_LOAD = Load(transactions=500)


def assert_flawless(result: Result, load: Load) -> None:
    verdict = result.verdict
    assert verdict.violations == {}, result
    assert verdict.committed + verdict.unknown_whole >= load.transactions, result
    assert verdict.aborted > 0
    assert result.java_agrees is not False


def assert_convicts_uncommitted_reading(result: Result) -> None:
    """A control: aborted records are in the log, and the judge sees them there."""
    assert result.uncommitted.leaked > 0
    assert result.uncommitted.records > result.verdict.records


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(240)
async def test_a_coordinator_killed_at_the_commit_tears_no_transaction(
    kafka: ClusterUnderTest,
) -> None:
    if not kafka.handle.disturbable:
        pytest.skip("this cluster is not ours to disturb")
    result = await run(SHORT, FaultGround(kafka.handle, {}), SHORT_LOAD)
    assert_flawless(result, SHORT_LOAD)
    assert_convicts_uncommitted_reading(result)


def full(test: TestFunction) -> TestFunction:
    """Marks a test of the long form."""
    for mark in (
        pytest.mark.kafka,
        pytest.mark.faults,
        pytest.mark.skipif(not FULL, reason="takes minutes: AIOPRODUCER_TEST_FAULTS=1 runs it"),
        pytest.mark.timeout(900),
        pytest.mark.asyncio(loop_scope="module"),
    ):
        test = mark(test)
    return test


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[2, 1], ids="V{}".format)
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[FaultGround]:
    features = {"transaction.version": request.param}
    async with fault_ground(config=BROKER_CONFIG, features=features) as ground:
        yield ground


@full
@pytest.mark.parametrize("name", SCENARIOS)
async def test_every_transaction_survives_whole_or_not_at_all(
    ground: FaultGround, name: str
) -> None:
    result = await run(SCENARIOS[name], ground, FULL_LOAD)
    assert_flawless(result, FULL_LOAD)
    assert_convicts_uncommitted_reading(result)


@full
async def test_a_pipeline_that_is_killed_again_and_again_copies_exactly_once(
    ground: FaultGround,
) -> None:
    result = await run_pipeline(ground, FULL_LOAD.transactions)
    assert result.violations == {}
    assert result.kills > 10
