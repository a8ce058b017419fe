"""A transactional core without a network: the test plays every broker."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from uuid import UUID

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.driver import Driver
from aioproducer.core.metadata.requests import MetadataRequests
from aioproducer.core.transactions.coordinators import CoordinatorSession
from aioproducer.core.transactions.manager import TransactionManager
from aioproducer.core.transactions.operations import Operation
from aioproducer.core.transactions.requests import TransactionalRequest
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.sequencer import TransactionalSequencer
from aioproducer.errors import NodeDisconnectedError
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aioproducer.wire.schema import Message

from ..support import Core

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)

V1 = {
    Rpc.FIND_COORDINATOR: 6,
    Rpc.INIT_PRODUCER_ID: 5,
    Rpc.ADD_PARTITIONS: 3,
    Rpc.ADD_OFFSETS: 4,
    Rpc.COMMIT_OFFSETS: 4,
    Rpc.END: 4,
}
V2 = V1 | {Rpc.COMMIT_OFFSETS: 5, Rpc.END: 5}
BEFORE_2_5 = V1 | {Rpc.INIT_PRODUCER_ID: 2}


class Stage:
    """Manager, dialogue and sender, stepped by hand.

    `level` is the cluster's transaction.version; every request is answered with success by
    `answer`, unless a code is given.
    """

    def __init__(
        self,
        level: int = 2,
        *,
        leaders: Sequence[int] = (1, 1),
        versions: Mapping[Rpc, int] | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        **options: object,
    ) -> None:
        self.level = level
        self.versions = versions or (V2 if level >= 2 else V1)
        self.manager = TransactionManager("tx", 60_000, topic_ids=lambda: topic_ids or {})
        self.core = Core(
            leaders,
            sequencer=TransactionalSequencer(5, self.manager),
            transactions=self.manager,
            **options,  # type: ignore[arg-type]
        )
        self.coordinator_session = CoordinatorSession(
            self.manager,
            ExponentialBackoff(0.1, 1.0, jitter=0),
            random.Random(1),
            self.core.metadata,
            self.core.accumulator,
        )
        self.producer_id, self.epoch = 7, -1
        self.sent: list[Rpc] = []

    # -- the application -------------------------------------------------------------------------

    def ready(self) -> Stage:
        """Initialized."""
        self.done(self.manager.init())
        return self

    def begun(self) -> Stage:
        """In a transaction."""
        self.ready()
        self.begin()
        return self

    def begin(self) -> None:
        self.done(self.manager.begin(self.level))

    def done(self, operation: Operation) -> None:
        """Lets everything succeed until the operation is done; its error is raised."""
        for _ in range(100):
            if operation.done:
                break
            self.core.now += 0.01
            self.deliver()
            request = self.next_request()
            if request is not None:
                self.answer(request)
        assert operation.done, f"{operation.kind} does not end in {self.manager.state}"
        self.manager.on_seen(operation)
        if operation.error is not None:
            raise operation.error

    # -- the brokers -----------------------------------------------------------------------------

    def deliver(self) -> list[ProducerBatch]:
        """One turn of the sender; every batch is acknowledged."""
        delivered = []
        for dispatch in self.core.poll():
            self.core.acknowledge(dispatch)
            delivered += dispatch.batches
        return delivered

    def driver(self, *, rebootstrap_after: float | None = None) -> Driver:
        """The driver, which decides about turns."""
        metadata_requests = MetadataRequests(self.core.metadata, rebootstrap_after)
        return Driver(self.core.sender, metadata_requests, self.coordinator_session)

    def next_request(self) -> TransactionalRequest | None:
        return self.coordinator_session.next_request(self.core.now)

    def request(self, rpc: Rpc | None = None) -> TransactionalRequest:
        """The next request, sent; coordinators are found on the way unless that is asked for."""
        for _ in range(3):
            request = self.next_request()
            assert request is not None, f"nothing to send in {self.manager.state}"
            self.send(request)
            if rpc is Rpc.FIND_COORDINATOR or request.rpc is not Rpc.FIND_COORDINATOR:
                assert rpc in (None, request.rpc), f"{request.rpc}, not {rpc}"
                return request
            self.respond(request)
        raise AssertionError("no coordinator is ever found")

    def send(self, request: TransactionalRequest) -> None:
        assert request.min_version <= self.versions[request.rpc]
        self.sent.append(request.rpc)
        self.coordinator_session.on_sent(request, self.version(request))

    def version(self, request: TransactionalRequest) -> int:
        highest = self.versions[request.rpc]
        return highest if request.max_version is None else min(highest, request.max_version)

    def message(self, request: TransactionalRequest) -> Message:
        message = request.make(self.version(request))
        message.encode(self.version(request))
        return message

    def answer(self, request: TransactionalRequest, code: int = 0) -> None:
        """Sends and answers."""
        self.send(request)
        self.respond(request, code)

    def respond(self, request: TransactionalRequest, code: int = 0) -> None:
        """Answers what was sent."""
        self.coordinator_session.on_response(request, self._response(request, code), self.core.now)
        if request.rpc is Rpc.ADD_PARTITIONS:
            self.core.accumulator.replan_all()

    def lose(self, request: TransactionalRequest) -> None:
        """The connection ends before the answer."""
        self.coordinator_session.on_unreachable(
            request, NodeDisconnectedError("gone"), self.core.now
        )

    def wait(self, seconds: float = 2.0) -> None:
        self.core.now += seconds

    def _response(self, request: TransactionalRequest, code: int) -> Message:
        message = self.message(request)
        match request.rpc:
            case Rpc.FIND_COORDINATOR:
                found = Coordinator(request.coordinator.name, 1, "h", 1, code)
                return FindCoordinatorResponse(coordinators=[found])
            case Rpc.INIT_PRODUCER_ID:
                assert isinstance(message, InitProducerIdRequest)
                if code == 0:
                    self.epoch += 1
                return InitProducerIdResponse(0, code, self.producer_id, self.epoch)
            case Rpc.ADD_PARTITIONS:
                assert isinstance(message, AddPartitionsToTxnRequest)
                return AddPartitionsToTxnResponse(
                    0,
                    [
                        AddPartitionsToTxnTopicResult(
                            topic.name,
                            [AddPartitionsToTxnPartitionResult(p, code) for p in topic.partitions],
                        )
                        for topic in message.v3_and_below_topics
                    ],
                )
            case Rpc.ADD_OFFSETS:
                return AddOffsetsToTxnResponse(0, code)
            case Rpc.COMMIT_OFFSETS:
                assert isinstance(message, TxnOffsetCommitRequest)
                return TxnOffsetCommitResponse(
                    0,
                    [
                        TxnOffsetCommitResponseTopic(
                            topic.name,
                            topic.topic_id,
                            [
                                TxnOffsetCommitResponsePartition(p.partition_index, code)
                                for p in topic.partitions
                            ],
                        )
                        for topic in message.topics
                    ],
                )
            case Rpc.END:
                assert isinstance(message, EndTxnRequest)
                if self.version(request) >= 5 and code == 0:
                    self.epoch += 1
                    return EndTxnResponse(0, 0, self.producer_id, self.epoch)
                return EndTxnResponse(0, code)
