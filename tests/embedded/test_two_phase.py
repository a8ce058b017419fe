"""Two-phase commits, interrupted at each step; on embedded brokers, the short ones on real ones.

A driver "dies" by never being asked again: it has no state but what brokers keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clusters import ClusterUnderTest, unique_topic
from support.confluent import read_all_confluent

from aioproducer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.core.transactions import coordinator_queries
from aioproducer.spark.errors import (
    CheckpointBehindError,
    DecisionRecordError,
    DecisionUnknownError,
    EpochLostError,
    EpochNotPreparedError,
    SupersededError,
)
from aioproducer.spark.exactly_once.attempts import Plan, TaskResult
from aioproducer.spark.exactly_once.decision import Decision, Part
from aioproducer.spark.exactly_once.ledger import Ledger
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.spark.exactly_once.writes import TaskAttempt
from aioproducer.spark.pool import POOL, Kind
from aioproducer.testing.admin import delete_topic
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import OffsetAndMetadata, PreparedTransaction, TopicPartition
from aioproducer.wire.api_keys import ApiKey

OWNER = "query-1"
STEPS = [
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_TRANSACTIONS,
]
LEVELS = pytest.mark.parametrize("level", [1, 2])


class Job:
    """A query that writes to one topic: its drivers and tasks.

    Attributes:
        used_once: it is a batch job without a name.
        owner: the query's id.
    """

    def __init__(
        self, servers: str, topic: str, *, used_once: bool = False, **options: object
    ) -> None:
        self.servers, self.topic, self.prefix = servers, topic, unique_topic()
        self.used_once, self.owner = used_once, OWNER
        self.config = ProducerConfig(bootstrap_servers=servers, retry_backoff_ms=5, **options)
        self._used: set[str] = set()

    def driver(self, **options: int) -> Ledger:
        config = self.config.replace(**options) if options else self.config
        return Ledger(config, self.prefix, self.topic, used_once=self.used_once)

    async def plan(self, accept_lost: int | None = None) -> Plan:
        """A new process plans."""
        async with self.driver() as ledger:
            plan = await TwoPhaseCommit(ledger, accept_lost=accept_lost).plan()
            return pickle.loads(pickle.dumps(plan))

    async def tasks(self, plan: Plan, epoch: int, *shares: Iterable[str]) -> list[TaskResult]:
        """Write each share of the rows by a separate task."""
        return [await self.task(plan, epoch, number, rows) for number, rows in enumerate(shares)]

    async def task(self, plan: Plan, epoch: int, partition: int, rows: Iterable[str]) -> TaskResult:
        if plan.is_decided(epoch, self.owner):
            return TaskResult(plan.driver, epoch, self.owner, skipped=True)
        name, rows = plan.attempt_id(epoch, self.owner), list(rows)
        self._used.add(name)
        async with Producer(self.config, transactional_id=name) as producer:
            await producer.begin_transaction()
            for row in rows:
                await producer.send(self.topic, row.encode())
            prepared = await producer.prepare_transaction()
        part, replaces = Part(partition, len(rows), prepared), plan.replaces_another(self.owner)
        return TaskResult(plan.driver, epoch, self.owner, part, replaces_another=replaces)

    async def commit(self, epoch: int, results: list[TaskResult]) -> int:
        async with self.driver() as ledger:
            return (await TwoPhaseCommit(ledger).commit(epoch, results)).transactions

    async def abort(self, epoch: int, results: list[TaskResult], plan: Plan | None = None) -> bool:
        async with self.driver() as ledger:
            return await TwoPhaseCommit(ledger).abort(epoch, results, plan)

    async def decide(self, epoch: int, results: list[TaskResult]) -> Decision:
        """Decides, and dies."""
        parts = tuple(part for each in results if (part := each.part))
        decision = Decision(epoch, self.owner, parts)
        async with self.driver() as ledger:
            await ledger.decide(results[0].driver, decision)
        return decision

    async def visible(self) -> list[str]:
        """Return what a foreign read_committed consumer reads, up to the end of the topic.

        A transaction's end is acknowledged before its markers are written: these are waited for.
        """
        async with asyncio.timeout(60), TransactionAdmin(self.config) as admin:
            for name in self._used:
                seen = await admin.describe(name)
                while seen and seen.state.startswith("Prepare"):
                    await asyncio.sleep(0.02)
                    seen = await admin.describe(name)
            found = await read_all_confluent(self.servers, self.topic)
        return sorted((record.value or b"").decode() for record in found)


@pytest_asyncio.fixture
async def job(cluster: ClusterUnderTest) -> Job:
    return Job(cluster.bootstrap_servers, await cluster.create_topic(3))


@pytest_asyncio.fixture(params=[1, 2])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 3, "one": 1}) as cluster:
        cluster.set_transaction_version(request.param)
        yield cluster


@pytest.mark.slow
async def test_epochs_become_visible_as_a_whole_and_once(job: Job) -> None:
    for epoch, rows in enumerate(("abc", "def", "ghi")):
        plan = await job.plan()
        results = await job.tasks(plan, epoch, rows[:1], rows[1:], "")
        assert await job.commit(epoch, results) == 2 + (results[2].part is not None)
    plan = await job.plan()
    results = await job.tasks(plan, 2, "ghi")
    assert results[0].skipped
    assert await job.commit(2, results) == 0
    await job.abort(2, results)
    with pytest.raises(CheckpointBehindError, match="epoch 1 is to be written, but epoch 2"):
        plan.is_decided(1, OWNER)
    assert not plan.is_decided(1, "another query with the same prefix")
    assert await job.visible() == list("abcdefghi")


async def test_before_the_decision_nothing_counts_and_the_next_attempt_may_differ(job: Job) -> None:
    await job.tasks(await job.plan(), 0, "a", "b", "c")  # and the driver dies
    plan = await job.plan()
    await job.commit(0, await job.tasks(plan, 0, "ab", "c"))
    assert await job.visible() == list("abc")


async def test_an_epoch_that_is_decided_once_more_after_its_offsets_were_reset_is_finished(
    job: Job,
) -> None:
    await job.commit(0, await job.tasks(await job.plan(), 0, "a"))
    reset = {TopicPartition(job.topic, 0): OffsetAndMetadata(0)}  # kafka-consumer-groups.sh
    async with job.driver() as ledger:
        await ledger._asks().ask(coordinator_queries.commit(job.prefix, reset))
    await job.decide(0, await job.tasks(await job.plan(), 0, "b"))
    assert (await job.plan()).is_decided(0, OWNER)
    assert await job.visible() == ["a", "b"]


@pytest.mark.parametrize("ended", [0, 1, 2])
async def test_after_the_decision_the_next_driver_finishes(job: Job, ended: int) -> None:
    await job.commit(0, await job.tasks(await job.plan(), 0, "x"))
    results = await job.tasks(await job.plan(), 1, "a", "b")
    decision = await job.decide(1, results)
    async with job.driver() as ledger:
        for part in decision.parts[:ended]:
            await ledger.finish(part.transaction, commit=True)
    plan = await job.plan()
    assert plan.is_decided(1, OWNER)
    assert (await job.task(plan, 1, 0, "ab")).skipped
    assert await job.visible() == list("abx")
    await job.commit(2, await job.tasks(plan, 2, "c"))
    assert await job.visible() == list("abcx")


async def test_an_abort_after_the_decision_finishes_it(job: Job) -> None:
    results = await job.tasks(await job.plan(), 0, "a", "b")
    await job.decide(0, results)
    assert await job.abort(0, results)
    assert await job.visible() == ["a", "b"]
    skipped = await job.tasks(await job.plan(), 0, "ab")
    assert await job.abort(0, skipped)


async def test_an_abort_before_the_decision_frees_the_readers(job: Job) -> None:
    results = await job.tasks(await job.plan(), 0, "a", "b")
    assert not await job.abort(0, results)
    with pytest.raises((EpochNotPreparedError, SupersededError)):
        await job.commit(0, results)
    plan = await job.plan()
    await job.commit(0, await job.tasks(plan, 0, "ab"))
    assert await job.visible() == ["a", "b"]


async def test_a_task_that_opens_its_transaction_during_the_abort_does_not_hold_readers_up(
    job: Job,
) -> None:
    plan = await job.plan()
    first = await job.task(plan, 0, 0, "a")

    class Overtaken(Ledger):
        late: TaskResult | None = None

        async def give_up(self, driver: PreparedTransaction) -> PreparedTransaction | None:
            self.late = self.late or await job.task(plan, 0, 1, "b")
            return await super().give_up(driver)

    async with Overtaken(job.config, job.prefix, job.topic) as ledger:
        await TwoPhaseCommit(ledger).abort(0, [first, None], plan)
        assert ledger.late is not None and ledger.late.part is not None
        assert not await ledger.still_prepared(ledger.late.part.transaction)
    assert await job.visible() == []


async def test_a_commit_may_be_repeated_after_its_success(job: Job) -> None:
    results = await job.tasks(await job.plan(), 0, "a", "b")
    for _ in range(3):
        assert await job.commit(0, results[::-1]) == 2
    assert await job.visible() == ["a", "b"]
    assert (await job.plan()).is_decided(0, OWNER)
    await job.commit(1, await job.tasks(await job.plan(), 1, "c"))
    with pytest.raises(SupersededError, match="what becomes of the epoch is up to that one"):
        await job.commit(0, results)
    assert await job.visible() == ["a", "b", "c"]


@pytest.mark.parametrize("rows", [(), ("a", "b")])
async def test_a_commit_that_was_killed_after_its_decision_may_be_repeated(
    brokers: EmbeddedCluster, rows: tuple[str, ...]
) -> None:
    job = Job(brokers.bootstrap_servers, "t")
    plan = await job.plan()
    results = await job.tasks(plan, 0, *rows) or [TaskResult(plan.driver, 0, OWNER, None)]
    await job.decide(0, results)
    for _ in range(2):
        assert await job.commit(0, results) == len(rows)
    assert await job.visible() == [*rows]
    assert (await job.plan()).is_decided(0, OWNER)


async def test_a_second_driver_shuts_out_the_first(job: Job) -> None:
    first = await job.tasks(await job.plan(), 0, "a", "b")
    plan = await job.plan()
    # A task of the first that comes late: it will never be decided.
    late = await job.task(Plan(job.prefix, first[0].driver), 0, 7, "b")
    second = await job.tasks(plan, 0, "ab")
    with pytest.raises(SupersededError, match="another driver"):
        await job.commit(0, [late])
    await job.abort(0, [*first, late])
    await job.commit(0, second)
    await job.abort(0, [*first, late])
    assert await job.visible() == ["a", "b"]


async def test_an_abort_of_a_zombie_leaves_its_successor_alone(job: Job) -> None:
    zombies = await job.plan()
    plan = await job.plan()
    results = await job.tasks(plan, 0, "a", "b")
    await job.abort(0, [], zombies)
    await job.commit(0, results)
    assert await job.visible() == ["a", "b"]


async def test_a_late_plan_of_a_zombie_touches_nothing_of_its_successor(job: Job) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()

    class Paused(Ledger):
        async def take_over(self) -> PreparedTransaction:
            driver = await super().take_over()
            held.set()
            await go_on.wait()
            return driver

    async with Paused(job.config, job.prefix, job.topic) as ledger:
        zombie = asyncio.create_task(TwoPhaseCommit(ledger).plan())
        await held.wait()
        plan = await job.plan()
        results = await job.tasks(plan, 0, "a", "b")
        decision = await job.decide(0, results)
        go_on.set()
        late = await zombie
        # It was shut out before the decision, so it may have missed it: brokers report a group's
        # first offsets some time after the transaction's end was acknowledged.
        is_decided = late.is_decided(0, OWNER)
        for part in decision.parts:
            assert await ledger.still_prepared(part.transaction) is not is_decided
    assert await job.visible() == (["a", "b"] if is_decided else [])
    if not is_decided:
        with pytest.raises(SupersededError):
            await job.commit(0, await job.tasks(late, 0, "never"))
    await job.commit(1, await job.tasks(await job.plan(), 1, "c"))
    assert await job.visible() == ["a", "b", "c"]


async def test_what_was_only_proposed_when_another_driver_took_over_is_never_decided(
    job: Job,
) -> None:
    results = await job.tasks(await job.plan(), 0, "a", "b")
    parts = tuple(part for each in results if (part := each.part))
    async with job.driver() as ledger:
        await ledger._propose(results[0].driver, Decision(0, OWNER, parts))
        plan = await job.plan()
        assert plan.decided is None
        with pytest.raises(SupersededError, match="another driver has taken over"):
            await ledger._end(results[0].driver, 0)
    await job.commit(0, await job.tasks(plan, 0, "ab"))
    assert await job.visible() == ["a", "b"]


async def test_an_epoch_of_which_a_transaction_is_gone_is_not_decided(job: Job) -> None:
    results = await job.tasks(await job.plan(), 0, "a", "b", "c")
    part = results[1].part
    assert part is not None
    async with job.driver() as ledger:
        await ledger.finish(part.transaction, commit=False)
    with pytest.raises(EpochNotPreparedError, match="Spark partitions 1 were ended"):
        await job.commit(0, results)
    await job.abort(0, results)
    await job.commit(0, await job.tasks(await job.plan(), 0, "abc"))
    assert await job.visible() == ["a", "b", "c"]


@pytest.mark.timeout(180)
async def test_a_decided_epoch_that_was_lost_is_reported_until_the_loss_is_accepted(
    cluster: ClusterUnderTest,
) -> None:
    job = Job(cluster.bootstrap_servers, await cluster.create_topic(1), transaction_timeout_ms=1500)
    results = await job.tasks(await job.plan(), 3, "a", "bc", "d")
    decision = await job.decide(3, results)
    async with job.driver() as ledger, asyncio.timeout(90):
        await ledger.finish(decision.parts[0].transaction, commit=True)
        for part in decision.parts[1:]:
            while await ledger.still_prepared(part.transaction):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.2)
    for _ in range(2):
        with pytest.raises(EpochLostError, match="the 3 rows of Spark partitions 1, 2") as caught:
            await job.plan()
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.epoch, error.partitions, error.rows) == (3, (1, 2), 3)
        assert "accept.lost.epoch=3" in str(error)
    with pytest.raises(EpochLostError):
        await job.plan(accept_lost=2)
    plan = await job.plan(accept_lost=3)
    assert plan.is_decided(3, OWNER)
    await job.commit(4, await job.tasks(await job.plan(), 4, "e"))
    assert await job.visible() == ["a", "e"]


@LEVELS
async def test_attempts_of_a_process_share_a_producer_and_are_ended_each_by_itself(
    level: int,
) -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        cluster.set_transaction_version(level)
        job = Job(cluster.bootstrap_servers, "t")
        kind = Kind(frozenset({("name", job.prefix)}), "")

        def attempt(plan: Plan, epoch: int, rows: list[str]) -> tuple[Any, TaskResult]:
            with TaskAttempt(
                plan, epoch, lambda: job.config, partition=0, owner=OWNER, kind=kind
            ) as attempt:
                for row in rows:
                    attempt.producer.send("t", row.encode())
                return attempt.producer, attempt.prepare(rows=len(rows))

        producers = set()
        for epoch in range(4):
            plan, results = await job.plan(), []
            for number in range(3):
                rows = [f"{epoch}-{number}-{row}" for row in range(number)]
                producer, result = await asyncio.to_thread(attempt, plan, epoch, rows)
                producers.add(producer)
                results.append(result)
            lost = await asyncio.to_thread(attempt, plan, epoch, ["lost"])
            assert lost[0] in producers
            assert await job.commit(epoch, results) == 2
        found = await read_topic(job.servers, "t", isolation_level="read_committed")
        values = sorted(str(each.value, "ascii") for some in found.values() for each in some)
        assert values == [
            f"{epoch}-{n}-{row}" for epoch in range(4) for n in (1, 2) for row in range(n)
        ]
        assert len(producers) == 1
        await asyncio.to_thread(POOL.close)


@pytest_asyncio.fixture
async def nameless(cluster: ClusterUnderTest) -> Job:
    return Job(cluster.bootstrap_servers, await cluster.create_topic(3), used_once=True)


async def test_a_job_without_a_name_is_decided_as_any_other_and_leaves_no_note(
    nameless: Job,
) -> None:
    results = await nameless.tasks(await nameless.plan(), 0, "a", "bc")
    assert await nameless.visible() == []
    await nameless.commit(0, results)
    await nameless.abort(0, results)  # which Spark calls if it has not heard of the commit's end
    assert await nameless.visible() == ["a", "b", "c"]
    async with nameless.driver() as ledger:
        last, is_settled = await ledger.last_decision_and_end()
    assert last is not None and last.epoch == 0
    assert not is_settled


@pytest.mark.parametrize("ended", [0, 1, 2])
async def test_what_the_commit_of_a_nameless_job_has_decided_its_abort_finishes(
    nameless: Job, ended: int
) -> None:
    plan = await nameless.plan()
    results = await nameless.tasks(plan, 0, "a", "b")
    loser = await nameless.task(plan, 0, 1, "b")
    decision = await nameless.decide(0, results)
    async with nameless.driver() as ledger:
        for part in decision.parts[:ended]:
            await ledger.finish(part.transaction, commit=True)
    await nameless.abort(0, [*results, loser], plan)
    assert await nameless.visible() == ["a", "b"]


async def test_a_nameless_job_that_was_given_up_is_never_decided(nameless: Job) -> None:
    plan = await nameless.plan()
    results = await nameless.tasks(plan, 0, "a", "b")
    await nameless.abort(0, [results[0]], plan)  # the other one's process was killed
    with pytest.raises((EpochNotPreparedError, SupersededError)):
        await nameless.commit(0, results)
    assert await nameless.visible() == []


KILLED_TASK = """
import pickle, sys, time
from aioproducer.config import ProducerConfig
from aioproducer.spark.exactly_once.writes import TaskAttempt
servers, topic, plan, moment = sys.argv[1:]
plan, config = pickle.loads(bytes.fromhex(plan)), ProducerConfig(bootstrap_servers=servers)
with TaskAttempt(plan, 0, lambda: config, partition=0, owner="query-1") as attempt:
    for row in range(100):
        attempt.producer.send(topic, b"lost")
    attempt.producer.flush()
    if moment == "prepared":
        attempt.prepare(rows=100)
    print(moment, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("moment", ["written", "prepared"])
@pytest.mark.parametrize("then", ["commit", "abort"])
async def test_a_killed_task_delays_no_later_epoch(job: Job, moment: str, then: str) -> None:
    plan = await job.plan()
    command = [sys.executable, "-c", KILLED_TASK, job.servers, job.topic]
    process = await asyncio.create_subprocess_exec(
        *command,
        pickle.dumps(plan).hex(),
        moment,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    process.kill()
    await process.communicate()
    assert line.strip() == moment
    # The same epoch goes on, as with another attempt of the task, and frees the readers.
    results = await job.tasks(plan, 0, "a", "b")
    if then == "commit":
        await job.commit(0, results)
        assert await job.visible() == ["a", "b"]
    else:
        await job.abort(0, [], plan)
        await job.abort(0, results)
        assert await job.visible() == []


@pytest.mark.slow
async def test_500_transactions_are_decided_and_ended(cluster: ClusterUnderTest) -> None:
    """They move a position of a group each, which is as good as rows and quicker to make."""
    job = Job(cluster.bootstrap_servers, await cluster.create_topic(4))
    plan, group = await job.plan(), unique_topic()
    async with job.driver() as ledger:
        asks = ledger._asks()

        async def prepare(number: int) -> TaskResult:
            worker = f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"
            name = ledger.names.attempt(worker, 0, number % 7)
            identity = await asks.ask(coordinator_queries.take_over(name, 60_000))
            prepared = PreparedTransaction(name, *identity, plan.driver.transaction_version)
            where = {TopicPartition(job.topic, 0): OffsetAndMetadata(number)}
            if prepared.transaction_version < 2:
                await asks.ask(coordinator_queries.add_group(prepared, f"{group}-{number}"))
            await asks.ask(
                coordinator_queries.commit_in_transaction(prepared, f"{group}-{number}", where)
            )
            return TaskResult(plan.driver, 0, OWNER, Part(number, 1000 + number, prepared))

        results = [
            result
            for start in range(0, 500, 25)
            for result in await asyncio.gather(*map(prepare, range(start, start + 25)))
        ]
        report = await TwoPhaseCommit(ledger).commit(0, results)
        assert (report.transactions, report.rows) == (500, sum(range(1000, 1500)))
        written = await ledger.last_decision()
        assert written is not None
        assert written.parts == tuple(each.part for each in results)
        pieces = await ledger.committed_offsets(
            job.prefix, [TopicPartition(job.topic, number) for number in range(4)]
        )
        assert len(pieces) > 1, "one partition was enough: this proves nothing"
        assert await ledger.open_attempts() == []
        for number in (0, 250, 499):
            states = await ledger.describe(results[number].part.transaction.transactional_id)  # type: ignore[union-attr]
            assert states is not None
            assert states.state in {"PrepareCommit", "CompleteCommit"}


# -- embedded brokers, which have scripted faults -------------------------------------------------


async def test_what_does_not_fit_into_the_marker_topic_is_not_decided(
    brokers: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.spark.exactly_once.decision.METADATA_LIMIT", 60)
    job = Job(brokers.bootstrap_servers, "one")
    results = await job.tasks(await job.plan(), 0, "a", "b", "c")
    with pytest.raises(DecisionRecordError, match="topic 'one' has 1"):
        await job.commit(0, results)
    await job.abort(0, results)
    job.topic = "t"
    await job.commit(0, await job.tasks(await job.plan(), 0, "a", "b", "c"))
    assert (await job.plan()).decided == 0


async def test_the_marker_topic_may_change(brokers: EmbeddedCluster) -> None:
    job = Job(brokers.bootstrap_servers, "one")
    await job.decide(0, await job.tasks(await job.plan(), 0, "a"))
    job.topic = "t"
    assert (await job.plan()).is_decided(0, OWNER)
    await job.commit(1, await job.tasks(await job.plan(), 1, "b"))
    assert (await job.plan()).is_decided(1, OWNER)
    assert (await read_values(brokers, "one"), await read_values(brokers, "t")) == (["a"], ["b"])


async def test_a_query_with_a_new_checkpoint_may_change_the_marker_topic(
    brokers: EmbeddedCluster,
) -> None:
    job = Job(brokers.bootstrap_servers, "one")
    for epoch in range(3):
        await job.commit(epoch, await job.tasks(await job.plan(), epoch, "a"))
    job.owner, job.topic = "query-2", "t"
    await job.commit(0, await job.tasks(await job.plan(), 0, "b"))
    assert (await job.plan()).is_decided(0, "query-2")
    await job.commit(1, await job.tasks(await job.plan(), 1, "c"))
    assert (await job.plan()).is_decided(1, "query-2")


async def test_a_query_with_a_new_checkpoint_does_not_need_the_deleted_topic_of_the_old_one(
    job: Job, cluster: ClusterUnderTest
) -> None:
    for epoch in range(2):
        await job.commit(epoch, await job.tasks(await job.plan(), epoch, "a"))
    plan = await job.plan()
    await delete_topic(cluster.bootstrap_servers, job.topic)
    job.owner, job.topic = "query-2", await cluster.create_topic(1)
    await job.commit(0, await job.tasks(plan, 0, "b"))
    assert (await job.plan()).is_decided(0, "query-2")
    assert await job.visible() == ["b"]


async def test_a_query_with_a_new_checkpoint_may_take_fewer_partitions_of_the_marker_topic(
    brokers: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioproducer.spark.exactly_once.decision.METADATA_LIMIT", 60)
    job = Job(brokers.bootstrap_servers, "t")
    for epoch in range(3):
        await job.commit(epoch, await job.tasks(await job.plan(), epoch, "a", "b", "c"))
    job.owner = "query-2"
    await job.commit(0, await job.tasks(await job.plan(), 0, "d"))
    assert (await job.plan()).is_decided(0, "query-2")


async def test_a_decision_without_an_answer_is_neither_aborted_nor_dropped(
    brokers: EmbeddedCluster,
) -> None:
    job = Job(brokers.bootstrap_servers, "t")
    results = await job.tasks(await job.plan(), 0, "a", "b")
    lost = brokers.state.faults.drop(ApiKey.END_TXN, apply=True, times=None)
    async with job.driver(max_block_ms=400) as ledger:
        with pytest.raises(DecisionUnknownError, match="epoch 0"):
            await TwoPhaseCommit(ledger).commit(0, results)
    brokers.state.faults.remove(lost)
    await job.abort(0, results)
    assert await read_values(brokers, "t") == ["a", "b"]


@pytest.mark.parametrize("apply", [True, False])
async def test_a_lost_answer_in_any_step_changes_nothing(
    brokers: EmbeddedCluster, apply: bool
) -> None:
    job, epochs = Job(brokers.bootstrap_servers, "t"), "abcdefg"
    await job.tasks(await job.plan(), 0, "x")
    for epoch, api in enumerate(STEPS):
        brokers.state.faults.drop(api, apply=apply)
        plan = await job.plan()
        results = await job.tasks(plan, epoch, epochs[epoch], epochs[epoch].upper())
        brokers.state.faults.drop(api, apply=apply)
        await job.commit(epoch, results)
        brokers.state.faults.clear()
    assert await read_values(brokers, "t") == sorted(epochs + epochs.upper())


@pytest.mark.parametrize("apply", [True, False])
async def test_a_lost_answer_in_any_step_of_a_nameless_job_changes_nothing(
    brokers: EmbeddedCluster, apply: bool
) -> None:
    rows, steps = "abcdefghi", [*STEPS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR]
    for row, api in zip(rows, steps, strict=True):
        job = Job(brokers.bootstrap_servers, "t", used_once=True)
        brokers.state.faults.drop(api, apply=apply)
        plan = await job.plan()
        results = await job.tasks(plan, 0, row, row.upper())
        brokers.state.faults.drop(api, apply=apply)
        await job.commit(0, results)
        brokers.state.faults.clear()
    assert await read_values(brokers, "t") == sorted(rows + rows.upper())


@pytest.mark.parametrize("phase", ["plan", "tasks", "commit", "finish"])
async def test_each_broker_dies_in_each_phase(brokers: EmbeddedCluster, phase: str) -> None:
    job = Job(brokers.bootstrap_servers, "t")
    await job.commit(0, await job.tasks(await job.plan(), 0, "a"))
    for node, rows in ((1, "bcd"), (2, "efg"), (3, "hij")):
        await _epoch_beside_a_death(brokers, job, node, rows, phase)
        assert (await job.plan()).decided == node
        await brokers.start_broker(node)
    assert await read_values(brokers, "t") == list("abcdefghij")


async def _epoch_beside_a_death(
    brokers: EmbeddedCluster, job: Job, node: int, rows: str, phase: str
) -> None:
    async def die_in(now: str) -> None:
        if now == phase:
            await brokers.stop_broker(node)

    await die_in("plan")
    plan = await job.plan()
    await die_in("tasks")
    results = await job.tasks(plan, node, *rows)
    await die_in("commit")
    if phase != "finish":
        await job.commit(node, results)
        return
    await job.decide(node, results)
    await die_in("finish")
    await job.abort(node, results)


@LEVELS
async def test_producer_ids_whose_epochs_are_used_up_are_replaced(level: int) -> None:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as brokers:
        brokers.set_transaction_version(level)
        job = Job(brokers.bootstrap_servers, "t")
        for epoch, rows in enumerate(("ab", "cd", "ef", "gh")):
            plan = await job.plan()
            results = await job.tasks(plan, epoch, *rows)
            if epoch == 2:
                # What an epoch later is prepared and decided under the last epoch of an id.
                assert any(each.part.transaction.epoch >= 32_766 for each in results if each.part)
            decision = await job.decide(epoch, results)
            await job.abort(epoch, results)
            async with job.driver() as ledger:
                for part in decision.parts:  # as another driver may, that has not heard of it
                    await ledger.finish(part.transaction, commit=True)
            if epoch == 0:
                for transaction in brokers.state.transactions.transactions.values():
                    transaction.epoch = 32_765
        assert (await job.plan()).decided == 3
        assert await read_values(brokers, "t") == list("abcdefgh")


async def read_values(brokers: EmbeddedCluster, topic: str) -> list[str]:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(30):
            found = await read_topic(
                brokers.bootstrap_servers, topic, isolation_level="read_committed"
            )
            return sorted(
                (record.value or b"").decode() for some in found.values() for record in some
            )
    raise AssertionError("a reader is held up")
