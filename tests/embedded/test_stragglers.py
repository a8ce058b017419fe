"""Attempts that go on, or only begin, when their epoch is over: none leaves a transaction open."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest
from support.clusters import ClusterUnderTest, unique_topic

from aioproducer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.errors import EpochOverError
from aioproducer.spark.exactly_once.attempts import Plan, TaskResult
from aioproducer.spark.exactly_once.decision import Part
from aioproducer.spark.exactly_once.ledger import Ledger, is_over
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.spark.exactly_once.writes import TaskAttempt
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.types import PreparedTransaction, TransactionDescription

OWNER = "job-1"
MOMENTS = 5
"""Before the abort, after each of its three requests that matter, and after its end."""


class Job:
    """A batch job without a name; its driver works with a `ledger`."""

    def __init__(self, servers: str, topic: str, ledger: type[Ledger] = Ledger) -> None:
        self.config = ProducerConfig(bootstrap_servers=servers, retry_backoff_ms=5)
        self.topic, self.prefix = topic, unique_topic()
        self._ledger = ledger

    def driver(self) -> Ledger:
        return self._ledger(self.config, self.prefix, self.topic, used_once=True)

    async def plan(self) -> Plan:
        async with self.driver() as ledger:
            return await TwoPhaseCommit(ledger).plan()

    async def task(self, plan: Plan, partition: int, row: bytes) -> TaskResult:
        name = plan.attempt_id(0, OWNER)
        async with Producer(self.config, transactional_id=name) as producer:
            await producer.begin_transaction()
            await producer.send(self.topic, row)
            prepared = await producer.prepare_transaction()
        return TaskResult(plan.driver, 0, OWNER, Part(partition, 1, prepared))

    def attempt(self, plan: Plan) -> TaskAttempt:
        return TaskAttempt(plan, 0, lambda: self.config, partition=1, owner=OWNER)

    async def commit(self, results: Sequence[TaskResult]) -> None:
        async with self.driver() as ledger:
            await TwoPhaseCommit(ledger).commit(0, results)

    async def open(self) -> list[TransactionDescription]:
        async with self.driver() as ledger:
            return await ledger.open_attempts()

    async def visible(self) -> list[bytes]:
        """The committed records of a topic that nothing holds up."""
        async with asyncio.timeout(30):
            servers = ",".join(self.config.bootstrap_servers)
            found = await read_topic(servers, self.topic, isolation_level="read_committed")
        return sorted(record.value or b"" for some in found.values() for record in some)


@pytest.fixture
async def job(cluster: ClusterUnderTest) -> Job:
    return Job(cluster.bootstrap_servers, await cluster.create_topic(1))


def written(attempt: TaskAttempt, topic: str) -> TaskResult:
    attempt.producer.send_and_wait(topic, b"late")
    return attempt.prepare(rows=1)


def entered_and_written(attempt: TaskAttempt, topic: str) -> TaskResult:
    with attempt:
        return written(attempt, topic)


async def test_an_attempt_that_begins_when_its_job_was_given_up_writes_nothing(job: Job) -> None:
    plan = await job.plan()
    async with job.driver() as ledger:
        await TwoPhaseCommit(ledger).abort(0, [None, None], plan)
    with pytest.raises(EpochOverError, match="epoch 0 was given up, decided without"):
        await asyncio.to_thread(entered_and_written, job.attempt(plan), job.topic)
    assert await job.open() == []


async def test_an_attempt_that_has_begun_when_its_job_is_given_up_cannot_write_any_more(
    job: Job,
) -> None:
    plan = await job.plan()
    attempt = job.attempt(plan)
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, attempt)
        async with job.driver() as ledger:
            await TwoPhaseCommit(ledger).abort(0, [None, None], plan)
        with pytest.raises(KafkaError):
            await asyncio.to_thread(written, attempt, job.topic)
        await asyncio.to_thread(stack.close)
    assert await job.open() == []


async def test_an_attempt_too_many_that_begins_after_the_commit_writes_nothing(job: Job) -> None:
    plan = await job.plan()
    await job.commit([await job.task(plan, 0, b"a"), await job.task(plan, 1, b"b")])
    with pytest.raises(EpochOverError):
        await asyncio.to_thread(entered_and_written, job.attempt(plan), job.topic)
    assert await job.open() == []


# -- every order of an attempt's steps and of an abort's -------------------------------------------


class Straggler:
    """One attempt, step by step, each at a chosen moment."""

    def __init__(self, job: Job, plan: Plan, moments: Sequence[int], *, looks: bool) -> None:
        self._job, self._plan = job, plan
        name = plan.attempt_id(0, OWNER)
        self._producer = Producer(job.config, transactional_id=name)
        self._looks = looks
        self._is_over = False
        steps = (self._begin, self._look, self._write)
        self._due: list[tuple[int, Callable[[], Awaitable[None]]]] = list(
            zip(moments, steps, strict=True)
        )

    async def go_on(self, moment: int) -> None:
        """Takes the steps that are due by then."""
        while self._due and self._due[0][0] <= moment:
            await self._due.pop(0)[1]()

    async def close(self) -> None:
        await self._producer.close(0)

    async def _begin(self) -> None:
        await self._producer.start()
        await self._producer.begin_transaction()

    async def _look(self) -> None:
        client = CoordinatorClient(self._job.config)
        self._is_over = self._looks and await is_over(client, self._plan.driver)
        await client.close()

    async def _write(self) -> None:
        if not self._is_over:
            with contextlib.suppress(KafkaError):
                await self._producer.send_and_wait(self._job.topic, b"late")
                await self._producer.prepare_transaction()


class Interrupted(Ledger):
    """Let a straggler go on after each step of an abort."""

    straggler: Straggler | None = None
    moment = 0

    async def give_up(self, driver: PreparedTransaction) -> PreparedTransaction | None:
        renewed = await super().give_up(driver)
        await self._go_on()
        return renewed

    async def open_attempts(
        self, beside: Iterable[Part] = (), *, idle: bool = False
    ) -> list[TransactionDescription]:
        found = await super().open_attempts(beside, idle=idle)
        await self._go_on()
        return found

    async def _go_on(self) -> None:
        if self.straggler is not None:
            self.moment += 1
            await self.straggler.go_on(self.moment)


class Blind(Interrupted):
    """A search that misses producers that have written nothing yet."""

    async def open_attempts(
        self, beside: Iterable[Part] = (), *, idle: bool = False
    ) -> list[TransactionDescription]:
        return await super().open_attempts(beside)


async def left_open(
    servers: str, ledger_type: type[Interrupted] = Interrupted, *, looks: bool = True
) -> list[tuple[int, ...]]:
    """The orders in which the attempt leaves its transaction open."""
    bad = []
    for moments in itertools.combinations_with_replacement(range(MOMENTS), 3):
        job = Job(servers, "t", ledger_type)
        plan = await job.plan()
        straggler = Straggler(job, plan, moments, looks=looks)
        await straggler.go_on(0)
        async with ledger_type(job.config, job.prefix, "t", used_once=True) as ledger:
            ledger.straggler = straggler
            await TwoPhaseCommit(ledger).abort(0, [None], plan)
            assert ledger.moment == MOMENTS - 2
        await straggler.go_on(MOMENTS)
        await straggler.close()
        if await job.open():
            bad.append(moments)
    return bad


@pytest.mark.parametrize("level", [1, 2])
async def test_no_order_of_steps_leaves_a_transaction_open(level: int) -> None:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        cluster.set_transaction_version(level)
        assert await left_open(cluster.bootstrap_servers) == []
        job = Job(cluster.bootstrap_servers, "t")
        await job.commit([await job.task(await job.plan(), 0, b"next")])
        assert await job.visible() == [b"next"]


@pytest.mark.parametrize("level", [1, 2])
async def test_an_attempt_that_does_not_look_and_a_driver_that_is_blind_are_noticed(
    level: int,
) -> None:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        cluster.set_transaction_version(level)
        assert await left_open(cluster.bootstrap_servers, looks=False)
        assert await left_open(cluster.bootstrap_servers, Blind)
