"""A producer's core without a network: metadata of our making, time and chance in our hands."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import inf
from uuid import UUID

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.batching.accumulator import AccumulatorSettings, RecordAccumulator
from aioproducer.core.batching.batch import OutgoingRecord, ProducerBatch
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.partitioners import NodeLatencies
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.actions import Dispatch, RequestIdentity
from aioproducer.core.sending.idempotence import ExpiredProducer, Sequencer
from aioproducer.core.sending.sender import Sender, SenderSettings
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.errors import KafkaError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.tasks.encoder import BatchEncoder
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC_ID = UUID(int=7)
_ENCODER = BatchEncoder(None, 1 << 30)


def metadata_response(
    leaders: Mapping[str, Sequence[int]],
    *,
    nodes: Sequence[int] = (1, 2, 3),
    epoch: int = 1,
) -> MetadataResponse:
    """A full answer: per topic, the leader of each partition (-1 for none)."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(n, "127.0.0.1", 9000 + n, None) for n in nodes],
        cluster_id="cluster",
        controller_id=nodes[0],
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=name,
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0 if leader >= 0 else 5,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=list(nodes),
                        isr_nodes=list(nodes),
                    )
                    for index, leader in enumerate(partitions)
                ],
            )
            for name, partitions in leaders.items()
        ],
    )


class Nodes:
    """A network where every node is ready.

    Attributes:
        unready: when other nodes can be dialed; inf while one is being dialed.
    """

    def __init__(self) -> None:
        self.known = (1, 2, 3)
        self.unready: dict[int, float] = {}
        self.failures: dict[int, KafkaError] = {}
        self.dialed: set[int] = set()
        self.rebootstrap_required: KafkaError | None = None

    def is_ready(self, node_id: int, now: float) -> bool:
        return node_id not in self.unready

    def can_ask(self, node_id: int, now: float) -> bool:
        return self.is_ready(node_id, now)

    def ready_at(self, node_id: int, now: float) -> float:
        return self.unready.get(node_id, now)

    def connection_failures(self, node_id: int) -> KafkaError | None:
        return self.failures.get(node_id)

    def least_loaded_node(self, now: float) -> int | None:
        ready = [node for node in self.known if node not in self.unready]
        dialed = [node for node in self.known if self.unready.get(node) == inf]
        idle = [node for node in self.known if self.unready.get(node, inf) <= now]
        return next(iter([*ready, *dialed, *idle]), None)

    def in_flight(self, node_id: int) -> int:
        return 0

    def link(self, node_id: int) -> object:
        return (node_id in self.known) or None

    def is_dialing(self, node_id: int) -> bool:
        return node_id in self.dialed

    def any_connected(self) -> bool:
        return any(node not in self.unready for node in self.known)

    def next_chance_at(self, now: float) -> float:
        moments = (self.ready_at(node, now) for node in self.known)
        return min((at for at in moments if at > now), default=inf)


class Core:
    """Accumulator and sender over topic "t", driven step by step."""

    def __init__(
        self,
        leaders: Sequence[int] = (1, 2, 3),
        *,
        batch_size: int = 200,
        linger: float = 0.0,
        delivery_timeout: float = 120.0,
        max_request_size: int = 10_000,
        guarantee_order: bool = False,
        retries: int = 2**31 - 1,
        memory: int = 1 << 20,
        grows: bool = False,
        sequencer: Sequencer | None = None,
        transactions: TransactionManager | None = None,
        latencies: NodeLatencies | None = None,
    ) -> None:
        rng = random.Random(1)
        backoff = ExponentialBackoff(0.1, 1.0)
        self.now = 100.0
        self.log_end = 0
        self.identity_requests = 0
        self.stats = ProducerStats()
        self.metadata = Metadata(
            max_age_s=300,
            max_idle_s=300,
            backoff=backoff,
            allow_auto_create=True,
            rng=rng,
        )
        self.pool = BufferPool(memory, batch_size, HEADER_SIZE)
        self.sequencer = sequencer or Sequencer(5, idempotent=False)
        self.topic_id: UUID = UUID(int=1)
        """The id that requests name; 0 before Produce v13."""
        self.data_losses: list[TopicPartition] = []
        self.expired_producers: list[ExpiredProducer] = []
        self.accumulator = RecordAccumulator(
            AccumulatorSettings(
                batch_size,
                linger,
                delivery_timeout,
                max_request_size,
                guarantee_order,
                grows=grows,
            ),
            self.pool,
            self.metadata,
            self.sequencer,
        )
        self.sender = Sender(
            self.accumulator,
            self.metadata,
            self.sequencer,
            SenderSettings(retries, backoff, delivery_timeout),
            rng=rng,
            stats=self.stats,
            latencies=latencies or NodeLatencies(0),
            on_data_loss=lambda lost: self.data_losses.append(lost.topic_partition),
            on_producer_expired=self.expired_producers.append,
            transactions=transactions,
        )
        self.nodes = Nodes()
        self.metadata.add_topic("t", self.now)
        self.learn(leaders)

    def learn(
        self, leaders: Sequence[int], *, epoch: int = 1, nodes: Sequence[int] = (1, 2, 3)
    ) -> None:
        self.metadata.start_request(self.now)
        self.metadata.on_response(
            metadata_response({"t": leaders}, epoch=epoch, nodes=nodes), self.now
        )
        self.accumulator.on_metadata_update(self.now)

    def append(self, partition: int = 0, value: bytes = b"v" * 10) -> ProducerBatch:
        meta = self.metadata.topic("t")
        assert meta is not None
        record = OutgoingRecord(meta, partition, 1, None, value, (), len(value) + 100)
        batch = self.accumulator.try_append(record, partition)
        if batch is None:
            size = self.accumulator.settings.first_size(record.size)
            buffer = self.pool.try_allocate(size)
            assert buffer is not None
            batch = self.accumulator.begin_batch(
                record, partition, self.now, buffer=buffer, size=size
            )
            self.accumulator.enqueue(batch, self.now)
        return batch

    def fill(self, partition: int = 0) -> ProducerBatch:
        """Appends until one batch is full, and one record more."""
        first = self.append(partition)
        while self.append(partition) is first:
            pass
        return first

    def take_expired(self) -> list[ProducerBatch]:
        expired = self.accumulator.expired(self.now)
        self.accumulator.withdraw(expired)
        return expired

    def drain(self, node_id: int) -> list[ProducerBatch]:
        self.accumulator.readiness.collect(self.now)
        return self.accumulator.drain(node_id, self.now)

    def poll(self) -> list[Dispatch]:
        """One turn of the sender; every dispatched request counts as sent."""
        dispatches = []
        for action in self.sender.poll(self.now, self.nodes):
            if isinstance(action, RequestIdentity):
                self.identity_requests += 1
            if not isinstance(action, Dispatch):
                continue
            assert _ENCODER.encode_inline(action.batches)
            for batch in action.batches:
                batch.topic_id = self.topic_id
            self.sender.on_dispatched(action.node_id, action.batches)
            dispatches.append(action)
        return dispatches

    def acknowledge(self, dispatch: Dispatch) -> None:
        """The broker has written every batch of the request."""
        self.answer(dispatch, 0)

    def answer(self, dispatch: Dispatch, code: int) -> None:
        """The broker answers the code for every batch of the request."""
        partitions = []
        for batch in dispatch.batches:
            index, offset = batch.topic_partition.partition, -1
            if not code:
                offset, self.log_end = self.log_end, self.log_end + batch.count
            partitions.append(
                PartitionProduceResponse(index=index, error_code=code, base_offset=offset)
            )
        response = ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=partitions)]
        )
        self.sender.on_response(dispatch.node_id, dispatch.batches, response, self.now)
