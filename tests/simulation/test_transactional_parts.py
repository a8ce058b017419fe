"""Parts of transactional runs: the committed view, the protocol checks, the consumer."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    ConcurrentTransactionsError,
    FatalTransactionError,
    IllegalStateError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    NotCoordinatorError,
    OperationNotAttemptedError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
)
from aioproducer.net.dial.dialer import Address
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch, parse_header
from aioproducer.testing.broker import BrokerSpec, ClusterSettings, TopicSpec
from aioproducer.testing.broker.log import PartitionLog, StoredBatch
from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.settings import TopicConfig
from aioproducer.testing.broker.transactions.groups import GroupMember, GroupOffset
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.testing.framing import encode_response
from aioproducer.testing.world.cluster import ReplicationTiming, SimCluster
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.network import SimConnection, SimNetwork
from aioproducer.testing.world.trace import Trace
from aioproducer.types import ConsumerGroupMetadata, Persistence, TopicPartition
from aioproducer.wire.framing import encode_request
from aioproducer.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aioproducer.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from aioproducer.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.wire.schema import Message
from simulation.evidence import Log
from simulation.ledger import CallState, Ledger
from simulation.transactions.actor import Actor
from simulation.transactions.book import Outcome, TransactionBook
from simulation.transactions.caller import Caller, GaveUpError
from simulation.transactions.consumer import SimConsumer
from simulation.transactions.line import Line
from simulation.transactions.oracles import (
    no_producer_fences_itself,
    no_transaction_fails_for_records_of_others,
    positions_agree_with_records,
    refusals_name_their_cause,
)
from simulation.transactions.plan import Seat
from simulation.transactions.play import TransactionalPlay
from simulation.transactions.protocol_checks import ClientProtocolChecks, ConnectionWatch
from simulation.transactions.view import committed_view, committed_views

_NOW_MS = 1_700_000_000_000
_BEFORE_V2, _V2 = 11, 12


def _batch(names: Sequence[bytes], producer_id: int = 1, epoch: int = 0) -> bytes:
    builder = RecordBatchBuilder(bytearray(1000))
    for name in names:
        builder.try_append(_NOW_MS, None, name, ())
    encoded = encode_batch(
        builder.body(),
        count=len(names),
        base_timestamp=_NOW_MS,
        max_timestamp=_NOW_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    return b"".join(bytes(part) for part in encoded.buffers)


# -- the committed view ----------------------------------------------------------------------------


def _log(*written: bytes) -> Sequence[StoredBatch]:
    log = PartitionLog()
    for data in written:
        count = parse_header(data).count
        log.append(data, count=count, max_timestamp=_NOW_MS, leader_epoch=0)
    return log.batches


def _marker(producer_id: int, *, commits: bool) -> bytes:
    return Marker(producer_id, 0, commits, 0).encode(_NOW_MS)


def test_a_committed_reader_sees_what_markers_commit_and_nothing_else() -> None:
    view = committed_view(
        _log(
            _batch([b"<a>", b"<b>"], producer_id=1),
            _batch([b"<c>"], producer_id=2),
            _marker(1, commits=True),
            _marker(2, commits=False),
            _batch([b"<d>"], producer_id=1),
        )
    )
    assert [record.value for record in view.records.values()] == [b"<a>", b"<b>"]
    assert view.aborted == {2}
    assert [(key, each.value) for key, [each] in view.undecided.items()] == [(1, b"<d>")]


@pytest.mark.parametrize(
    ("is_deleted", "outcome", "elsewhere", "shown"),
    [
        (True, Outcome.COMMITTED, False, True),
        (True, Outcome.UNREPORTED, True, True),
        (True, Outcome.UNREPORTED, False, False),
        (False, Outcome.COMMITTED, True, False),
    ],
)
def test_a_transaction_open_in_a_deleted_log_has_the_end_that_it_has_elsewhere(
    is_deleted: bool, outcome: Outcome, elsewhere: bool, shown: bool
) -> None:
    book = TransactionBook()
    book.begin("a", 0.0).outcome = outcome
    logs = [Log(TopicPartition("t", index), 0) for index in range(2)]
    written = [
        _log(_batch([b"<a>"])),
        _log(_batch([b"<b>"]), _marker(1, commits=elsewhere)),
    ]
    evidence: Any = SimpleNamespace(
        traced_partitions=[
            (log, SimpleNamespace(log=SimpleNamespace(batches=batches)))
            for log, batches in zip(logs, written, strict=True)
        ],
        deleted_logs=frozenset(logs[:is_deleted]),
        ledger=SimpleNamespace(
            entries=[SimpleNamespace(name=name, transaction=0) for name in (b"<a>", b"<b>")]
        ),
    )
    view = committed_views(evidence, book)[logs[0]]
    assert bool(view.records) is shown
    assert bool(view.undecided) is not is_deleted


def test_a_repeated_marker_decides_nothing_anew() -> None:
    view = committed_view(
        _log(_batch([b"<a>"]), _marker(1, commits=False), _marker(1, commits=False))
    )
    assert view == ({}, {0}, {})


# -- protocol checks -------------------------------------------------------------------------------


class _Process:
    """One process with one connection, and what was found wrong with it."""

    def __init__(
        self, backoff_s: float = 0.1, decides_about: ProducerIdentity | None = None
    ) -> None:
        self.complaints: list[str] = []
        cluster = SimCluster(
            [BrokerSpec(1, "b", 1)],
            settings=ClusterSettings(),
            rng=random.Random(1),
            loop=VirtualLoop(random.Random(1)),
            trace=Trace(lambda: 0.0),
            timing=ReplicationTiming(),
        )
        cluster.loop.close()
        self.checks: ClientProtocolChecks = ClientProtocolChecks(
            "p", cluster, self.complaints.append, backoff_s, decides_about
        )
        self._watch: ConnectionWatch = self.checks.watch()
        self._correlation_id = 0

    def asks(self, request: Message, version: int, answer: Message | None = None) -> None:
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, "p")
        self._watch.sent(frame[:5])
        self._watch.sent(frame[5:])
        if answer is not None:
            self._watch.received(encode_response(answer, version, self._correlation_id))

    def is_given(self, producer_id: int, epoch: int) -> None:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
        answer = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        self.asks(request, 4, answer)

    def produces(self, epoch: int, version: int = _V2, *, is_answered: bool = True) -> None:
        data = PartitionProduceData(index=0, records=_batch([b"<a>"], 1, epoch))
        request = ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=1,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        self.asks(request, version, ProduceResponse() if is_answered else None)

    def adds(self, code: int = 0, *, left_out: bool = False) -> None:
        result = AddPartitionsToTxnPartitionResult(0, code)
        answer = AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", [result])]
        )
        if left_out:
            answer.results_by_topic_v3_and_below.clear()
        topics = [AddPartitionsToTxnTopic("t", [0])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_topics=topics
        )
        self.asks(request, 3, answer)

    def commits(self, group: str, code: int = 0) -> None:
        request = TxnOffsetCommitRequest(transactional_id="x", group_id=group)
        result = TxnOffsetCommitResponsePartition(0, code)
        topic = TxnOffsetCommitResponseTopic("t", partitions=[result])
        self.asks(request, 4, TxnOffsetCommitResponse(topics=[topic]))

    def ends(self, epoch: int, answer: EndTxnResponse | None, version: int = 5) -> None:
        self.asks(EndTxnRequest("x", 1, epoch, committed=True), version, answer)

    def disconnects(self) -> None:
        self._watch.ended()


def test_a_well_behaved_process_is_not_complained_of() -> None:
    process = _Process()
    process.is_given(1, 0)
    process.produces(0)
    process.ends(0, EndTxnResponse(producer_id=1, producer_epoch=1))
    process.produces(1)
    process.is_given(1, 2)
    process.adds()
    process.produces(2, _BEFORE_V2)
    assert process.complaints == []


@pytest.mark.parametrize(
    ("misbehave", "complaint"),
    [
        (lambda process: process.produces(7), "writes as"),
        (lambda process: process.produces(0, _BEFORE_V2), "was not added"),
        (lambda process: (process.ends(0, None), process.produces(0)), "after its transaction's"),
        (
            lambda process: (process.produces(0, is_answered=False), process.ends(0, None)),
            "in flight",
        ),
        (lambda process: process.ends(7, None), "of another producer id"),
        (
            lambda process: (
                process.adds(),
                process.ends(0, EndTxnResponse(), version=4),
                process.produces(0, _BEFORE_V2),
            ),
            "was not added",
        ),
        (
            lambda process: (
                process.ends(0, EndTxnResponse(error_code=ProducerFencedError.code)),
                process.adds(),
            ),
            "was fenced before",
        ),
        (lambda process: (process.adds(left_out=True), process.adds()), "before its pause ends"),
        (
            lambda process: (process.adds(ConcurrentTransactionsError.code), process.adds()),
            "before its pause ends",
        ),
        (
            lambda process: (process.adds(), process.produces(0, _BEFORE_V2), process.produces(0)),
            "after an upgrade",
        ),
        (
            lambda process: (
                process.ends(0, EndTxnResponse(producer_id=1, producer_epoch=1)),
                process.adds(),
                process.produces(1, _BEFORE_V2),
            ),
            "after a downgrade",
        ),
        (
            lambda process: (
                process.adds(TopicAuthorizationFailedError.code),
                process.ends(0, None),
            ),
            "commits although an addition got 29",
        ),
        (
            lambda process: (
                process.adds(),
                process.ends(0, None, 4),
                process.disconnects(),
                process.ends(0, EndTxnResponse(), 4),
                process.adds(),
            ),
            "after a lost response",
        ),
    ],
)
def test_what_does_not_belong_is_complained_of(misbehave: object, complaint: str) -> None:
    process = _Process()
    process.is_given(1, 0)
    misbehave(process)  # type: ignore[operator]
    assert len(process.complaints) == 1
    assert complaint in process.complaints[0]


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    process = _Process(backoff_s=0.0)
    process.adds(NotCoordinatorError.code)
    lookup = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    process.asks(lookup, 4, FindCoordinatorResponse())
    process.adds(NotCoordinatorError.code)
    assert process.complaints == []
    process.adds()
    assert process.complaints == ["p sends ADD_PARTITIONS_TO_TXN to a coordinator that has moved"]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_response_before_an_earlier_one_is_not_received(is_answered: bool) -> None:
    process = _Process()
    process.is_given(1, 0)
    process.asks(
        FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        4,
        FindCoordinatorResponse() if is_answered else None,
    )
    process.adds(TopicAuthorizationFailedError.code)
    process.ends(0, None)
    assert len(process.complaints) == is_answered


def test_the_coordinator_of_another_group_than_the_one_that_has_moved_needs_no_lookup() -> None:
    process = _Process(backoff_s=0.0)
    process.commits("first", NotCoordinatorError.code)
    process.commits("second")
    process.asks(FindCoordinatorRequest(key_type=0, coordinator_keys=["second"]), 4)
    assert process.complaints == []
    process.commits("first")
    assert process.complaints == ["p sends TXN_OFFSET_COMMIT to a coordinator that has moved"]


def test_an_outsider_may_end_a_transaction_again_after_it_was_fenced() -> None:
    process = _Process(backoff_s=0.0, decides_about=ProducerIdentity(1, 3))
    process.ends(3, EndTxnResponse(error_code=ProducerFencedError.code))
    process.ends(3, EndTxnResponse(producer_id=1, producer_epoch=4))
    process.ends(3, EndTxnResponse(error_code=NotCoordinatorError.code))
    assert process.complaints == []
    process.ends(3, EndTxnResponse())
    assert process.complaints == ["p sends END_TXN to a coordinator that has moved"]


def test_an_outsider_that_calls_again_does_not_pause() -> None:
    process = _Process(decides_about=ProducerIdentity(1, 3))
    process.ends(3, EndTxnResponse(error_code=ConcurrentTransactionsError.code))
    process.checks.on_call()
    process.ends(3, EndTxnResponse(error_code=ConcurrentTransactionsError.code))
    assert process.complaints == []
    process.ends(3, EndTxnResponse())
    assert len(process.complaints) == 1


# -- a process's line ------------------------------------------------------------------------------


class _Listener:
    is_off = False

    def __init__(self) -> None:
        self.received = b""

    def accept(self, connection: SimConnection) -> _Listener:
        return self

    def data_received(self, data: bytes) -> None:
        self.received += data

    def peer_gone(self) -> None:
        pass


def test_nothing_leaves_a_process_that_is_gone() -> None:
    loop = VirtualLoop(random.Random(1))
    network = SimNetwork(
        loop, random.Random(1), Trace(loop.time), window=1 << 16, base_latency_s=0.01
    )
    listener = _Listener()
    network.listen(1, "b", listener)
    watch = _Process()._watch
    line = Line(network, lambda: watch)

    async def play() -> None:
        address = Address("10.0.0.1", 9092)
        _, writer = await line.connect(address, server_hostname="b", limit=1 << 16)
        line.cut()
        writer.write(b"too late")
        with pytest.raises(OSError, match="gone"):
            await line.connect(address, server_hostname="b", limit=1 << 16)
        with pytest.raises(OSError, match="gone"):
            await line.resolve("b", 9092, canonical=False)
        await asyncio.sleep(1)

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(play())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert listener.received == b""


# -- the consumer ----------------------------------------------------------------------------------


class _Topic:
    """One partition of one topic that transactions write to."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(1))
        self.cluster = SimCluster(
            [BrokerSpec(1, "b", 1)],
            settings=ClusterSettings(offsets_partitions=1, transaction_partitions=1),
            rng=random.Random(1),
            loop=self.loop,
            trace=Trace(self.loop.time),
            timing=ReplicationTiming(),
        )
        self.cluster.create_topic("t", TopicSpec(1, 1))
        self.partition = self.cluster.topics["t"].partitions[0]
        self.loop.close()
        self._epochs = {1: 0, 2: 0}

    def write(self, *names: bytes, producer_id: int = 1) -> None:
        data = _batch(names, producer_id, self._epochs[producer_id])
        self.partition.append(data, parse_header(data), TopicConfig({}, {}), _NOW_MS)

    def end(self, producer_id: int = 1, *, commits: bool) -> None:
        self._epochs[producer_id] += 1
        marker = Marker(producer_id, self._epochs[producer_id], commits, 0)
        self.partition.append_marker(marker, _NOW_MS)


def test_a_consumer_reads_what_is_committed_up_to_the_first_open_transaction() -> None:
    topic = _Topic()
    topic.write(b"<a>", b"<b>")
    topic.end(commits=True)
    topic.write(b"<lost>")
    topic.end(commits=False)
    topic.write(b"<open>", producer_id=2)
    topic.write(b"<c>")
    topic.end(commits=True)
    consumer = SimConsumer(topic.cluster, "t", "g", None)
    assert [each.name for each in consumer.poll(1) or []] == [b"<a>"]
    assert [each.name for each in consumer.poll(9) or []] == [b"<b>"]
    assert consumer.positions == {TopicPartition("t", 0): 5}
    assert consumer.has_unread_records()


def test_a_consumer_waits_for_positions_that_a_transaction_may_still_change() -> None:
    topic = _Topic()
    topic.write(b"<a>", b"<b>")
    topic.end(commits=True)
    groups, where = topic.cluster.groups, TopicPartition("t", 0)
    groups.commit("g", GroupMember(), {where: GroupOffset(1)}, node_id=1, now_ms=_NOW_MS)
    groups.groups["g"].write({where: GroupOffset(2)}, 99, producer_id=5)
    consumer = SimConsumer(topic.cluster, "t", "g", None)
    assert consumer.poll(9) is None
    groups.groups["g"].end_transaction(5, commit=False)
    assert [each.name for each in consumer.poll(9) or []] == [b"<b>"]


def test_a_new_member_makes_a_new_generation_that_the_old_one_cannot_learn() -> None:
    topic = _Topic()
    first = SimConsumer(topic.cluster, "t", "g", "m1")
    second = SimConsumer(topic.cluster, "t", "g", "m2")
    first.rejoin()
    assert first.metadata == ConsumerGroupMetadata("g", 1, "m1")
    assert second.metadata == ConsumerGroupMetadata("g", 2, "m2")


def _reports_of_a_call(*outcomes: KafkaError | None, is_over: bool = False) -> list[str]:
    """Return what is complained about when a call has these outcomes, one after the other.

    Args:
        is_over: whether the first outcome ends the producer.
    """
    ledger, left = Ledger(), list(outcomes)

    async def commit() -> None:
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome

    async def run() -> None:
        steady: Any = SimpleNamespace(random=lambda: 0.9)
        caller = Caller("a", 1.0, steady, ledger, Trace(lambda: 0.0))
        with suppress(IllegalStateError):
            if is_over and (error := left.pop(0)) is not None:
                await caller.check_repeated("commit", commit, error)
            else:
                await caller.call("commit", commit)

    loop = VirtualLoop(random.Random(1))
    loop.run_until_complete(run())
    loop.close()
    return ledger.false_reports


def test_a_commit_without_an_outcome_that_is_said_not_to_be_persisted_is_found_out() -> None:
    wrong = KafkaTimeoutError(persistence=Persistence.NOT_PERSISTED)
    right = KafkaTimeoutError(persistence=Persistence.POSSIBLY_PERSISTED)
    assert len(_reports_of_a_call(wrong, None)) == 1
    assert _reports_of_a_call(right, None) == []


def test_a_call_that_cannot_be_repeated_after_a_timeout_is_found_out() -> None:
    assert len(_reports_of_a_call(KafkaTimeoutError(), IllegalStateError())) == 1
    assert _reports_of_a_call(IllegalStateError()) == []


def test_a_commit_that_has_another_outcome_when_it_is_made_again_is_found_out() -> None:
    unknown, failed = CommitOutcomeUnknownError(), ProducerFailedError()
    refused = failed.with_context(persistence=Persistence.NOT_PERSISTED)
    assert _reports_of_a_call(unknown, unknown, is_over=True) == []
    for first, then in ((unknown, failed), (refused, failed), (unknown, None)):
        assert len(_reports_of_a_call(first, then, is_over=True)) == 1


@pytest.mark.parametrize(
    ("error", "after_s", "is_shut_out", "found"),
    [
        (CommitOutcomeUnknownError(), 0.1, False, 1),
        (CommitOutcomeUnknownError(), 0.1, True, 0),
        (CommitOutcomeUnknownError(), 1.0, False, 0),
        (GaveUpError("no outcome"), 0.1, False, 0),
        (None, 0.1, False, 0),
    ],
)
def test_a_close_that_does_not_wait_for_a_commit_is_found_out(
    error: KafkaError | None, after_s: float, is_shut_out: bool, found: int
) -> None:
    async def commit_last() -> None:
        await asyncio.sleep(after_s)
        if error is not None:
            raise error

    actor = SimpleNamespace(
        entry=SimpleNamespace(name="a"),
        producer=SimpleNamespace(config=SimpleNamespace(max_block_ms=1000)),
        commit_last=commit_last,
        is_shut_out=is_shut_out,
    )
    loop, ledger = VirtualLoop(random.Random(1)), Ledger()
    run: Any = SimpleNamespace(loop=loop, ledger=ledger)
    cast: Any = SimpleNamespace(present=lambda seat: actor)
    loop.run_until_complete(asyncio.sleep(127.2))  # a second after this is rounded down
    loop.run_until_complete(TransactionalPlay(run, cast).commit_amid_close(Seat("a")))
    loop.close()
    assert len(ledger.false_reports) == found


def test_an_addition_that_was_refused_does_not_concern_the_next_transaction() -> None:
    process = _Process()
    process.is_given(1, 0)
    process.adds(TopicAuthorizationFailedError.code)
    process.checks.on_begin()
    process.ends(0, None)
    assert process.complaints == []


@pytest.mark.parametrize(
    ("cause", "was_shut_out", "scripted", "found"),
    [
        (InvalidTxnStateError(), False, (), 1),
        (InvalidTxnStateError(), True, (), 0),
        (InvalidTxnStateError(), False, (48,), 0),
        (InvalidProducerIdMappingError(), False, (), 1),
        (TopicAuthorizationFailedError(), False, (), 0),
    ],
)
def test_a_producer_that_fails_by_the_state_of_its_transaction_is_found_out(
    cause: KafkaError, was_shut_out: bool, scripted: tuple[int, ...], found: int
) -> None:
    error = FatalTransactionError().because_of(cause)
    actor = SimpleNamespace(name="a.1", ended_with=error, was_shut_out=was_shut_out)
    reading: Any = SimpleNamespace(
        evidence=SimpleNamespace(
            scripted_codes=frozenset(scripted),
            cluster=SimpleNamespace(number=0, transaction_version=1),
        ),
        book=SimpleNamespace(actors=[actor]),
    )
    assert len(list(no_producer_fences_itself(reading))) == found


@pytest.mark.parametrize(
    ("cause", "scripted", "found"),
    [
        (OperationNotAttemptedError(), (), 1),
        (OperationNotAttemptedError(), (55,), 0),
        (TopicAuthorizationFailedError(), (), 0),
    ],
)
def test_a_refusal_whose_cause_is_another_partition_is_found_out(
    cause: KafkaError, scripted: tuple[int, ...], found: int
) -> None:
    refusal = TransactionAbortableError().because_of(cause)
    reading: Any = SimpleNamespace(
        evidence=SimpleNamespace(scripted_codes=frozenset(scripted)),
        book=SimpleNamespace(transactions=[SimpleNamespace(label="1", refusal=refusal)]),
    )
    assert len(list(refusals_name_their_cause(reading))) == found


@pytest.mark.parametrize(
    ("cause", "state", "error", "found"),
    [
        (MetadataTimeoutError(), CallState.ACCEPTED, None, 1),
        (MetadataTimeoutError(), CallState.REFUSED, MetadataTimeoutError(), 0),
        (MetadataTimeoutError(), CallState.UNKNOWN, None, 0),
        (TopicAuthorizationFailedError(), CallState.ACCEPTED, None, 0),
    ],
)
def test_a_transaction_that_fails_for_the_record_of_another_is_found_out(
    cause: KafkaError, state: CallState, error: KafkaError | None, found: int
) -> None:
    refusal = TransactionAbortableError().because_of(cause)
    tx = SimpleNamespace(label="1", refusal=refusal, number=1)
    reading: Any = SimpleNamespace(
        book=SimpleNamespace(transactions=[tx]),
        contents={1: [SimpleNamespace(state=state, error=error)]},
    )
    assert len(list(no_transaction_fails_for_records_of_others(reading))) == found


def _positions_of_two_groups(copied: int) -> list[str]:
    """Return what is complained about if one group is at 5 and its copy elsewhere."""
    where = TopicPartition("t", 0)
    tx = TransactionBook().begin("a", 0.0)
    tx.group, tx.copy_group, tx.offsets = "g", "g-copy", {where: 5}
    tx.commit_asked_at, tx.outcome = 1.0, Outcome.COMMITTED
    groups = {
        name: SimpleNamespace(offsets={where: GroupOffset(offset)})
        for name, offset in (("g", 5), ("g-copy", copied))
    }
    reading: Any = SimpleNamespace(
        evidence=SimpleNamespace(cluster=SimpleNamespace(groups=SimpleNamespace(groups=groups))),
        book=SimpleNamespace(transactions=[tx]),
        is_visible=lambda tx: True,
    )
    return list(positions_agree_with_records(reading))


def test_positions_that_only_one_of_two_groups_has_are_found_out() -> None:
    assert _positions_of_two_groups(5) == []
    assert len(_positions_of_two_groups(0)) == 1


@pytest.mark.parametrize(
    ("state", "closing", "found"),
    [
        (TransactionState.ABORTABLE_ERROR, False, 1),
        (TransactionState.ABORTABLE_ERROR, True, 0),
        (TransactionState.IN_TRANSACTION, False, 1),
        (TransactionState.ABORTING, False, 0),
        (TransactionState.READY, False, 0),
    ],
)
def test_a_transaction_that_is_left_to_be_aborted_is_found_out(
    state: TransactionState, closing: bool, found: int
) -> None:
    book = TransactionBook()
    manager = SimpleNamespace(state=state, identity=None)
    engine = SimpleNamespace(transactions=SimpleNamespace(manager=manager), closing=closing)
    cluster = SimpleNamespace(transactions=SimpleNamespace(transactions={}))
    actor: Any = SimpleNamespace(
        entry=SimpleNamespace(transactional_id="a"),
        producer=SimpleNamespace(engine=engine),
        _context=SimpleNamespace(book=book, cluster=cluster),
    )
    Actor._check_end(actor, book.begin("a", 0.0))
    assert len(book.complaints) == found


@pytest.mark.parametrize(("ends", "found"), [(True, 0), (False, 1)])
def test_a_prepare_that_goes_on_after_an_abort_is_found_out(ends: bool, found: int) -> None:
    loop, ledger, aborted = VirtualLoop(random.Random(1)), Ledger(), asyncio.Event()

    async def prepare_transaction() -> None:
        await aborted.wait()
        await asyncio.sleep(0 if ends else 1)

    async def abort(tx: object) -> None:
        aborted.set()

    at_once = SimpleNamespace(random=lambda: 0.0, choice=lambda times: times[0])
    actor: Any = SimpleNamespace(
        producer=SimpleNamespace(prepare_transaction=prepare_transaction),
        _abort=abort,
        _context=SimpleNamespace(chance_of=lambda purpose: at_once),
        _ledger=ledger,
    )
    loop.run_until_complete(Actor._give_up(actor, TransactionBook().begin("a", 0.0)))
    loop.close()
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(("obstacle", "found"), [(None, 0), (TransactionAbortableError(), 1)])
def test_a_refused_start_that_an_initialization_does_not_correct_is_found_out(
    obstacle: KafkaError | None, found: int
) -> None:
    ledger = Ledger()

    async def start(*, wait: bool) -> None:
        assert not wait

    async def wait_until_started() -> None:
        raise TopicAuthorizationFailedError

    async def bounded(what: str, work: Awaitable[None]) -> None:
        await work

    async def initialize(error: KafkaError) -> None:
        pass

    engine = SimpleNamespace(wait_until_started=wait_until_started, obstacle=obstacle)
    actor: Any = SimpleNamespace(
        entry=SimpleNamespace(name="a.1"),
        producer=SimpleNamespace(start=start, engine=engine),
        _caller=SimpleNamespace(bounded=bounded),
        _initialize=initialize,
        _ledger=ledger,
    )
    asyncio.run(Actor._start_in_background(actor))
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(("error", "found"), [(ProducerClosedError(), 0), (None, 1)])
def test_a_block_that_ends_as_after_a_commit_is_found_out(
    error: KafkaError | None, found: int
) -> None:
    ledger = Ledger()

    async def leave(*_: object) -> None:
        if error is not None:
            raise error

    actor: Any = SimpleNamespace(
        _block_left_open=SimpleNamespace(__aexit__=leave),
        _last=TransactionBook().begin("a", 0.0),
        _context=SimpleNamespace(trace=lambda text: None),
        _ledger=ledger,
    )
    asyncio.run(Actor.leave_block(actor))
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(
    ("error", "found"), [(None, 0), (ProducerFencedError(), 0), (KafkaTimeoutError(), 1)]
)
def test_a_block_whose_abort_hides_the_first_error_is_found_out(
    error: KafkaError | None, found: int
) -> None:
    ledger, first = Ledger(), IllegalStateError("the first")

    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        finally:
            if error is not None:
                raise error

    async def fill(*_: object) -> None:
        raise first

    actor: Any = SimpleNamespace(
        producer=SimpleNamespace(transaction=transaction),
        contents=SimpleNamespace(fill=fill),
        gone=True,
        _open=lambda: TransactionBook().begin("a", 0.0),
        _loop=SimpleNamespace(time=lambda: 1.0),
        _ledger=ledger,
    )
    with pytest.raises(KafkaError) as raised:
        asyncio.run(Actor._block(actor, None, [], changes_mind=False))
    assert raised.value is (error or first)
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (IllegalStateError("not possible"), 1),
        (IllegalStateError("not initialized").because_of(TopicAuthorizationFailedError()), 0),
        (KafkaTimeoutError(), 0),
    ],
)
def test_a_begin_that_is_not_possible_after_an_end_is_found_out(
    error: KafkaError, found: int
) -> None:
    ledger = Ledger()

    async def call(what: str, method: object) -> None:
        raise error

    async def initialize(error: KafkaError) -> None:
        pass

    actor: Any = SimpleNamespace(
        entry=SimpleNamespace(name="a.1"),
        producer=SimpleNamespace(begin_transaction=None),
        _caller=SimpleNamespace(call=call),
        _initialize=initialize,
        _ledger=ledger,
    )
    assert not asyncio.run(Actor._begin(actor))
    assert len(ledger.false_reports) == found


@pytest.mark.parametrize(
    ("error", "found"), [(IllegalStateError("not possible"), 1), (ProducerFencedError(), 0)]
)
def test_a_block_that_is_given_up_and_lets_no_other_begin_is_found_out(
    error: KafkaError, found: int
) -> None:
    ledger = Ledger()

    async def end(*_: object, **__: object) -> None:
        raise error

    actor = SimpleNamespace(
        is_fit=True,
        entry=SimpleNamespace(name="a.1"),
        producer=SimpleNamespace(config=SimpleNamespace(max_request_size=1)),
        give_up_block=end,
        leave_open=end,
    )
    run: Any = SimpleNamespace(
        loop=SimpleNamespace(time=lambda: 0.0),
        ledger=ledger,
        chance=SimpleNamespace(of=random.Random),
        trace=lambda text: None,
    )
    shape = SimpleNamespace(topics={"t": 1})
    cast: Any = SimpleNamespace(present=lambda seat: actor, input_shape=shape)
    assert not asyncio.run(TransactionalPlay(run, cast)._leave_open(Seat("a")))
    assert len(ledger.false_reports) == found


def test_a_first_commit_that_is_refused_differs_from_one_that_may_have_worked() -> None:
    refusal = EndTxnResponse(error_code=InvalidTxnStateError.code)
    process = _Process()
    process.is_given(1, 0)
    process.ends(0, refusal)
    assert process.checks.has_refused_commit
    process.ends(0, refusal)
    assert not process.checks.has_refused_commit
    process.checks.on_begin()
    process.ends(0, refusal)
    assert process.checks.has_refused_commit


@pytest.mark.parametrize(
    ("cause", "has_refused_commit", "found"),
    [
        (InvalidTxnStateError(), True, 1),
        (InvalidTxnStateError(), False, 0),
        (TopicAuthorizationFailedError(), True, 0),
    ],
)
def test_a_producer_that_ends_by_a_refused_commit_is_found_out(
    cause: KafkaError, has_refused_commit: bool, found: int
) -> None:
    book, error = TransactionBook(), FatalTransactionError().because_of(cause)
    actor: Any = SimpleNamespace(
        entry=SimpleNamespace(name="a.1"),
        has_refused_commit=lambda: has_refused_commit,
        is_shut_out=False,
        producer=SimpleNamespace(engine=SimpleNamespace(transactions=None)),
        _context=SimpleNamespace(book=book, trace=lambda text: None),
    )
    Actor.end(actor, error)
    assert (actor.entry.ended_with, len(book.complaints)) == (error, found)


@pytest.mark.parametrize(
    ("drawn", "commits", "found"), [(0.4, False, 1), (0.4, True, 0), (0.6, False, 0)]
)
def test_some_transactions_are_prepared_unseen_before_the_close(
    drawn: float, commits: bool, found: int
) -> None:
    seat, prepared = Seat("a"), []

    async def prepare_transaction() -> None:
        prepared.append(seat)
        await asyncio.sleep(math.inf)

    actor: Any = SimpleNamespace(producer=SimpleNamespace(prepare_transaction=prepare_transaction))
    actor.prepare_unseen = partial(Actor.prepare_unseen, actor)
    chance = SimpleNamespace(of=lambda purpose: SimpleNamespace(random=lambda: drawn))
    loop = VirtualLoop(random.Random(1))
    run: Any = SimpleNamespace(loop=loop, ledger=Ledger(), chance=chance)
    cast: Any = SimpleNamespace(present=lambda seat: actor)
    play = TransactionalPlay(run, cast)
    loop.run_until_complete(play._prepare_last(seat, [seat] if commits else []))
    loop.close()
    assert len(prepared) == found
