"""A transactional producer in a few calls: each one a request to the responsible broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aioproducer.testing.broker import ClusterState
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponsePartition,
)
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .support import NOW_MS, ask, make_batch, produce_request

V1_VERSIONS = {"produce": 11, "end": 4, "offsets": 4}
V2_VERSIONS = {"produce": 12, "end": 5, "offsets": 5}


def coordinator_of(state: ClusterState, transactional_id: str = "tx") -> int:
    return state.shards.shard(CoordinatorKind.TRANSACTION, transactional_id).leader


def group_coordinator_of(state: ClusterState, group_id: str = "g") -> int:
    return state.shards.shard(CoordinatorKind.GROUP, group_id).leader


@dataclass
class TransactionalProducer:
    """Has its identity and sequences, nothing else; every method returns the error code."""

    state: ClusterState
    versions: dict[str, int]
    transactional_id: str = "tx"
    now_ms: int = NOW_MS
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[tuple[int, str, int], int] = field(default_factory=dict)

    @property
    def is_v2(self) -> bool:
        return self.versions is V2_VERSIONS

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def ask_coordinator(self, request: Any, version: int) -> Any:
        node_id = coordinator_of(self.state, self.transactional_id)
        return ask(self.state, request, version, node_id=node_id, now_ms=self.now_ms)

    def initialize(self, *, resume: bool = False, timeout_ms: int = 60_000) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        if resume:
            request.producer_id, request.producer_epoch = self.identity
        answer = self.ask_coordinator(request, 4)
        if not answer.error_code:
            self._take_identity(answer)
        return int(answer.error_code)

    def add(self, *indexes: int, topic: str = "t", version: int = 3) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        answer = self.ask_coordinator(request, version)
        return [
            each.partition_error_code
            for each in answer.results_by_topic_v3_and_below[0].results_by_partition
        ]

    def add_group(self, group_id: str = "g") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return int(self.ask_coordinator(request, 3).error_code)

    def produce(
        self, index: int = 0, values: tuple[bytes, ...] = (b"v",), version: int | None = None
    ) -> int:
        key = (self.epoch, "t", index)
        sequence = self.sequences.get(key, 0)
        data = make_batch(
            values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = produce_request("t", index, data)
        request.transactional_id = self.transactional_id
        leader = self.state.topics["t"].partitions[index].leader
        version = version or self.versions["produce"]
        response = ask(self.state, request, version, node_id=leader, now_ms=self.now_ms)
        code = int(response.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequences[key] = sequence + len(values)
        return code

    def write(self, *indexes: int) -> None:
        """Produce to each partition, which has to work."""
        if not self.is_v2:
            assert set(self.add(*indexes)) == {0}
        assert [self.produce(index) for index in indexes] == [0] * len(indexes)

    def end(self, *, commit: bool = True, version: int | None = None) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = self.versions["end"] if version is None else version
        answer = self.ask_coordinator(request, version)
        if not answer.error_code and version >= 5:
            self._take_identity(answer)
        return int(answer.error_code)

    def commit_offset(self, offset: int, *, group_id: str = "g", **member: Any) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata="m"
                        )
                    ],
                )
            ],
            **member,
        )
        node_id = group_coordinator_of(self.state, group_id)
        answer = ask(
            self.state, request, self.versions["offsets"], node_id=node_id, now_ms=self.now_ms
        )
        return int(answer.topics[0].partitions[0].error_code)

    def _take_identity(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


def committed_offset(
    state: ClusterState, group_id: str = "g", *, require_stable: bool = False
) -> OffsetFetchResponsePartition:
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        require_stable=require_stable,
    )
    answer = ask(state, request, 7, node_id=group_coordinator_of(state, group_id))
    assert answer.error_code == 0
    found: OffsetFetchResponsePartition = answer.topics[0].partitions[0]
    return found


def fetch(
    state: ClusterState, index: int = 0, *, offset: int = 0, committed: bool = True
) -> PartitionData:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_bytes=1_000_000,
        isolation_level=int(committed),
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    leader = state.topics["t"].partitions[index].leader
    data: PartitionData = ask(state, request, 12, node_id=leader).responses[0].partitions[0]
    return data
