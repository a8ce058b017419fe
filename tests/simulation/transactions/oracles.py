"""Rules for transactions that must hold after a run, whatever went wrong during it.

Owns: the guarantees of transactional producers as checks on the books, the logs read by a committed
reader, and the groups' positions. Not here: which faults struck.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from aioproducer.core.transactions.requests import FIRST_INIT_WITH_IDENTITY
from aioproducer.errors import (
    AuthorizationError,
    BufferExhaustedError,
    FatalTransactionError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    OperationNotAttemptedError,
    ProducerFencedError,
    RecordTooLargeError,
    UnknownMemberIdError,
)
from aioproducer.records.batch import DecodedRecord
from aioproducer.testing.broker.transactions.states import V2
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey
from simulation.evidence import Evidence, Log, name_of
from simulation.ledger import CallState, Entry
from simulation.oracles import Violation
from simulation.releases import all_have_v2, all_serve
from simulation.transactions.book import Outcome, TransactionBook, TransactionEntry
from simulation.transactions.view import CommittedView, committed_views

_LOSSES = (AuthorizationError, InvalidTopicError, KafkaTimeoutError, RecordTooLargeError)
"""Refusals of `send` after which a transaction cannot be committed."""
_ENDS_OF_WAITS = (BufferExhaustedError, MetadataTimeoutError)
"""Errors that only `send` raises."""
_STATE_ERRORS = (InvalidTxnStateError, InvalidProducerIdMappingError)
_END_NO_PRODUCER = (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    UnknownMemberIdError,
)
"""What a group coordinator refuses positions with: an abort is enough (Java: the same)."""
_FENCE = (InvalidProducerEpochError, ProducerFencedError)
_SAY_FENCED = frozenset({47, 59, 90})
"""Codes that a script answers in place of the coordinator; 59 asks for an epoch at any moment."""


class _Seen(NamedTuple):
    """One visible copy of a record."""

    log: Log
    offset: int


class _Reading:
    """The run as a committed reader and the books show it."""

    def __init__(self, e: Evidence, book: TransactionBook) -> None:
        self.evidence = e
        self.book = book
        self.views: dict[Log, CommittedView] = committed_views(e, book)
        self.seen: dict[bytes, list[_Seen]] = defaultdict(list)
        for log, view in self.views.items():
            for record in view.records.values():
                if log.number >= e.first_logs[name_of(record)]:
                    self.seen[name_of(record)].append(_Seen(log, record.offset))
        self.contents: dict[int, list[Entry]] = defaultdict(list)
        for entry in e.ledger.entries:
            if entry.transaction is not None:
                self.contents[entry.transaction].append(entry)

    def is_visible(self, tx: TransactionEntry) -> bool | None:
        """True if any of it is visible; None if that is unknown, since it has no records."""
        certain = [each for each in self.contents[tx.number] if each.state is CallState.ACCEPTED]
        return any(each.name in self.seen for each in certain) if certain else None

    def records(self, where: TopicPartition) -> dict[int, DecodedRecord]:
        """Return what a committed reader gets of a partition, by offset."""
        logs = [log for log in self.views if log.where == where]
        return self.views[logs[-1]].records if logs else {}


def judge_transactions(evidence: Evidence) -> list[Violation]:
    """Every violation of every guarantee about transactions; none in a run without any."""
    if evidence.transactions is None:
        return []
    reading = _Reading(evidence, evidence.transactions)
    return [Violation(oracle.__name__, text) for oracle in ORACLES for text in oracle(reading)]


# -- the guarantees --------------------------------------------------------------------------------


def no_commit_after_a_refusal(r: _Reading) -> Iterator[str]:
    """No commit returns if a record was refused while the transaction was open."""
    for tx in r.book.transactions:
        closed_at = tx.closed_at
        if tx.outcome is not Outcome.COMMITTED or closed_at is None:
            continue
        for entry in r.contents[tx.number]:
            settled = entry.settled_at
            if entry.state is not CallState.REFUSED or settled is None or settled >= closed_at:
                continue
            if isinstance(entry.error, _LOSSES):
                yield f"{tx.label} is committed although {entry.label} failed: {entry.error}"


def no_commit_after_a_loss(r: _Reading) -> Iterator[str]:
    """No commit returns if its producer had reported the loss of one of the records before."""
    for tx in r.book.transactions:
        closed_at = tx.closed_at
        if tx.outcome is not Outcome.COMMITTED or closed_at is None:
            continue
        names = {entry.name for entry in r.contents[tx.number] if entry.is_acknowledged}
        for alarm in r.evidence.ledger.alarms:
            if alarm.to == f"producer {tx.actor}" and alarm.at < closed_at and names & alarm.lost:
                yield f"{tx.label} is committed although {alarm.where} had lost records of it"


def refusals_name_their_cause(r: _Reading) -> Iterator[str]:
    """No transaction fails for a partition that was not attempted: another one has the cause.

    Unless a response has left that one out.
    """
    if OperationNotAttemptedError.code in r.evidence.scripted_codes:
        return
    for tx in r.book.transactions:
        cause = None if tx.refusal is None else tx.refusal.__cause__
        if isinstance(cause, OperationNotAttemptedError):
            yield f"{tx.label} has failed with {tx.refusal!r}"


def no_transaction_fails_for_records_of_others(r: _Reading) -> Iterator[str]:
    """A transaction that fails by a refusal of `send` has a record that was refused."""
    for tx in r.book.transactions:
        cause = None if tx.refusal is None else tx.refusal.__cause__
        if type(cause) not in _ENDS_OF_WAITS:
            continue
        entries = r.contents[tx.number]
        if not any(each.state is CallState.UNKNOWN or each.error for each in entries):
            yield f"{tx.label} has failed with {tx.refusal!r}, and none of its records was refused"


def records_belong_to_a_transaction(r: _Reading) -> Iterator[str]:
    """No record is accepted outside of one."""
    for entry in r.evidence.ledger.entries:
        if entry.transaction is None and entry.state is CallState.ACCEPTED:
            yield f"{entry.label} was accepted outside of any transaction"


def sends_do_not_outlive_their_transaction(r: _Reading) -> Iterator[str]:
    """No send that began in one transaction is accepted after the next has begun."""
    last: dict[str, TransactionEntry] = {}
    for tx in r.book.transactions:
        before, last[tx.actor] = last.get(tx.actor), tx
        for entry in () if before is None else r.contents[before.number]:
            settled = entry.settled_at
            if entry.state is CallState.ACCEPTED and settled is not None and settled > tx.began_at:
                yield f"{entry.label}, sent in the one before, was accepted in {tx.label}"


def a_fenced_producer_is_done(r: _Reading) -> Iterator[str]:
    """Commits of an older incarnation never become visible once a newer one is ready."""
    actors = {actor.name: actor for actor in r.book.actors}
    for tx in r.book.transactions:
        owner, asked_at = actors[tx.actor], tx.commit_asked_at
        newer = [
            actor
            for actor in r.book.actors
            if actor.transactional_id == owner.transactional_id
            and actor.number > owner.number
            and actor.ready_at is not None
            and asked_at is not None
            and actor.ready_at < asked_at
        ]
        if newer and tx.outcome is Outcome.COMMITTED and r.is_visible(tx) is not None:
            yield f"{tx.label} is committed after {newer[0].name} was ready"
        elif newer and r.is_visible(tx):
            yield f"{tx.label} is visible, and {newer[0].name} was ready before its commit"


def no_producer_fences_itself(r: _Reading) -> Iterator[str]:
    """A producer is fenced by another incarnation, by its timeout, or by a request it had given up.

    Nor is there another reason for it to fail because its transaction is in another state, or its
    producer id is of no transaction while the cluster is the same.

    The last: in V1 an addition that is carried out late, between the abort that a producer sends
    for fear of it and the request for the next epoch that follows, begins a transaction. The
    coordinator answers as if another incarnation had been initialized.

    Nor where some brokers lack V2: if the newer incarnation has ended a transaction by V1, the
    coordinator takes an end by V2 of the older one for a repeated one, and gives it the epoch.
    """
    mixes = r.evidence.cluster.transaction_version >= V2 and not all_have_v2(r.evidence.cluster)
    if mixes or r.evidence.scripted_codes & _SAY_FENCED:
        return
    refusals = [each for each in _STATE_ERRORS if each.code not in r.evidence.scripted_codes]
    if r.evidence.cluster.number:
        refusals = [each for each in refusals if each is not InvalidProducerIdMappingError]
    for actor in r.book.actors:
        error = actor.ended_with
        cause = error.__cause__ if isinstance(error, FatalTransactionError) else None
        if (
            isinstance(cause, tuple(refusals)) or isinstance(error, ProducerFencedError)
        ) and not actor.was_shut_out:
            yield f"{actor.name} ends by {error!r}, not by another one or its timeout"


def ends_have_the_errors_of_their_causes(r: _Reading) -> Iterator[str]:
    """A producer that is fenced says so, and none ends by what an abort is enough for.

    Not where brokers give no new epoch: each failed batch ends a producer there.
    """
    has_epochs = all_serve(r.evidence.cluster, ApiKey.INIT_PRODUCER_ID, FIRST_INIT_WITH_IDENTITY)
    wrong = (*_END_NO_PRODUCER, *_FENCE) if has_epochs else _END_NO_PRODUCER
    for actor in r.book.actors:
        error = actor.ended_with
        if isinstance(error, FatalTransactionError) and isinstance(error.__cause__, wrong):
            yield f"{actor.name} ends by {error!r}, because of {error.__cause__!r}"


def what_is_prepared_waits(r: _Reading) -> Iterator[str]:
    """Before a decision only its timeout and an incarnation end a prepared transaction.

    A newer one does at any time. An older one does by asking for its next epoch: the coordinator
    aborts what runs before it compares epochs. No producer can detect that it was replaced, so
    that is not a fault; but only the transaction of a newer epoch than the one it names may be
    lost to it. Or its first request is delayed until a newer one is ready: the coordinator cannot
    detect which of the two started later.
    """
    timeout = r.evidence.config.transaction_timeout_ms / 1000
    coordinators = r.evidence.cluster.transactions
    actors = {actor.name: actor for actor in r.book.actors}
    for tx in r.book.transactions:
        lost_at, owner = tx.lost_at, actors[tx.actor]
        if lost_at is None or lost_at - tx.began_at >= timeout:
            continue
        others = [
            actor
            for actor in r.book.actors
            if actor.transactional_id == owner.transactional_id and actor.number != owner.number
        ]
        if tx.prepared is not None:
            identity = (tx.prepared.producer_id, tx.prepared.epoch)
            if identity in coordinators.overtaken:
                continue
            if identity in coordinators.displaced and any(
                actor.number < owner.number and actor.ready_at is None for actor in others
            ):
                continue
        if not any(
            actor.number > owner.number and actor.appeared_at <= lost_at for actor in others
        ):
            yield f"{tx.label} was prepared, and had ended by itself at {lost_at:.3f}"


def reports_of_an_end_agree(r: _Reading) -> Iterator[str]:
    """All processes that ask, however often, get the same end."""
    for tx in r.book.transactions:
        for contradiction in tx.contradictions:
            yield f"{tx.label}: {contradiction}"


def nothing_stays_open(r: _Reading) -> Iterator[str]:
    """Every transaction is decided in the end, in every log."""
    for log, view in r.views.items():
        for producer_id, records in view.undecided.items():
            offset = records[0].offset
            yield f"{log}: a transaction of producer {producer_id} is open from {offset} on"
    for name, transaction in r.evidence.cluster.transactions.transactions.items():
        if transaction.is_pending:
            yield f"the transaction of {name} is {transaction.state.value}"


def order_of_a_transaction_is_kept(r: _Reading) -> Iterator[str]:
    """Visible records of one task are in a partition in the order of `send`."""
    for tx in r.book.transactions:
        last: dict[tuple[int, Log], tuple[int, Entry]] = {}
        for entry in r.contents[tx.number]:
            if entry.task < 0:
                continue
            for log, offset in r.seen.get(entry.name, ()):
                before = last.get((entry.task, log))
                if before is not None and before[0] >= offset:
                    yield f"{entry.label} was sent after {before[1].label} and is before it"
                last[entry.task, log] = (offset, entry)


def positions_agree_with_records(r: _Reading) -> Iterator[str]:
    """A group's position is the one of the last visible transaction that moved it."""
    wanted: dict[tuple[str, TopicPartition], int] = defaultdict(int)
    possible: dict[tuple[str, TopicPartition], int] = defaultdict(int)
    for tx in r.book.transactions:
        if tx.group is None:
            continue
        visible = r.is_visible(tx)
        if visible is None and not tx.must_be_absent:
            visible = True if tx.outcome is Outcome.COMMITTED else None
        moved = [tx.group, *([tx.copy_group] if tx.copy_group else [])]
        for key in [(group, where) for group in moved for where in tx.offsets]:
            offset = tx.offsets[key[1]]
            if visible:
                wanted[key] = max(wanted[key], offset)
            if visible or (visible is None and not tx.must_be_absent):
                possible[key] = max(possible[key], offset)
    groups = r.evidence.cluster.groups.groups
    for (group, where), offset in sorted(wanted.items() | possible.items()):
        found = groups[group].offsets.get(where) if group in groups else None
        committed = 0 if found is None else found.offset
        if not wanted[group, where] <= committed <= possible[group, where]:
            yield (
                f"{group} is at {committed} of {where.topic}-{where.partition}, visible "
                f"transactions say {offset}"
            )


def client_protocol_is_kept(r: _Reading) -> Iterator[str]:
    """Every process keeps the rules of `protocol_checks`."""
    yield from r.book.complaints


def transforms_are_exactly_once(r: _Reading) -> Iterator[str]:
    """Of every committed record before a group's position one output is visible, of others none."""
    made: dict[str, Counter[tuple[TopicPartition, int]]] = defaultdict(Counter)
    for tx in r.book.transactions:
        for entry in r.contents[tx.number]:
            if entry.source is not None and tx.group is not None and entry.name in r.seen:
                made[tx.group][entry.source.where, entry.source.offset] += 1
    for group, outputs in made.items():
        offsets = r.evidence.cluster.groups.groups[group].offsets
        for (where, offset), count in sorted(outputs.items()):
            at = offsets[where].offset if where in offsets else 0
            if count > 1:
                yield f"{count} visible outputs of {where.topic}-{where.partition}@{offset}"
            if offset >= at:
                yield f"a visible output of {where.partition}@{offset}, the position is {at}"
            if offset not in r.records(where):
                yield f"a visible output of {where.partition}@{offset}, which is not committed"
        for where, position in offsets.items():
            for offset in r.records(where):
                if offset < position.offset and not outputs[where, offset]:
                    yield f"no output of {where.topic}-{where.partition}@{offset} is visible"


ORACLES = (
    no_commit_after_a_refusal,
    no_commit_after_a_loss,
    refusals_name_their_cause,
    no_transaction_fails_for_records_of_others,
    records_belong_to_a_transaction,
    sends_do_not_outlive_their_transaction,
    a_fenced_producer_is_done,
    no_producer_fences_itself,
    ends_have_the_errors_of_their_causes,
    what_is_prepared_waits,
    reports_of_an_end_agree,
    nothing_stays_open,
    order_of_a_transaction_is_kept,
    positions_agree_with_records,
    transforms_are_exactly_once,
    client_protocol_is_kept,
)
