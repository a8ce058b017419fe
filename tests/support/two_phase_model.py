"""A model of what brokers keep for exactly once, for thousands of tasks on virtual time.

`Coordinator` is the state: producer epochs, transactions, the decision, rows. `ModelLedger` gives
the unmodified `TwoPhaseCommit` its requests, each with a latency, a number and perhaps a fault. No
connection, producer or byte of the protocol is in it; `two_phase.py` plays small queries with all
of these.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    PreparedTransactionEndedError,
    PreparedTransactionUnknownError,
)
from aioproducer.spark.errors import DecisionRecordError
from aioproducer.spark.exactly_once.attempts import AttemptNumbers, Plan, TaskResult
from aioproducer.spark.exactly_once.decision import Decision, Part, decode, encode
from aioproducer.spark.exactly_once.ledger import Ledger, superseded
from aioproducer.spark.exactly_once.two_phase import CommitReport, TwoPhaseCommit
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.types import PreparedTransaction, TransactionDescription

_T = TypeVar("_T")

PREFIX, OWNER, EPOCH = "query", "8a7b1f9e-4a63-4d0e-9c5c-2f6f3a1b7d10", 4
DECISION = "EndTxn of the decision"
TIMEOUT_S = 900.0
LATENCY_S = 0.003


class CrashError(BaseException):
    """The driver's process is gone."""


class Fault(Enum):
    """The accident of one request of the driver."""

    CRASH_BEFORE = "the driver dies before it is sent"
    CRASH_AFTER = "the driver dies before the answer arrives"
    LOST = "the answer does not arrive"
    PAUSE = "the driver pauses while another one takes over"


@dataclass
class _Transaction:
    """The last transaction of an id."""

    producer_id: int
    epoch: int
    state: str = "Empty"
    began: float = 0.0
    rows: list[int] = field(default_factory=list)


class Coordinator:
    """The state that survives every process.

    Args:
        partitions: Those of the marker topic.
        clock: Virtual seconds.
    """

    def __init__(self, partitions: int, clock: Callable[[], float]) -> None:
        self.partitions = partitions
        self.clock = clock
        self.driver = PreparedTransaction(f"{PREFIX}-driver", 1_000, 0, 2)
        self.pieces: list[str] = []
        self.decided: int | None = None
        self.settled: int | None = None
        self.transactions: dict[str, _Transaction] = {}
        self.visible: Counter[int] = Counter()
        self._next_id = 1_000

    def initialize(self, name: str) -> _Transaction:
        """InitProducerId of an attempt."""
        self._next_id += 1
        self.end_if_open(name)
        made = self.transactions[name] = _Transaction(self._next_id, 0)
        return made

    def end_if_open(self, name: str) -> None:
        """Abort what is open under an id."""
        found = self.transactions.get(name)
        if found is not None and found.state == "Ongoing":
            found.state = "CompleteAbort"

    def expire(self) -> None:
        """Abort what is open for too long."""
        for found in self.transactions.values():
            if found.state == "Ongoing" and self.clock() - found.began > TIMEOUT_S:
                found.state = "CompleteAbort"

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """EndTxn, as `TransactionAdmin.finish` understands the answer."""
        self.expire()
        found = self.transactions.get(prepared.transactional_id)
        if found is None or found.producer_id != prepared.producer_id:
            raise PreparedTransactionUnknownError("its id was used again")
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        if found.state == "Ongoing":
            found.state = wanted
            if commit:
                self.visible.update(found.rows)
        elif found.state != wanted:
            raise PreparedTransactionEndedError("it has ended the other way")


class ModelLedger(Ledger):
    """A driver's requests.

    Args:
        coordinator: Answers them.
        fault: What happens to one of them.
        at: To which one, from 0.
        meanwhile: What another driver does during a `PAUSE`.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        fault: Fault | None = None,
        at: int = -1,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(ProducerConfig(bootstrap_servers="model:9092"), PREFIX, "rows")
        self.requests: list[str] = []
        self._coordinator = coordinator
        self._fault = fault
        self._at = at
        self._meanwhile = meanwhile
        self._dead = False

    async def _ask(self, name: str, act: Callable[[], _T]) -> _T:
        number = len(self.requests)
        self.requests.append(name)
        fault = self._fault if number == self._at else None
        await asyncio.sleep(LATENCY_S / 2)
        if fault is Fault.PAUSE and self._meanwhile is not None:
            await self._meanwhile()
        if self._dead or fault is Fault.CRASH_BEFORE:
            self._dead = True
            raise CrashError
        answer = act()
        await asyncio.sleep(LATENCY_S / 2)
        if self._dead or fault is Fault.CRASH_AFTER:
            self._dead = True
            raise CrashError
        if fault is Fault.LOST:
            raise KafkaTimeoutError(f"no answer to {name}")
        return answer

    async def find_driver(self) -> None:
        await self._ask("FindCoordinator", lambda: None)

    async def find_groups(self) -> None:
        await self._ask("FindCoordinator", lambda: None)

    async def partition_count(self) -> int:
        return await self._ask("Metadata", lambda: self._coordinator.partitions)

    async def take_over(self) -> PreparedTransaction:
        return await self._ask("InitProducerId", self._renewed)

    def _renewed(self) -> PreparedTransaction:
        state = self._coordinator
        state.driver = replace(state.driver, epoch=state.driver.epoch + 1)
        return state.driver

    async def give_up(self, driver: PreparedTransaction) -> PreparedTransaction | None:
        def act() -> PreparedTransaction | None:
            return self._renewed() if self._coordinator.driver == driver else None

        return await self._ask("InitProducerId", act)

    async def open_attempts(
        self, beside: Iterable[Part] = (), *, idle: bool = False
    ) -> list[TransactionDescription]:
        known = {part.transaction.transactional_id for part in beside}
        states = {"Ongoing", "Empty"} if idle else {"Ongoing"}

        def act() -> list[TransactionDescription]:
            self._coordinator.expire()
            return [
                TransactionDescription(name, each.state, each.producer_id, each.epoch, 0, 0)
                for name, each in self._coordinator.transactions.items()
                if each.state in states and name not in known
            ]

        return await self._ask("ListTransactions", act)

    async def not_prepared(self, parts: Iterable[Part]) -> list[Part]:
        def act() -> list[Part]:
            self._coordinator.expire()
            return [part for part in parts if not self._is_open(part.transaction)]

        return await self._ask("DescribeTransactions", act)

    def _is_open(self, prepared: PreparedTransaction) -> bool:
        found = self._coordinator.transactions.get(prepared.transactional_id)
        return (
            found is not None
            and found.producer_id == prepared.producer_id
            and found.state == "Ongoing"
        )

    async def abort_orphan(self, found: TransactionDescription) -> None:
        def act() -> None:
            state = self._coordinator.transactions[found.transactional_id]
            if state.producer_id == found.producer_id:
                self._coordinator.end_if_open(found.transactional_id)
                state.epoch += 1

        await self._ask("InitProducerId", act)

    async def last_decision(self) -> Decision | None:
        return await self._ask("OffsetFetch", self._decision)

    def _decision(self) -> Decision | None:
        state = self._coordinator
        if state.decided is None:
            return None
        return decode(state.decided, dict(enumerate(state.pieces)), self.names)

    async def last_decision_and_end(self) -> tuple[Decision | None, bool]:
        last = await self.last_decision()
        return last, last is not None and self._coordinator.settled == last.epoch

    async def decide(
        self, driver: PreparedTransaction, decision: Decision, *, replaces_another: bool = False
    ) -> None:
        pieces = encode(decision, self.names)
        if len(pieces) > self._coordinator.partitions:
            raise DecisionRecordError(f"it takes {len(pieces)} partitions")

        def act() -> None:
            if self._coordinator.driver != driver:
                raise superseded(decision.epoch) from InvalidProducerEpochError()
            self._coordinator.pieces, self._coordinator.decided = pieces, decision.epoch
            self._renewed()  # as transactions of version 2 do at each end

        await self._ask(DECISION, act)

    async def finish(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        await self._ask("EndTxn", lambda: self._coordinator.end(prepared, commit=commit))

    async def record_completion(self, decision: Decision) -> None:
        def act() -> None:
            self._coordinator.settled = decision.epoch

        try:
            await self._ask("OffsetCommit", act)
        except KafkaError:
            pass


@dataclass
class Epoch:
    """One epoch of a query, with so many tasks; its drivers die, tasks fail and run twice.

    Args:
        tasks: Tasks per attempt at the epoch; a later attempt has one more.
        workers: The processes that run them.
        seed: Decides which tasks fail.
        partitions: Those of the marker topic.
        protocol: What a driver does.
    """

    tasks: int
    workers: int
    seed: int = 1
    partitions: int = 100
    protocol: type[TwoPhaseCommit] = TwoPhaseCommit

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.loop = VirtualLoop(self.rng)
        self.coordinator = Coordinator(self.partitions, self.loop.time)
        self.errors: Counter[str] = Counter()
        self.reports: list[CommitReport] = []
        self._attempts = 0
        self._numbers = [
            AttemptNumbers(lambda: f"{self.rng.getrandbits(64):016x}") for _ in range(self.workers)
        ]

    def run(self, fault: Fault | None = None, at: int = -1, *, pause_s: float = 0) -> list[str]:
        """Run a driver with a fault, then one without; return the requests of the first."""

        async def lives() -> list[str]:
            ledger = ModelLedger(self.coordinator, fault, at, lambda: self._life(self._ledger()))
            try:
                await self._life(ledger)
            except (CrashError, KafkaError) as error:
                self.errors[type(error).__name__] += 1
            requests = list(ledger.requests)
            await asyncio.sleep(pause_s)
            await self._life(self._ledger())
            await self._driver(self._ledger()).plan()
            return requests

        try:
            return self.loop.run_until_complete(lives())
        finally:
            self.loop.close()

    def wrong(self) -> list[str]:
        """Return what a read_committed reader finds wrong at the end."""
        found = self.coordinator.visible
        wrong = [f"row {row} is missing" for row in range(self.tasks) if not found[row]]
        wrong += [f"row {row} is there {count} times" for row, count in found.items() if count > 1]
        states = self.coordinator.transactions
        return wrong + [f"{n} is open" for n, each in states.items() if each.state == "Ongoing"]

    def _ledger(self) -> ModelLedger:
        return ModelLedger(self.coordinator)

    def _driver(self, ledger: ModelLedger) -> TwoPhaseCommit:
        return self.protocol(ledger, clock=self.loop.time)

    async def _life(self, ledger: ModelLedger) -> None:
        """Run a driver until the epoch is committed, as Spark does."""
        protocol = self._driver(ledger)
        plan = await protocol.plan()
        results: list[TaskResult | None] = []
        try:
            results = await self._tasks(plan)
            self.reports.append(await protocol.commit(EPOCH, results))
        except KafkaError:
            await protocol.abort(EPOCH, results, plan)
            raise

    async def _tasks(self, plan: Plan) -> list[TaskResult | None]:
        if plan.is_decided(EPOCH, OWNER):
            return [TaskResult(plan.driver, EPOCH, OWNER, skipped=True)]
        self._attempts += 1
        count = self.tasks + self._attempts - 1
        found = await asyncio.gather(*(self._task(plan, number, count) for number in range(count)))
        return list(found)

    async def _task(self, plan: Plan, partition: int, count: int) -> TaskResult:
        """Run a task; one in 50 dies before its report, one in 50 runs twice."""
        attempts = self.rng.choices((1, 2), (0.96, 0.04))[0]
        rows = list(range(partition, self.tasks, count))
        result: TaskResult | None = None
        for _ in range(attempts):
            name = plan.attempt_id(EPOCH, OWNER, self.rng.choice(self._numbers))
            await asyncio.sleep(self.rng.uniform(0.01, 0.05))
            found = self.coordinator.initialize(name)
            found.state, found.began, found.rows = "Ongoing", self.loop.time(), rows
            await asyncio.sleep(self.rng.uniform(0.1, 5))
            prepared = PreparedTransaction(name, found.producer_id, found.epoch, 2)
            result = TaskResult(plan.driver, EPOCH, OWNER, Part(partition, 10_000, prepared))
        assert result is not None
        return result
