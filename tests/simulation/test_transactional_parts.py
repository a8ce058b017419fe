"""Parts of transactional runs: the committed view, the protocol checks, the consumer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from aioproducer.errors import ProducerFencedError
from aioproducer.net.dial.dialer import Address
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_batch, parse_header
from aioproducer.testing.broker import BrokerSpec, ClusterSettings, TopicSpec
from aioproducer.testing.broker.log import PartitionLog, StoredBatch
from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.settings import TopicConfig
from aioproducer.testing.broker.transactions.groups import GroupMember, GroupOffset
from aioproducer.testing.framing import encode_response
from aioproducer.testing.world.cluster import ReplicationTiming, SimCluster
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.network import SimConnection, SimNetwork
from aioproducer.testing.world.trace import Trace
from aioproducer.types import ConsumerGroupMetadata, TopicPartition
from aioproducer.wire.framing import encode_request
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
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
)
from aioproducer.wire.schema import Message
from simulation.transactions.consumer import SimConsumer
from simulation.transactions.line import Line
from simulation.transactions.protocol_checks import ClientProtocolChecks, ConnectionWatch
from simulation.transactions.view import committed_view

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
    assert view.undecided == {1: 5}


def test_a_repeated_marker_decides_nothing_anew() -> None:
    view = committed_view(
        _log(_batch([b"<a>"]), _marker(1, commits=False), _marker(1, commits=False))
    )
    assert view == ({}, {0}, {})


# -- protocol checks -------------------------------------------------------------------------------


class _Process:
    """One process with one connection, and what was found wrong with it."""

    def __init__(self) -> None:
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
        self._watch: ConnectionWatch = ClientProtocolChecks(
            "p", cluster, self.complaints.append
        ).watch()
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

    def adds(self) -> None:
        result = AddPartitionsToTxnPartitionResult(partition_index=0)
        answer = AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult("t", [result])]
        )
        self.asks(AddPartitionsToTxnRequest(v3_and_below_transactional_id="x"), 3, answer)

    def ends(self, epoch: int, answer: EndTxnResponse | None) -> None:
        self.asks(EndTxnRequest("x", 1, epoch, committed=True), 5, answer)


def test_a_well_behaved_process_is_not_complained_of() -> None:
    process = _Process()
    process.is_given(1, 0)
    process.produces(0)
    process.ends(0, EndTxnResponse(producer_id=1, producer_epoch=1))
    process.produces(1)
    process.adds()
    process.produces(1, _BEFORE_V2)
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
                process.ends(0, EndTxnResponse(producer_id=1, producer_epoch=0)),
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
    ],
)
def test_what_does_not_belong_is_complained_of(misbehave: object, complaint: str) -> None:
    process = _Process()
    process.is_given(1, 0)
    misbehave(process)  # type: ignore[operator]
    assert len(process.complaints) == 1
    assert complaint in process.complaints[0]


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
