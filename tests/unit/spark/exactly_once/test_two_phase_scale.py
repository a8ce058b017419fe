"""Exactly once with thousands of tasks: what a driver's death costs at each step, and sizes.

AIOPRODUCER_TEST_TASKS=20000   how many tasks the large epoch has (2,000)
"""

from __future__ import annotations

import os
import random
import re

import pytest
from support.pages import page
from support.two_phase_model import DECISION, LATENCY_S, OWNER, TIMEOUT_S, Epoch, Fault

from aioproducer.spark.exactly_once.attempts import Plan
from aioproducer.spark.exactly_once.decision import (
    METADATA_LIMIT,
    Decision,
    Part,
    TransactionNames,
    encode,
)
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.types import PreparedTransaction

TASKS = int(os.environ.get("AIOPRODUCER_TEST_TASKS") or 2_000)
SMALL = 24

pytestmark = pytest.mark.timeout(300)


def requests_of(tasks: int, workers: int) -> list[str]:
    """The requests of a driver that nothing happens to."""
    epoch = Epoch(tasks, workers)
    requests = epoch.run()
    assert (epoch.wrong(), epoch.errors) == ([], {})
    return requests


@pytest.mark.parametrize("fault", Fault)
def test_every_row_is_there_once_whichever_request_a_driver_dies_at(fault: Fault) -> None:
    for at in range(len(requests_of(SMALL, 8))):
        for seed in range(3):
            epoch = Epoch(SMALL, 8, seed=seed)
            epoch.run(fault, at)
            assert epoch.wrong() == [], f"request {at}, seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", Fault)
def test_every_row_of_2000_tasks_is_there_once(fault: Fault) -> None:
    requests = requests_of(TASKS, TASKS // 4)
    decided = requests.index(DECISION)
    for at in (decided, decided + TASKS // 2, len(requests) - 1):
        epoch = Epoch(TASKS, TASKS // 4, seed=at)
        epoch.run(fault, at)
        assert epoch.wrong() == [], f"request {at}"


def test_a_recovery_that_is_too_late_names_what_is_lost() -> None:
    count = len(requests_of(SMALL, 8))
    lost = 0
    for at in range(count):
        epoch = Epoch(SMALL, 8)
        try:
            epoch.run(Fault.CRASH_AFTER, at, pause_s=2 * TIMEOUT_S)
        except Exception as error:
            assert type(error).__name__ == "EpochLostError", repr(error)
            lost += 1
        else:
            assert epoch.wrong() == []
    assert 0 < lost < count


class WithoutMemory(TwoPhaseCommit):
    """Does not skip what is decided."""

    async def plan(self) -> Plan:
        plan = await super().plan()
        return Plan(plan.prefix, plan.driver)


class WithoutRecovery(TwoPhaseCommit):
    """Does not finish what is decided."""

    async def _last(self) -> Decision | None:
        return await self._ledger.last_decision()


class WithoutOrphans(TwoPhaseCommit):
    """Leaves the transactions of losers open."""

    async def _abort_orphans(self, found: object, decision: Decision | None) -> None:
        pass


@pytest.mark.parametrize("broken", [WithoutMemory, WithoutRecovery, WithoutOrphans])
def test_a_driver_that_leaves_out_a_step_is_noticed(
    broken: type[TwoPhaseCommit],
) -> None:
    def wrong(at: int) -> list[str]:
        epoch = Epoch(SMALL, 8, protocol=broken)
        epoch.run(Fault.CRASH_AFTER, at)
        return epoch.wrong()

    assert any(wrong(at) for at in range(len(requests_of(SMALL, 8))))


# -- sizes -----------------------------------------------------------------------------------------


def decision(tasks: int, workers: int, *, seed: int = 1) -> Decision:
    """A decision about tasks that ran in these worker processes, each with its producer id."""
    rng = random.Random(seed)
    names = TransactionNames(f"aioproducer-{rng.getrandbits(64):016x}")
    known = [(f"{rng.getrandbits(64):016x}", 5_000_000 + 7 * n) for n in range(workers)]
    used = [0] * workers
    parts = []
    for partition in range(tasks):
        worker = rng.randrange(workers) if tasks > workers else partition
        name, producer_id = known[worker]
        number, used[worker] = used[worker], used[worker] + 1
        transaction = PreparedTransaction(
            names.attempt(name, 4, number), producer_id + 1_000_003 * number, rng.randrange(4), 2
        )
        parts.append(Part(partition, 10_000 + rng.randrange(500), transaction))
    return Decision(4, OWNER, tuple(parts))


def pieces_of(tasks: int, workers: int) -> tuple[int, int]:
    """The characters of a decision, and the partitions that it takes."""
    made = decision(tasks, workers)
    prefix = made.parts[0].transaction.transactional_id.split("-w")[0]
    pieces = encode(made, TransactionNames(prefix))
    return sum(map(len, pieces)), len(pieces)


def test_decisions_take_what_the_page_says() -> None:
    rows = re.findall(
        r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \|$", page("spark_sizing"), re.M
    )
    assert len(rows) == 4
    for row in rows:
        tasks, workers, characters, partitions = (int(each.replace(",", "")) for each in row)
        found = pieces_of(tasks, workers)
        print(f"{tasks} tasks of {workers} workers: {found[0]} characters, {found[1]} partitions")
        assert found[1] == partitions
        assert characters - 1000 < found[0] <= characters <= partitions * METADATA_LIMIT


@pytest.mark.parametrize(("tasks", "seconds"), [(400, 0.04), (TASKS, TASKS * 1e-4)])
def test_the_commit_takes_a_request_for_each_transaction_32_at_a_time(
    tasks: int, seconds: float
) -> None:
    epoch = Epoch(tasks, tasks // 4)
    requests = epoch.run()
    took = epoch.reports[0].seconds
    print(f"{tasks} tasks: {len(requests)} requests, {took}")
    assert len(requests) < 1.1 * tasks + 20
    assert tasks / 32 * LATENCY_S <= took["end"] < 1.2 * seconds
    assert took["check"] + took["decide"] < 5 * LATENCY_S
