"""A query on virtual time: drivers, workers and brokers that die at any moment; nothing is mocked.

Owns: the checkpoint, the processes of a query, what happens to them, what a reader sees at the end.
Not here: the protocol's steps; those are `TwoPhaseCommit`'s.

    source     every epoch has its rows; each attempt cuts them into other partitions
    checkpoint how many epochs the driver has noted as done, after their commits
    process    a line to the network, and what runs on it; killed, nothing of it is sent any more
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from simulation.transactions.line import Line

from aioproducer.config import ProducerConfig
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.errors import KafkaError
from aioproducer.records.batch import RecordBatch
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.exactly_once.attempts import AttemptNumbers, Plan, TaskResult
from aioproducer.spark.exactly_once.decision import Part
from aioproducer.spark.exactly_once.ledger import Ledger, is_over
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.testing.world.producer import SimProducer
from aioproducer.wire.api_keys import ApiKey
from support.stage import Stage, play

EPOCHS, ROWS, PARTITIONS = 6, 8, 3
PREFIX, OWNER, TOPIC = "query", "id-of-the-query", "rows"

_STRUCK = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FETCH,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.FIND_COORDINATOR,
    ApiKey.END_TXN,
    ApiKey.END_TXN,
    ApiKey.PRODUCE,
)
_MOST_ATTEMPTS = 4
_STALLS = 0.05

_T = TypeVar("_T")


class TaskFailedError(Exception):
    """A task has failed too often."""


class Process:
    """A process that dies as a whole.

    Args:
        stage: where it runs.
        dies_at: with which message that it sends; None for not by itself.
    """

    def __init__(self, stage: Stage, dies_at: int | None = None) -> None:
        self.line = Line(stage.world.network, lambda: self)
        self.is_dead = False
        self._loop = stage.loop
        self._left = dies_at
        self._work: set[asyncio.Future[Any]] = set()

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        """Runs something as a part of it."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        if self.is_dead:
            task.cancel()
        return task

    def kill(self) -> None:
        """SIGKILL."""
        self.is_dead = True
        self.line.cut()
        for each in self._work:
            each.cancel()

    async def gone(self) -> None:
        """Returns when nothing of it runs any more."""
        if self._work:
            await asyncio.wait(self._work)

    # Tap

    def sent(self, data: bytes) -> None:
        """Counts messages up to the last one."""
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._loop.call_soon(self.kill)

    def received(self, data: bytes) -> None:
        """Does not matter."""

    def ended(self) -> None:
        """Does not matter."""


class Worker(Process):
    """A process that runs tasks."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        super().__init__(stage)
        self.numbers = AttemptNumbers(lambda: f"{rng.getrandbits(64):016x}")


class SimLedger(Ledger):
    """The production ledger on a process's line."""

    def __init__(self, config: ProducerConfig, process: Process, rng: random.Random) -> None:
        super().__init__(config, PREFIX, TOPIC)
        self._process, self._rng = process, rng

    def _new_client(self) -> CoordinatorClient:
        return _StallingClient(self._config, dialer=self._process.line, rng=self._rng)


class _StallingClient(CoordinatorClient):
    """Everything may take a while: a process is not scheduled, a machine is overloaded."""

    async def ask(self, query: CoordinatorQuery[_T]) -> _T:
        if self._rng.random() < _STALLS:
            await asyncio.sleep(self._rng.choice((0.01, 0.1, 0.5)))
        return await super().ask(query)


class Query:
    """One query from its start to its last epoch, in as many processes as are needed.

    Args:
        stage: three brokers and nothing else.
        seed: decides everything.
        level: the transaction version.
        protocol: what a driver does; a broken one, to see that it is noticed.

    Attributes:
        RIVALRY: how often another driver starts beside the one that works.
    """

    RIVALRY = 0.3

    def __init__(
        self,
        stage: Stage,
        seed: int,
        level: int,
        protocol: Callable[[Ledger], TwoPhaseCommit] = TwoPhaseCommit,
    ) -> None:
        self.rng = random.Random(seed)
        self.happened: Counter[str] = Counter()
        self._stage = stage
        self._protocol = protocol
        self._committed = -1
        self._calm = False
        self._config = ProducerConfig(**stage.world.spec.options)
        self._workers: list[Worker] = []
        self._drivers: list[Process] = []
        stage.world.cluster.set_transaction_version(level)
        stage.world.cluster.create_topic(
            TOPIC, assignments={index: [1 + index] for index in range(PARTITIONS)}
        )

    async def run(self, lives: int) -> list[str]:
        """Run so many times with accidents, then once without; return what a reader finds wrong."""
        weather = asyncio.ensure_future(self._weather())
        self._workers = [Worker(self._stage, self.rng) for _ in range(2)]
        for _ in range(lives):
            await self._one_life()
        weather.cancel()
        await asyncio.wait([weather])
        self._calm = True
        self._stage.faults.clear()
        for node in (1, 2, 3):
            if not self._stage.world.cluster.is_live(node):
                self._stage.revive(node)
        await asyncio.sleep(5)
        for process in [*self._drivers, *self._workers]:
            process.kill()
            await process.gone()
        self._workers = [Worker(self._stage, self.rng) for _ in range(2)]
        last = Process(self._stage)
        await last.run(self._drive(last, calm=True))
        async with self._ledger(last) as ledger:
            await TwoPhaseCommit(ledger).plan()  # ends what the last epoch's losers have left
        await asyncio.sleep(5)
        for worker in self._workers:
            await worker.gone()
        return self._wrong()

    def _wrong(self) -> list[str]:
        """Return the rows that a read_committed reader finds twice, or not at all."""
        wanted = {row for epoch in range(EPOCHS) for row in rows_of(epoch)}
        found = Counter(
            value for index in range(PARTITIONS) for value in committed(self._stage, TOPIC, index)
        )
        twice = sorted(value.decode() for value, count in found.items() if count > 1)
        missing = sorted(value.decode() for value in wanted - set(found))
        return [f"twice {each}" for each in twice] + [f"missing {each}" for each in missing]

    # -- drivers ---------------------------------------------------------------------------------

    async def _one_life(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            api, node = rng.choice(_STRUCK), rng.choice((1, 2, 3, None))
            skip, apply = rng.randrange(6), rng.random() < 0.5
            self._stage.faults.drop(api, node_id=node, skip=skip, apply=apply)
        driver = Process(
            self._stage, rng.choice((None, rng.randrange(1, 80), rng.randrange(1, 250)))
        )
        self._drivers.append(driver)
        life = driver.run(self._drive(driver))
        if rng.random() < self.RIVALRY:
            self.happened["second driver"] += 1
            await asyncio.wait([life], timeout=rng.uniform(0, 0.5))  # another one starts beside it
            return
        await asyncio.wait([life])
        self.happened["driver killed"] += driver.is_dead
        if driver.is_dead and rng.random() < 0.5:
            for worker in list(self._workers):
                self._replace(worker)
        await asyncio.sleep(rng.choice((0.0, 0.1, 1.0)))

    async def _drive(self, process: Process, *, calm: bool = False) -> None:
        async with self._ledger(process) as ledger:
            protocol = self._protocol(ledger)
            while self._committed + 1 < EPOCHS:
                epoch = self._committed + 1
                try:
                    await self._epoch(protocol, epoch)
                except (KafkaError, TaskFailedError) as error:
                    self.happened[type(error).__name__] += 1
                    if calm:
                        raise
                    return
                self._committed = max(self._committed, epoch)

    async def _epoch(self, protocol: TwoPhaseCommit, epoch: int) -> None:
        plan: Plan = pickle.loads(pickle.dumps(await protocol.plan()))
        await self._stall()
        results: list[TaskResult | None] = []
        try:
            results = await self._tasks(plan, epoch)
            await self._stall()
            report = await protocol.commit(epoch, results)
        except (KafkaError, TaskFailedError):
            await protocol.abort(epoch, results)
            raise
        self.happened["skipped"] += report.skipped
        self.happened["committed"] += not report.skipped
        await self._stall()

    async def _stall(self) -> None:
        if not self._calm:
            await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.0, 0.05, 0.3)))

    def _ledger(self, process: Process) -> SimLedger:
        return SimLedger(self._config, process, self.rng)

    # -- tasks -----------------------------------------------------------------------------------

    async def _tasks(self, plan: Plan, epoch: int) -> list[TaskResult | None]:
        rows = rows_of(epoch)
        self.rng.shuffle(rows)
        count = self.rng.randrange(1, 5)
        shares = [rows[number::count] for number in range(count)]
        tasks = [self._task(plan, epoch, number, share) for number, share in enumerate(shares)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return [each for each in done if not isinstance(each, BaseException)]

    async def _task(self, plan: Plan, epoch: int, partition: int, rows: list[bytes]) -> TaskResult:
        for _ in range(_MOST_ATTEMPTS):
            running = [self._start(plan, epoch, partition, rows)]
            if not self._calm and self.rng.random() < 0.15:
                self.happened["speculation"] += 1
                running.append(self._start(plan, epoch, partition, rows))
            # The loser goes on; its result is thrown away.
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            first = done.pop()
            if not first.cancelled() and first.exception() is None:
                result: TaskResult = pickle.loads(pickle.dumps(first.result()))
                return result
        raise TaskFailedError(f"task {partition} of epoch {epoch}")

    def _start(
        self, plan: Plan, epoch: int, partition: int, rows: list[bytes]
    ) -> asyncio.Future[Any]:
        worker = self.rng.choice(self._workers)
        attempt = worker.run(self._attempt(worker, plan, epoch, partition, rows))
        attempt.add_done_callback(lambda done: done.cancelled() or done.exception())
        return attempt

    async def _attempt(
        self, worker: Worker, plan: Plan, epoch: int, partition: int, rows: list[bytes]
    ) -> TaskResult:
        if plan.is_decided(epoch, OWNER):
            return TaskResult(plan.driver, epoch, OWNER, skipped=True)
        name = plan.attempt_id(epoch, OWNER, worker.numbers)
        producer = self._producer(worker, name)
        fatal = None if self._calm else self.rng.choice((*range(len(rows) + 2), *[None] * 25))
        kills = self.rng.random() < 0.5
        try:
            await producer.start()
            await producer.begin_transaction()
            await self._look(worker, plan)
            for number, row in enumerate(rows):
                self._die(worker, fatal == number, kills=kills)
                await producer.send(TOPIC, row, partition=self.rng.randrange(PARTITIONS))
                await asyncio.sleep(0.001)
            prepared = await producer.prepare_transaction()
            self._die(worker, fatal is not None and fatal >= len(rows), kills=kills)
        finally:
            await producer.close(0)
        part = None if prepared.empty else Part(partition, len(rows), prepared)
        return TaskResult(plan.driver, epoch, OWNER, part)

    async def _look(self, worker: Worker, plan: Plan) -> None:
        """As `TaskAttempt` does before it writes."""
        async with SimLedger(self._config, worker, self.rng) as ledger:
            if await is_over(ledger._asks(), plan.driver):
                raise TaskFailedError

    def _producer(self, worker: Worker, name: str) -> SimProducer:
        return SimProducer(
            self._stage.world, purpose=name, dialer=worker.line, transactional_id=name
        )

    def _die(self, worker: Worker, now: bool, *, kills: bool) -> None:
        if now and kills:
            self.happened["worker killed"] += 1
            self._replace(worker)
        if now:
            self.happened["task failed"] += 1
            raise TaskFailedError

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        if worker in self._workers:
            self._workers[self._workers.index(worker)] = Worker(self._stage, self.rng)

    # -- brokers ---------------------------------------------------------------------------------

    async def _weather(self) -> None:
        rng = self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.1, 4))
            node = rng.choice((1, 2, 3))
            if self._stage.world.cluster.is_live(node):
                self.happened["broker crash"] += 1
                self._stage.crash(node)
                await asyncio.sleep(rng.uniform(0.1, 1.5))
                self._stage.revive(node)


def play_query(
    seed: int,
    lives: int = 6,
    protocol: Callable[[Ledger], TwoPhaseCommit] = TwoPhaseCommit,
    make: type[Query] = Query,
) -> tuple[list[str], Counter[str]]:
    """Return what is wrong at the end of a query, and what has happened to it."""

    async def act(stage: Stage) -> tuple[list[str], Counter[str]]:
        query = make(stage, seed, 1 + seed % 2, protocol)
        return await query.run(lives), query.happened

    limits = {"max_block_ms": 8000, "request_timeout_ms": 3000, "delivery_timeout_ms": 20_000}
    return play(act, brokers=3, **limits)


def rows_of(epoch: int) -> list[bytes]:
    """The rows of an epoch, the same in every process that reads them."""
    return [f"{epoch}-{row}".encode() for row in range(ROWS)]


def committed(stage: Stage, topic: str, partition: int) -> list[bytes]:
    """Return what a read_committed reader of the log gets; no transaction may be open."""
    shown: list[bytes] = []
    pending: dict[int, list[bytes]] = {}
    for batch in stage.batches(topic, partition):
        if batch.is_control:
            values = pending.pop(batch.producer_id, [])
            if _is_commit(batch):
                shown += values
        else:
            values = [bytes(record.value or b"") for record in batch.records()]
            pending.setdefault(batch.producer_id, []).extend(values)
    if pending:
        raise AssertionError(f"open transactions hold readers up: {pending}")
    return shown


def _is_commit(batch: RecordBatch) -> bool:
    (marker,) = batch.records()
    return bytes(marker.key or b"")[2:4] == b"\0\1"
