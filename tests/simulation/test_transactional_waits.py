"""The checks of transactional producers that wait, and of the rare transactions at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operations import OperationKind
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    FatalTransactionError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    TransactionalIdAuthorizationFailedError,
)
from aioproducer.testing.broker.faults import Faults
from aioproducer.testing.broker.settings import ApiVersions, ClusterSettings
from aioproducer.testing.broker.transactions.groups import GroupOffset
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.types import OffsetAndMetadata, Record, TopicPartition
from aioproducer.wire.api_keys import ApiKey
from simulation.ledger import Ledger
from simulation.transactions.book import Outcome, TransactionBook, TransactionEntry
from simulation.transactions.calm import (
    begin_after_a_downgrade,
    begin_while_refused,
    commit_amid_a_bulk_call,
    commit_before_abort,
    commit_positions_alone,
    commit_with_a_refused_row,
    read_a_position_amid_a_commit,
)
from simulation.transactions.contents import Contents
from simulation.transactions.oracles import ends_have_the_errors_of_their_causes
from simulation.transactions.waiting import broken_in_transactions

_STATES = TransactionState
_PLACE = TopicPartition("t", 0)


def _broken(
    state: TransactionState,
    *batches: object,
    waits: OperationKind | None = None,
    gate_is_open: bool | None = None,
) -> list[str]:
    """Return what is complained about of a producer in this state; its gate fits by default."""
    manager = TransactionManager("x", 1000)
    manager.state = state
    if waits is not None:
        manager._operations.start(waits)
    is_open = state is _STATES.IN_TRANSACTION if gate_is_open is None else gate_is_open
    fast_path = SimpleNamespace(check_transaction=None if is_open else manager.check_send)
    engine: Any = SimpleNamespace(
        transactions=SimpleNamespace(manager=manager),
        appender=SimpleNamespace(fast_path=fast_path),
        accumulator=SimpleNamespace(incomplete=lambda: batches, sequencer=_sequencer()),
    )
    return list(broken_in_transactions(engine, 1.0))


def _sequencer(identity: ProducerIdentity | None = None, **state: object) -> Any:
    """Return a sequencer whose partition has a batch that waits for a retry."""
    defaults = {"unwritten_from": (1,), "in_flight": [SimpleNamespace(pins=0)]}
    partition = SimpleNamespace(identity=identity, **defaults | state)
    return SimpleNamespace(_partitions={} if identity is None else {_PLACE: partition})


@pytest.mark.parametrize(
    ("transaction", "identity", "changed", "found"),
    [
        (_STATES.IN_TRANSACTION, 4, {}, 1),
        (_STATES.COMMITTING, 4, {}, 1),
        (_STATES.ABORTABLE_ERROR, 4, {}, 0),
        (_STATES.IN_TRANSACTION, 3, {}, 0),
        (_STATES.IN_TRANSACTION, 4, {"unwritten_from": None}, 0),
        (_STATES.IN_TRANSACTION, 4, {"in_flight": [SimpleNamespace(pins=1)]}, 0),
    ],
)
def test_a_transaction_with_batches_that_cannot_be_sent_in_its_epoch_is_found_out(
    transaction: TransactionState, identity: int, changed: Mapping[str, object], found: int
) -> None:
    manager = TransactionManager("x", 1000)
    manager.state, manager.identity = transaction, ProducerIdentity(1, 4)
    sequencer = _sequencer(ProducerIdentity(1, identity), **changed)
    is_open = transaction is _STATES.IN_TRANSACTION
    gate = SimpleNamespace(check_transaction=None if is_open else manager.check_send)
    engine: Any = SimpleNamespace(
        transactions=SimpleNamespace(manager=manager),
        appender=SimpleNamespace(fast_path=gate),
        accumulator=SimpleNamespace(incomplete=list, sequencer=sequencer),
    )
    assert len(list(broken_in_transactions(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("state", "found"),
    [(_STATES.ABORTING, 1), (_STATES.ABORTABLE_ERROR, 1), (_STATES.COMMITTING, 0)],
)
def test_additions_of_an_aborted_transaction_are_found_out(
    state: TransactionState, found: int
) -> None:
    manager = TransactionManager("x", 1000)
    manager.state = state
    manager.contents.use(_PLACE)
    engine: Any = SimpleNamespace(
        transactions=SimpleNamespace(manager=manager),
        appender=SimpleNamespace(fast_path=SimpleNamespace(check_transaction=manager.check_send)),
        accumulator=SimpleNamespace(incomplete=list, sequencer=_sequencer()),
    )
    assert len(list(broken_in_transactions(engine, 1.0))) == found


@pytest.mark.parametrize(
    ("state", "pins", "has_sequence", "found"),
    [
        (_STATES.ABORTING, 0, False, 1),
        (_STATES.ABORTABLE_ERROR, 0, False, 1),
        (_STATES.ABORTING, 1, False, 0),
        (_STATES.ABORTING, 0, True, 0),
        (_STATES.COMMITTING, 0, False, 0),
    ],
)
def test_a_record_of_an_aborted_transaction_that_waits_is_found_out(
    state: TransactionState, pins: int, has_sequence: bool, found: int
) -> None:
    batch = SimpleNamespace(pins=pins, has_sequence=has_sequence, topic_partition=_PLACE)
    assert len(_broken(state, batch)) == found


@pytest.mark.parametrize("state", [_STATES.COMMITTING, _STATES.IN_TRANSACTION])
def test_a_fast_path_that_does_not_fit_the_state_is_found_out(state: TransactionState) -> None:
    assert len(_broken(state, gate_is_open=state is not _STATES.IN_TRANSACTION)) == 1
    assert _broken(state) == []


@pytest.mark.parametrize(
    ("waits", "state", "found"),
    [
        (OperationKind.BEGIN, _STATES.UNINITIALIZED, 1),
        (OperationKind.BEGIN, _STATES.INITIALIZING, 0),
        (OperationKind.COMMIT, _STATES.ABORTABLE_ERROR, 1),
        (OperationKind.COMMIT, _STATES.COMMITTING, 0),
    ],
)
def test_a_call_that_waits_for_another_state_is_found_out(
    waits: OperationKind, state: TransactionState, found: int
) -> None:
    assert len(_broken(state, waits=waits)) == found


@pytest.mark.parametrize(
    ("cause", "old_brokers", "found"),
    [
        (IllegalGenerationError(), False, 1),
        (IllegalGenerationError(), True, 1),
        (InvalidProducerEpochError(), False, 1),
        (InvalidProducerEpochError(), True, 0),
        (InvalidTxnStateError(), False, 0),
    ],
)
def test_an_end_that_an_abort_would_have_been_enough_for_is_found_out(
    cause: KafkaError, old_brokers: bool, found: int
) -> None:
    error = FatalTransactionError().because_of(cause)
    versions: ApiVersions = {ApiKey.INIT_PRODUCER_ID: (0, 2)} if old_brokers else {}
    cluster = SimpleNamespace(settings=ClusterSettings(api_versions=versions), brokers=[1])
    reading: Any = SimpleNamespace(
        evidence=SimpleNamespace(cluster=cluster),
        book=SimpleNamespace(actors=[SimpleNamespace(name="a.1", ended_with=error)]),
    )
    assert len(list(ends_have_the_errors_of_their_causes(reading))) == found


@pytest.mark.parametrize(("left", "found"), [([], 1), ([object()], 0)])
def test_a_call_without_an_outcome_that_adds_nothing_is_found_out(
    left: list[object], found: int
) -> None:
    async def no_outcome(offsets: object, group: str) -> None:
        raise KafkaTimeoutError

    ledger, manager = Ledger(), SimpleNamespace(contents=SimpleNamespace(_offsets=left))
    producer = SimpleNamespace(
        engine=SimpleNamespace(transactions=SimpleNamespace(manager=manager)),
        send_offsets_to_transaction=no_outcome,
    )
    contents: Any = SimpleNamespace(_producer=producer, _context=SimpleNamespace(ledger=ledger))
    with pytest.raises(KafkaTimeoutError):
        _run(Contents._add_offsets(contents, TransactionBook().begin("a", 0.0), "group"))
    assert len(ledger.false_reports) == found


class _Calls:
    """The calls of an actor and its producer; `begins` is what `begin_transaction` raises."""

    def __init__(self, begins: KafkaError | None = None, *, v2: bool = False) -> None:
        self.entry = SimpleNamespace(name="a")
        self.called: list[str] = []
        manager = SimpleNamespace(uses_v2=v2)
        self.engine = SimpleNamespace(transactions=SimpleNamespace(manager=manager))
        self._begins = begins

    @property
    def producer(self) -> _Calls:
        return self

    async def calm_transaction(
        self, fill: Callable[[TransactionEntry], Awaitable[None]]
    ) -> TransactionEntry:
        tx = TransactionBook().begin("a", 0.0)
        await fill(tx)
        return tx

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, object], group: str
    ) -> None:
        self.called.append("offsets")

    async def prepare_transaction(self) -> None:
        self.called.append("prepare")

    async def begin_transaction(self) -> None:
        self.called.append("begin")
        if self._begins is not None:
            raise self._begins

    async def init_transactions(self) -> None:
        self.called.append("init")

    async def abort_transaction(self) -> None:
        self.called.append("abort")


def _run(work: Awaitable[None]) -> None:
    async def run() -> None:
        await work

    loop = VirtualLoop(random.Random(1))
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("found", "reports"),
    [
        (GroupOffset(7, 0, "metadata"), 0),
        (GroupOffset(7, 0, ""), 1),
        (GroupOffset(7, -1, "metadata"), 1),
        (None, 1),
    ],
)
def test_a_position_that_is_not_committed_as_it_was_given_is_found_out(
    found: GroupOffset | None, reports: int
) -> None:
    ledger, actor = Ledger(), _Calls()
    offsets = {} if found is None else {_PLACE: found}
    groups = SimpleNamespace(groups={"of a": SimpleNamespace(offsets=offsets)})
    cluster: Any = SimpleNamespace(groups=groups)
    calls: Any = actor
    _run(commit_positions_alone(calls, "t", cluster, ledger))
    assert (actor.called, len(ledger.false_reports)) == (["offsets"], reports)


def _calm_transaction(
    outcome: Outcome, end: Callable[[], None] = lambda: None
) -> Callable[[Callable[[TransactionEntry], Awaitable[None]]], Awaitable[TransactionEntry]]:
    """Return an actor's `calm_transaction`, whose transaction ends with the outcome."""

    async def calm_transaction(
        fill: Callable[[TransactionEntry], Awaitable[None]],
    ) -> TransactionEntry:
        tx = TransactionBook().begin("a", 0.0)
        await fill(tx)
        end()
        tx.report(outcome)
        return tx

    return calm_transaction


@pytest.mark.parametrize(
    ("outcome", "waits", "reports"),
    [
        (Outcome.COMMITTED, True, 0),
        (Outcome.REFUSED, True, 0),
        (Outcome.COMMITTED, False, 1),
    ],
)
def test_a_position_that_is_read_before_its_transaction_ends_is_found_out(
    outcome: Outcome, waits: bool, reports: int
) -> None:
    ledger, actor = Ledger(), _Calls()
    positions: dict[TopicPartition, OffsetAndMetadata] = {}

    def end() -> None:
        if outcome is Outcome.COMMITTED:
            positions[_PLACE] = OffsetAndMetadata(0, "metadata", 0)

    class Admin:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            pass

        async def committed_offsets(self, group: str, places: object) -> dict[Any, Any]:
            found = dict(positions)
            await asyncio.sleep(1.0 if waits else 0.0)
            return dict(positions) if waits else found

    calls: Any = SimpleNamespace(
        calm_transaction=_calm_transaction(outcome, end), producer=actor, entry=actor.entry
    )
    admin: Any = Admin()
    _run(read_a_position_amid_a_commit(calls, "t", admin, 0.001, ledger))
    assert (actor.called, len(ledger.false_reports)) == (["offsets"], reports)


def _begin_while_refused(calls: Any, versions: ApiVersions, ledger: Ledger) -> int:
    """Return how many requests would be refused by then."""
    faults = Faults()
    cluster = SimpleNamespace(
        settings=ClusterSettings(api_versions=versions), brokers=[1], faults=faults
    )
    world: Any = SimpleNamespace(cluster=cluster, brokers={})
    _run(begin_while_refused(calls, world, ledger))
    return len(faults._errors)


def test_a_call_that_waits_for_an_epoch_that_is_refused_is_initialized_again() -> None:
    ledger, actor = Ledger(), _Calls(TransactionalIdAuthorizationFailedError())
    assert _begin_while_refused(actor, {}, ledger) == 1
    assert (actor.called, ledger.false_reports) == (["prepare", "begin", "init"], [])


def test_a_call_that_hangs_when_its_epoch_is_refused_is_found_out() -> None:
    ledger, actor = Ledger(), _Calls(KafkaTimeoutError())
    with pytest.raises(KafkaTimeoutError):
        _begin_while_refused(actor, {}, ledger)
    assert len(ledger.false_reports) == 1


@pytest.mark.parametrize(
    ("v2", "versions"), [(True, {}), (False, {ApiKey.INIT_PRODUCER_ID: (0, 2)})]
)
def test_no_epoch_is_refused_where_a_prepared_transaction_needs_none(
    v2: bool, versions: ApiVersions
) -> None:
    actor = _Calls(v2=v2)
    assert _begin_while_refused(actor, versions, Ledger()) == 0
    assert actor.called == []


@pytest.mark.parametrize(
    ("v2", "says_aborted", "outcome", "found"),
    [
        (True, True, Outcome.COMMITTED, 1),
        (True, False, Outcome.COMMITTED, 0),
        (True, True, Outcome.REFUSED, 0),
        (False, True, Outcome.COMMITTED, 0),
    ],
)
def test_a_committed_transaction_that_is_said_to_be_aborted_is_found_out(
    v2: bool, says_aborted: bool, outcome: Outcome, found: int
) -> None:
    ledger, book, calls = Ledger(), TransactionBook(), _Calls(v2=v2)
    found_open: Any = SimpleNamespace(transactional_id="a")

    async def leave_open(entries: object, *, in_block: bool) -> None:
        book.begin("a", 0.0)

    async def commit_last() -> None:
        book.transactions[-1].report(outcome)

    class Admin:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            pass

        async def abort_orphans(self, name: str) -> list[Any]:
            await commit_last()
            return [found_open] if says_aborted else []

    actor: Any = SimpleNamespace(
        producer=calls, entry=found_open, leave_open=leave_open, commit_last=commit_last
    )
    admin: Any = Admin()
    entry: Any = None
    _run(commit_before_abort(actor, entry, admin, book, ledger))
    assert book.transactions[-1].outcome is outcome
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.REFUSED])
def test_a_commit_without_a_refused_row_is_found_out(outcome: Outcome) -> None:
    ledger, rows = Ledger(), []

    async def send_many(topic: str, items: list[Record]) -> None:
        rows.extend(items)

    producer = SimpleNamespace(send_many=send_many)
    actor: Any = SimpleNamespace(calm_transaction=_calm_transaction(outcome), producer=producer)
    _run(commit_with_a_refused_row(actor, "t", ledger))
    assert [row.partition for row in rows] == [-1]
    assert len(ledger.false_reports) == (outcome is Outcome.COMMITTED)


@pytest.mark.parametrize(
    ("outcome", "end_is_out", "found"),
    [
        (Outcome.COMMITTED, False, 1),
        (Outcome.COMMITTED, True, 0),
        (Outcome.REFUSED, False, 0),
    ],
)
def test_a_commit_amid_a_bulk_call_is_found_out(
    outcome: Outcome, end_is_out: bool, found: int
) -> None:
    ledger, sent, contents = Ledger(), [], SimpleNamespace(may_have_ended=False)

    def end() -> None:
        contents.may_have_ended = end_is_out

    async def send(entry: object) -> None:
        sent.append(entry)

    async def send_many(topic: str, items: AsyncIterator[Record]) -> None:
        sent.extend([row.partition async for row in items])

    manager = SimpleNamespace(contents=contents, number=1, over=0)
    engine = SimpleNamespace(transactions=SimpleNamespace(manager=manager))
    actor: Any = SimpleNamespace(
        calm_transaction=_calm_transaction(outcome, end),
        contents=SimpleNamespace(send=send),
        producer=SimpleNamespace(engine=engine, send_many=send_many),
    )
    entry: Any = SimpleNamespace(topic="t")
    _run(commit_amid_a_bulk_call(actor, entry, ledger))
    assert (sent, len(ledger.false_reports)) == ([entry, -1], found)


@pytest.mark.parametrize(
    ("before", "after", "found"), [(True, True, 1), (True, False, 0), (False, False, 0)]
)
def test_a_downgrade_that_is_not_noticed_is_found_out(
    before: bool, after: bool, found: int
) -> None:
    ledger, calls, sent = Ledger(), _Calls(v2=before), []
    levels: list[int] = []

    async def send(entry: object) -> None:
        sent.append(entry)
        calls.engine.transactions.manager.uses_v2 = after

    actor: Any = SimpleNamespace(
        producer=calls,
        entry=calls.entry,
        contents=SimpleNamespace(send=send),
        calm_transaction=calls.calm_transaction,
    )
    cluster = SimpleNamespace(set_transaction_version=levels.append)
    world: Any = SimpleNamespace(cluster=cluster, brokers={})
    entries: Any = [object(), object()]
    _run(begin_after_a_downgrade(actor, entries, world, ledger))
    assert (levels, sent) == (([0], entries) if before else ([], []))
    assert len(ledger.false_reports) == found
