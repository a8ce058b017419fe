"""Every interleaving of the Spark sink's two-phase commit: drivers, tasks, stragglers, one crash.

The driver is the production code: `TwoPhaseCommit`, `Ledger` and their requests, answered one after
the other by the broker model of `aioproducer.testing`. Tasks are those requests that a task makes.
Each request waits for its turn, and every order of these turns is followed, with a bounded number
of faults: a driver that dies at a request, an answer that is lost and asked for again, a second
driver that starts beside the first.

The coroutines cannot be copied. So an order is followed from the beginning each time; where a state
has been seen before, it is left. Orders with few deviations from the first one come first.

In every state no row is visible twice, and none before its epoch is decided. In the end one more
driver runs alone; then each row is visible once, and no transaction is open.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from simulation.transactions.view import committed_view

from aioproducer.config import ProducerConfig
from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import coordinator_queries, requests
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.core.transactions.requests import CoordinatorKind
from aioproducer.errors import KafkaError, error_from_code
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.exactly_once.attempts import AttemptNumbers, Plan, TaskResult
from aioproducer.spark.exactly_once.decision import Part
from aioproducer.spark.exactly_once.ledger import Ledger, is_over
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.testing.broker import BrokerSpec, ClusterSettings, ClusterState, TopicSpec
from aioproducer.testing.broker.dispatch import SERVED
from aioproducer.testing.framing import decode_request_header
from aioproducer.testing.world.loop import StuckError, VirtualLoop
from aioproducer.types import PreparedTransaction, TopicPartition
from aioproducer.wire.framing import SIZE_BYTES, decode_response, encode_request
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from aioproducer.wire.messages.transactions import AddPartitionsToTxnResponse
from aioproducer.wire.schema import Message
from exploration.explorer import Result
from exploration.world import Event

PREFIX, OWNER, TOPIC = "query", "id-of-the-query", "rows"
TASKS = 2
_NOW_MS = 1_700_000_000_000
_TIMEOUT_MS = 60_000
_FIRST_IMPLICIT_ADDITION = 12
_LAST_EXPLICIT_ADDITION = 11
_MOST_TURNS = 1000

_T = TypeVar("_T")
Protocol = Callable[[Ledger], TwoPhaseCommit]


class TwoPhaseConfig(NamedTuple):
    """The size and the faults of an exploration.

    Attributes:
        version: Of transactions.
        epochs: How many there are.
        stragglers: How many copies of the first task run beside it.
        crashes: How often a driver dies; another one starts then.
        losses: How many answers are lost.
        rivals: How many drivers start while another one runs.
    """

    name: str
    version: int = 2
    epochs: int = 1
    stragglers: int = 0
    crashes: int = 0
    losses: int = 0
    rivals: int = 0


SMALL_TWO_PHASE = (
    TwoPhaseConfig("two phases, straggler", stragglers=1),
    TwoPhaseConfig("two phases, crash V1", version=1, crashes=1),
    TwoPhaseConfig("two phases, crash V2", crashes=1),
    TwoPhaseConfig("two phases, loss V1", version=1, losses=1),
    TwoPhaseConfig("two phases, loss V2", losses=1),
    TwoPhaseConfig("two phases, rival", rivals=1),
)
"""What a test explores, as far as `SMALL_STATES`."""

SMALL_STATES = 300

LARGE_TWO_PHASE = (
    *SMALL_TWO_PHASE,
    TwoPhaseConfig("straggler and crash V1", version=1, stragglers=1, crashes=1),
    TwoPhaseConfig("straggler and crash V2", stragglers=1, crashes=1),
    TwoPhaseConfig("crash and loss V1", version=1, crashes=1, losses=1),
    TwoPhaseConfig("crash and loss V2", crashes=1, losses=1),
    TwoPhaseConfig("two crashes", crashes=2),
    TwoPhaseConfig("three epochs and crash", epochs=3, crashes=1),
    TwoPhaseConfig("rival and crash", rivals=1, crashes=1),
    TwoPhaseConfig("rival and straggler", rivals=1, stragglers=1),
    TwoPhaseConfig("rival and loss V1", version=1, rivals=1, losses=1),
    TwoPhaseConfig("two epochs and rival", epochs=2, rivals=1),
)


class TaskFailedError(KafkaError):
    """No attempt of a task has a result."""


@dataclass(slots=True, eq=False)
class _Turn:
    """A request that waits for its turn."""

    process: _Process
    carry_out: Callable[[], object]
    waiter: asyncio.Future[object]


class _Process:
    """A process that dies as a whole; its steps depend only on the answers it got."""

    def __init__(self, world: _World, name: str) -> None:
        self.name = name
        self.is_driver = False
        self.answers = 0
        self._world = world
        self._work: asyncio.Future[Any] | None = None

    def run(self, work: Coroutine[Any, Any, _T]) -> asyncio.Future[_T]:
        """Run what it does."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._work = task
        return task

    async def turn(self, carry_out: Callable[[], _T]) -> _T:
        """Wait for a turn; return what is done then."""
        waiter: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._world.turns.append(_Turn(self, carry_out, waiter))
        return cast(_T, await waiter)

    def note(self, answer: object) -> None:
        """Note an answer, on which everything that follows depends."""
        self.answers = hash((self.answers, repr(answer)))

    def kill(self) -> None:
        """End it at once."""
        self._world.turns = [each for each in self._world.turns if each.process is not self]
        if self._work is not None:
            self._work.cancel()


class _Client(CoordinatorClient):
    """Requests of one process, answered in their turn."""

    def __init__(self, world: _World, process: _Process) -> None:
        self._world, self._process = world, process

    def check_loop(self) -> None:
        """There is one loop."""

    async def close(self) -> None:
        """There are no connections."""

    def drop_coordinators(self) -> None:
        """There is one broker."""

    async def find_coordinators(self, kind: CoordinatorKind, names: Iterable[str]) -> None:
        """There is one broker."""

    async def transaction_version(self) -> int:
        """Return the transaction version."""
        return self._world.config.version

    async def ask(self, query: CoordinatorQuery[_T]) -> _T:
        """Ask in turn, again where the answer is lost or says to try again."""
        world = self._world
        if query.request_type is MetadataRequest:
            return query.read(world.exchange(query))
        while True:
            answer = await self._process.turn(lambda: world.exchange(query))
            if answer is None:
                continue
            try:
                result = query.read(answer)
            except KafkaError as error:
                if error.retriable:
                    continue
                self._process.note(type(error))
                raise
            self._process.note(result)
            return result

    async def ask_coordinators(
        self,
        kind: CoordinatorKind,
        names: Iterable[str],
        query: Callable[[Sequence[str]], CoordinatorQuery[dict[str, _T]]],
    ) -> dict[str, _T]:
        """Ask the one broker."""
        wanted = list(names)
        return await self.ask(query(wanted)) if wanted else {}

    async def ask_each(self, query: CoordinatorQuery[_T]) -> list[_T]:
        """Ask the one broker."""
        return [await self.ask(query)]


class _ModelLedger(Ledger):
    """The production ledger, with a client whose requests wait for their turn."""

    def __init__(self, world: _World, process: _Process) -> None:
        super().__init__(world.options, PREFIX, TOPIC)
        self._of = (world, process)

    def _new_client(self) -> CoordinatorClient:
        return _Client(*self._of)


class _World:
    """The brokers, the processes, and the requests that wait.

    Attributes:
        turns: What waits, in the order in which it came.
        committed: The last epoch that a driver has noted in its checkpoint.
        last: The driver that was started last.
        is_calm: Whether tasks have one attempt each.
    """

    def __init__(self, config: TwoPhaseConfig, protocol: Protocol) -> None:
        self.config = config
        self.options = ProducerConfig(bootstrap_servers="b:1", transaction_timeout_ms=_TIMEOUT_MS)
        self.turns: list[_Turn] = []
        self.committed = -1
        self.last: asyncio.Future[None] | None = None
        self.faults: Counter[str] = Counter()
        self.cluster = ClusterState(
            [BrokerSpec(1, "b", 1)],
            settings=ClusterSettings(transaction_version=config.version),
            rng=random.Random(1),
        )
        self.cluster.create_topic(TOPIC, TopicSpec(1, 1))
        self.is_calm = False
        self._protocol = protocol
        self._drivers = 0
        self._numbers: dict[str, AttemptNumbers] = {}

    # -- processes -------------------------------------------------------------------------------

    def start_driver(self) -> None:
        """Start one more driver."""
        self._drivers += 1
        process = _Process(self, f"driver-{self._drivers}")
        process.is_driver = True
        self.last = process.run(self._drive(process))

    def start_planner(self) -> None:
        """Start a driver that plans, and so ends what the last epoch's losers have left."""
        process = _Process(self, "planner")

        async def plan() -> None:
            async with _ModelLedger(self, process) as ledger:
                await self._protocol(ledger).plan()

        self.last = process.run(plan())

    async def _drive(self, process: _Process) -> None:
        async with _ModelLedger(self, process) as ledger:
            protocol = self._protocol(ledger)
            while self.committed + 1 < self.config.epochs:
                epoch = self.committed + 1
                plan = await protocol.plan()
                results: list[TaskResult | None] = [None] * TASKS
                try:
                    results = await self._tasks(process, plan, epoch)
                    await protocol.commit(epoch, results)
                except KafkaError:
                    await protocol.abort(epoch, results, plan)
                    raise
                await process.turn(lambda noted=epoch: self._checkpoint(noted))  # type: ignore[misc]

    def _checkpoint(self, epoch: int) -> None:
        self.committed = max(self.committed, epoch)

    async def _tasks(self, driver: _Process, plan: Plan, epoch: int) -> list[TaskResult | None]:
        works = [self._task(driver, plan, epoch, number) for number in range(TASKS)]
        done = await asyncio.gather(*works, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        driver.note(done)
        return [each for each in done if not isinstance(each, BaseException)]

    async def _task(self, driver: _Process, plan: Plan, epoch: int, number: int) -> TaskResult:
        """Return the first result; another attempt goes on, and its result is thrown away."""
        copies = 1 if number or self.is_calm else 1 + self.config.stragglers
        running = set()
        for copy in range(copies):
            worker = f"{number}{copy}"
            process = _Process(self, f"{driver.name}-{epoch}-{worker}")
            running.add(process.run(self._attempt(process, plan, epoch, number, worker)))
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if each.exception() is None:
                    return each.result()
        raise TaskFailedError(f"task {number} of epoch {epoch}")

    async def _attempt(
        self, process: _Process, plan: Plan, epoch: int, number: int, worker: str
    ) -> TaskResult:
        if plan.is_decided(epoch, OWNER):
            return TaskResult(plan.driver, epoch, OWNER, skipped=True)
        numbers = self._numbers.setdefault(worker, AttemptNumbers(lambda: f"{worker:0>16}"))
        name = plan.attempt_id(epoch, OWNER, numbers)
        client = _Client(self, process)
        identity = await client.ask(coordinator_queries.take_over(name, _TIMEOUT_MS))
        version = self.config.version
        prepared = PreparedTransaction(name, *identity, transaction_version=version)
        if await is_over(client, plan.driver):
            raise TaskFailedError("the driver has decided or given up")
        if version < _IMPLICIT:
            await client.ask(self._addition(prepared))
        await client.ask(self._production(prepared, row_of(epoch, number)))
        return TaskResult(plan.driver, epoch, OWNER, Part(number, 1, prepared))

    def _addition(self, prepared: PreparedTransaction) -> CoordinatorQuery[None]:
        identity = ProducerIdentity(prepared.producer_id, prepared.epoch)
        place = TopicPartition(TOPIC, 0)
        request = requests.add_partitions(prepared.transactional_id, identity, [place])

        def read(answer: Message) -> None:
            for each in requests.added_partitions(
                cast(AddPartitionsToTxnResponse, answer)
            ).values():
                _raise_for(each.code)

        return CoordinatorQuery(request.request_type, request.make, read, request.coordinator, 0, 3)

    def _production(self, prepared: PreparedTransaction, row: bytes) -> CoordinatorQuery[None]:
        builder = RecordBatchBuilder(bytearray(100))
        builder.try_append(_NOW_MS, None, row, ())
        batch = encode_batch(
            bytes(builder.body()),
            count=1,
            base_timestamp=_NOW_MS,
            max_timestamp=_NOW_MS,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=0, records=b"".join(batch.buffers))
        request = ProduceRequest(
            transactional_id=prepared.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )

        def read(answer: Message) -> None:
            (topic,) = cast(ProduceResponse, answer).responses
            _raise_for(topic.partition_responses[0].error_code)

        is_v2 = prepared.transaction_version >= _IMPLICIT
        version = _FIRST_IMPLICIT_ADDITION if is_v2 else _LAST_EXPLICIT_ADDITION
        return CoordinatorQuery(ProduceRequest, lambda _: request, read, max_version=version)

    def exchange(self, query: CoordinatorQuery[Any]) -> Message:
        """Carry a request out at the broker."""
        api = query.request_type.API_KEY
        assert api is not None
        version = min(SERVED[api].highest, query.max_version or SERVED[api].highest)
        request = encode_request(query.make(version), version, 1, "explorer")
        header = decode_request_header(request[SIZE_BYTES:])
        reply = self.cluster.respond(1, header, _NOW_MS)
        assert reply.frame is not None, reply
        return decode_response(query.request_type, version, reply.frame[SIZE_BYTES:])[1]

    # -- events ----------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """Return the possible next steps; the first one is the usual one."""
        config, faults = self.config, self.faults
        firsts: dict[str, _Turn] = {}
        for each in self.turns:
            firsts.setdefault(each.process.name, each)
        found = [("turn", name) for name in firsts]
        if faults["lose"] < config.losses:
            found += [("lose", name) for name in firsts]
        if faults["crash"] < config.crashes:
            found += [("crash", name) for name, turn in firsts.items() if turn.process.is_driver]
        if faults["rival"] < config.rivals:
            found.append(("rival", ""))
        return found if firsts else []

    def apply(self, event: Event) -> None:
        """Let it happen."""
        kind, name = event
        self.faults[kind] += kind != "turn"
        if kind == "rival":
            self.start_driver()
            return
        turn = next(each for each in self.turns if each.process.name == name)
        if kind == "crash":
            turn.process.kill()
            self.start_driver()
            return
        self.turns.remove(turn)
        try:
            answer = turn.carry_out()
        except KafkaError as error:
            turn.waiter.set_exception(error)
        else:
            turn.waiter.set_result(None if kind == "lose" else answer)

    def key(self) -> int:
        """Return a number that equal states have in common."""
        cluster = self.cluster
        waiting = sorted((each.process.name, each.process.answers) for each in self.turns)
        transactions = sorted(
            (
                name,
                each.producer_id,
                each.epoch,
                each.last_epoch,
                each.state.name,
                len(each.partitions),
            )
            for name, each in cluster.transactions.transactions.items()
        )
        groups = sorted(
            (name, repr(group.offsets), group.is_unstable(TopicPartition(TOPIC, 0)))
            for name, group in cluster.groups.groups.items()
        )
        view = self.view()
        log = sorted(record.value or b"" for record in view.records.values())
        open_ = sorted(view.undecided)
        faults = sorted((+self.faults).items())
        return hash(repr((waiting, transactions, groups, log, open_, faults, self.committed)))

    # -- what has to hold ------------------------------------------------------------------------

    def view(self) -> Any:
        """Return the records that a committed reader gets."""
        return committed_view(self.cluster.topics[TOPIC].partitions[0].log.batches)

    def wrong(self) -> str | None:
        """Return what is wrong in any state."""
        found = Counter(bytes(record.value or b"") for record in self.view().records.values())
        twice = [row.decode() for row, count in found.items() if count > 1]
        if twice:
            return f"visible twice: {twice}"
        decided = max(
            (
                each.offset
                for group in self.cluster.groups.groups.values()
                for each in group.offsets.values()
            ),
            default=0,
        )
        early = [row.decode() for row in found if int(row.split(b"-")[0]) + 1 > decided]
        return f"visible before the decision: {early}" if early else None

    def wrong_in_the_end(self) -> str | None:
        """Return what is wrong when all processes have ended, and one more driver has run."""
        view = self.view()
        if view.undecided:
            return f"open for ever: {sorted(view.undecided)}"
        found = {bytes(record.value or b"") for record in view.records.values()}
        wanted = {row_of(epoch, i) for epoch in range(self.config.epochs) for i in range(TASKS)}
        missing = sorted(row.decode() for row in wanted - found)
        return f"missing in the end: {missing}" if missing else None


_IMPLICIT = 2
"""The first version of transactions in which Produce adds its partitions."""


def row_of(epoch: int, task: int) -> bytes:
    """Return the row that a task writes."""
    return b"%d-%d" % (epoch, task)


def _raise_for(code: int) -> None:
    if code:
        raise error_from_code(code)


# -- the exploration -----------------------------------------------------------------------------


def explore_two_phase(
    config: TwoPhaseConfig,
    protocol: Protocol = TwoPhaseCommit,
    *,
    seconds: float = 1e9,
    states: int = 1 << 60,
) -> Result:
    """Follow every order until all states are seen, something is found, or time or states are over.

    Args:
        config: what is explored.
        protocol: what a driver does; a broken one, to see that it is noticed.
        seconds: of CPU time, at most.
        states: so many, about.
    """
    result = Result(config.name)
    seen: set[int] = set()
    left: deque[list[Event]] = deque([[]])
    began = time.process_time()
    while left and len(seen) < states and result.seconds < seconds and result.violation is None:
        left += _follow(config, protocol, left.popleft(), seen, result)
        result.seconds = time.process_time() - began
    result.states = len(seen)
    result.is_complete = not left and result.violation is None
    return result


def _follow(
    config: TwoPhaseConfig,
    protocol: Protocol,
    schedule: list[Event],
    seen: set[int],
    result: Result,
) -> list[list[Event]]:
    """Follow an order to its end or to a state seen before; return the orders that branch off."""
    branches: list[list[Event]] = []
    with _running(config, protocol) as (world, run):
        for event in schedule[:-1]:
            run(world.apply, event)
        done = schedule[:-1]
        ahead = schedule[-1:]
        while True:
            if ahead:
                done = [*done, ahead[0]]
                run(world.apply, ahead[0])
                result.transitions += 1
                result.depth = max(result.depth, len(done))
            result.violation = world.wrong()
            key = world.key()
            events = world.events()
            if result.violation is None and key in seen:
                return branches
            seen.add(key)
            if result.violation is None and not events:
                result.violation = _end(world, run)
            if result.violation is not None or not events:
                result.schedule = done
                return branches
            branches += ([*done, event] for event in events[1:])
            ahead = events[:1]


def _end(world: _World, run: Callable[..., None]) -> str | None:
    """Let one more driver run alone, and another one plan; what is wrong then."""
    world.is_calm = True
    for start in (world.start_driver, world.start_planner):
        world.last = None
        run(start)
        for _ in range(_MOST_TURNS):
            if not world.turns:
                break
            run(world.apply, world.events()[0])
        if world.last is None or not world.last.done():
            return "the last driver does not come to an end"
        if world.last.exception() is not None:
            return f"the last driver fails: {world.last.exception()!r}"
    return world.wrong() or world.wrong_in_the_end()


@contextmanager
def _running(
    config: TwoPhaseConfig, protocol: Protocol
) -> Iterator[tuple[_World, Callable[..., None]]]:
    """Give a world with its first driver, and what calls a function in it until all wait."""
    loop = VirtualLoop(random.Random(1))
    world = _World(config, protocol)

    def run(call: Callable[..., object], *arguments: object) -> None:
        loop.call_soon(call, *arguments)
        with suppress(StuckError):  # all processes wait for their turns
            loop.run_forever()

    asyncio.set_event_loop(loop)
    try:
        run(world.start_driver)
        yield world, run
        for task in asyncio.all_tasks(loop):
            task.cancel()
        run(lambda: None)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
