"""A transaction that is cut off at any turn of the loop: results of callers, against the log.

The cut is `close(0)`, a cancellation, or a cancellation and then a close. Afterwards the caller
repeats `commit_transaction()`, as its documentation says, and the results must agree with what
the log holds once the coordinator has ended everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import pytest
from simulation.transactions.outsider import SimAdmin
from support.stage import Stage
from support.transactional_acts import committed, perform
from support.turns import TurnLoop

from aioproducer import Producer, TopicPartition
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    KafkaError,
    PreparedTransactionEndedError,
)
from aioproducer.runtime.delivery import Delivery
from aioproducer.types import Persistence, PreparedTransaction

LEVELS = pytest.mark.parametrize("level", [1, 2])
MOST_TURNS = 400
TIMEOUT_MS = 3_000
LINGER_S = 0.005
OFFSETS = {TopicPartition("u", 0): 1}


class Report(Enum):
    """The last result of the caller for its transaction."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    UNKNOWN = "unknown"


@dataclass
class Case:
    """One cut, and its results."""

    stage: Stage
    reported: Report = Report.NOT_COMMITTED
    unknown: CommitOutcomeUnknownError | None = None
    prepared: PreparedTransaction | None = None
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def producer(self) -> Producer:
        return self.stage.producer

    async def send(self, value: bytes, topic: str = "t") -> None:
        self.deliveries.append(await self.producer.send(topic, value))

    def note(self, error: BaseException) -> None:
        """Return what an error says of the commit."""
        if isinstance(error, CommitOutcomeUnknownError):
            self.reported, self.unknown = Report.UNKNOWN, error
            assert error.transaction is not None
            assert error.persistence is Persistence.POSSIBLY_PERSISTED
        elif isinstance(error, KafkaError):
            self.reported = Report.NOT_COMMITTED
            assert error.persistence in {None, Persistence.NOT_PERSISTED}


Work = Callable[[Case], Awaitable[None]]
Cut = Callable[[Case, "asyncio.Task[None]"], Awaitable[None]]


async def commits_by_calls(case: Case) -> None:
    producer = case.producer
    await producer.begin_transaction()
    await case.send(b"1")
    await case.send(b"2", "u")
    await producer.commit_transaction()
    case.reported = Report.COMMITTED


async def commits_by_block(case: Case) -> None:
    async with case.producer.transaction() as tx:
        await case.send(b"1")
        await tx.send_offsets(OFFSETS, "group")
        await case.send(b"2", "u")
    case.reported = Report.COMMITTED


async def aborts(case: Case) -> None:
    producer = case.producer
    await producer.begin_transaction()
    await case.send(b"1")
    await producer.flush()
    await case.send(b"2", "u")
    await asyncio.sleep(LINGER_S)
    await producer.abort_transaction()


async def prepares(case: Case) -> None:
    async with case.producer.transaction() as tx:
        await case.send(b"1")
        await case.send(b"2", "u")
        case.prepared = await tx.prepare()


async def commits_what_was_prepared(case: Case) -> None:
    await prepares(case)
    case.prepared = None  # no other process is given it
    await case.producer.commit_transaction()
    case.reported = Report.COMMITTED


async def close_0(case: Case, victim: asyncio.Task[None]) -> None:
    await case.producer.close(0)
    await asyncio.wait([victim])


async def close(case: Case, victim: asyncio.Task[None]) -> None:
    await case.producer.close()
    await asyncio.wait([victim])


async def cancel(case: Case, victim: asyncio.Task[None]) -> None:
    victim.cancel()
    await asyncio.wait([victim])


async def cancel_and_close(case: Case, victim: asyncio.Task[None]) -> None:
    await cancel(case, victim)
    await case.producer.close()


async def cancel_and_close_0(case: Case, victim: asyncio.Task[None]) -> None:
    await cancel(case, victim)
    await case.producer.close(0)


def kill(name: str) -> Cut:
    """A framework cancels one of the producer's tasks."""

    async def cut(case: Case, victim: asyncio.Task[None]) -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == name:
                task.cancel()
        await asyncio.wait([victim])

    return cut


COMMITTING: dict[str, Work] = {
    "calls": commits_by_calls,
    "block": commits_by_block,
    "prepared": commits_what_was_prepared,
}
OTHERS: dict[str, Work] = {"abort": aborts, "prepare": prepares}
GENTLE: dict[str, Cut] = {"close": close, "cancel": cancel, "cancel, close": cancel_and_close}
HARSH: dict[str, Cut] = {
    "close(0)": close_0,
    "cancel, close(0)": cancel_and_close_0,
    "sender dies": kill("aioproducer-sender"),
    "transactions die": kill("aioproducer-transaction"),
}


async def strike(case: Case, work: Work, cut: Cut, turn: int, loop: TurnLoop) -> None:
    """Does the work, cut off at a turn; the caller then learns what it can."""
    cutting: list[asyncio.Task[None]] = []
    victim = asyncio.ensure_future(work(case))
    loop.strike_at(turn, lambda: cutting.append(asyncio.ensure_future(cut(case, victim))))
    await asyncio.wait([victim])
    loop.give_up()
    if cutting:
        await cutting[0]
    if not victim.cancelled() and (error := victim.exception()) is not None:
        case.note(error)
    elif victim.cancelled() and work in COMMITTING.values():
        # Only a repeated call shows the outcome, whatever state the producer is in.
        try:
            await case.producer.commit_transaction()
            case.reported = Report.COMMITTED
        except KafkaError as error:
            case.note(error)


async def ask(case: Case, transaction: PreparedTransaction) -> Report:
    """Ask `TransactionAdmin` for the outcome; it commits what is still open."""
    world = case.stage.world
    config = case.producer.config.replace(transactional_id=None)
    async with SimAdmin(config, world.network, world.chance.of("admin")) as admin:
        try:
            await admin.finish(transaction, commit=True)
        except PreparedTransactionEndedError:
            return Report.NOT_COMMITTED
    return Report.COMMITTED


def check_deliveries(case: Case) -> None:
    written = Counter(case.stage.values("t") + case.stage.values("u"))
    for delivery, value in zip(case.deliveries, (b"1", b"2"), strict=False):
        assert delivery.done()
        error = delivery.exception()
        assert written[value] <= 1
        if error is None:
            assert written[value] == 1
        elif isinstance(error, KafkaError) and error.persistence is Persistence.NOT_PERSISTED:
            assert written[value] == 0


async def case_of(
    work: Work,
    cut: Cut,
    turn: int,
    loop: TurnLoop,
    seen: Counter[tuple[Report, bool]],
    stage: Stage,
) -> None:
    case = Case(stage)
    await stage.producer.warm_up(["t", "u"])
    await strike(case, work, cut, turn, loop)
    expected, decided = case.reported, stage.world.cluster.transactions.transactions["tx"].is_commit
    if case.unknown is not None and case.unknown.transaction is not None:
        expected = await ask(case, case.unknown.transaction)
    elif case.prepared is not None:
        expected = await ask(case, case.prepared)
        assert expected is Report.COMMITTED
    with suppress(KafkaError):
        await stage.producer.abort_transaction()
    await stage.producer.close()
    await asyncio.sleep(3 * TIMEOUT_MS / 1000)  # what was left open is aborted by then
    visible = committed(stage) + committed(stage, "u")
    assert visible in ([], [b"1", b"2"]), visible
    assert bool(visible) is (expected is Report.COMMITTED), (case.reported, expected, visible)
    check_deliveries(case)
    seen[case.reported, decided] += 1


def at_every_turn(work: Work, cut: Cut, level: int) -> Counter[tuple[Report, bool]]:
    """Count each result, and whether the commit was decided at that time."""
    seen: Counter[tuple[Report, bool]] = Counter()
    for turn in range(1, MOST_TURNS):
        loop = TurnLoop()

        async def act(stage: Stage, turn: int = turn, loop: TurnLoop = loop) -> None:
            await case_of(work, cut, turn, loop, seen, stage)

        perform(act, level, loop=loop, transaction_timeout_ms=TIMEOUT_MS)
        if not loop.struck:
            return seen
    raise AssertionError("the work never ends")


@pytest.mark.slow
@LEVELS
@pytest.mark.parametrize(
    ("work", "cut"),
    [
        *(("block", cut) for cut in HARSH),
        ("calls", "close(0)"),
        ("calls", "sender dies"),
        ("prepared", "cancel, close(0)"),
        ("prepared", "transactions die"),
    ],
)
def test_a_commit_whose_producer_ends_says_unknown_where_nothing_else_is_true(
    work: str, cut: str, level: int
) -> None:
    seen = at_every_turn(COMMITTING[work], HARSH[cut], level)
    assert set(seen) >= {
        (Report.COMMITTED, True),
        (Report.UNKNOWN, True),
        (Report.UNKNOWN, False),
        (Report.NOT_COMMITTED, False),
    }
    assert (Report.COMMITTED, False) not in seen
    assert (Report.NOT_COMMITTED, True) not in seen


@pytest.mark.slow
@LEVELS
@pytest.mark.parametrize(
    ("work", "cut"),
    [*(("block", cut) for cut in GENTLE), ("calls", "cancel"), ("prepared", "cancel")],
)
def test_a_commit_that_goes_on_reports_its_end(work: str, cut: str, level: int) -> None:
    seen = at_every_turn(COMMITTING[work], GENTLE[cut], level)
    assert set(seen) <= {(Report.COMMITTED, True), (Report.NOT_COMMITTED, False)}
    assert (Report.COMMITTED, True) in seen


@LEVELS
@pytest.mark.parametrize("cut", ["cancel", "close", "close(0)"])
@pytest.mark.parametrize("work", OTHERS)
def test_an_abort_and_a_preparation_never_commit(work: str, cut: str, level: int) -> None:
    seen = at_every_turn(OTHERS[work], (GENTLE | HARSH)[cut], level)
    assert set(seen) == {(Report.NOT_COMMITTED, False)}
