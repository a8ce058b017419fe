"""Requests of a transactional producer: builders of requests and readers of responses.

A `TransactionalRequest` has its coordinator and its allowed versions; the message is built when the
version is negotiated, since its fields depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions.rules import Rpc
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from aioproducer.wire.schema import Message

NO_IDENTITY = ProducerIdentity(-1, -1)

FIRST_INIT_WITH_IDENTITY = 3
"""InitProducerId versions from which an id and epoch can be renewed (KIP-360)."""
_FIRST_INIT_OF_TWO_PHASES = 6
_FIRST_END_WITH_EPOCH = 5
_FIRST_OFFSETS_WITH_MEMBER = 3
_FIRST_OFFSETS_OF_V2 = 5
_FIRST_OFFSETS_BY_TOPIC_ID = 6
FIRST_WITH_MANY_KEYS = 4
_FIRST_WITH_KEY_TYPE = 1

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class CoordinatorKind(IntEnum):
    """Coordinator type, with the numbers of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorKey(NamedTuple):
    """Key of a coordinator: a group, or a transactional id."""

    kind: CoordinatorKind
    name: str


@dataclass(frozen=True, slots=True)
class TransactionalRequest:
    """One request to be sent; `make` builds the message of a version.

    `coordinator` is the key of the coordinator that gets it, or that it searches; `node_id` is None
    for any broker. `min_version` is the first version that supports it, with `advice` for the user
    if brokers do not; `max_version` the last that may be used, None for the message's last.
    """

    rpc: Rpc
    request_type: type[Message]
    coordinator: CoordinatorKey
    make: Callable[[int], Message]
    min_version: int = 0
    max_version: int | None = None
    node_id: int | None = None
    partitions: tuple[TopicPartition, ...] = ()
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    group_id: str = ""
    advice: str | None = None

    @property
    def group(self) -> str | None:
        """The consumer group of the request, if any."""
        at_group = self.coordinator.kind is CoordinatorKind.GROUP
        return self.coordinator.name if at_group else self.group_id or None


@dataclass(frozen=True, slots=True)
class Answered:
    """One error code, with its message and partition."""

    code: int
    message: str | None = None
    topic_partition: TopicPartition | None = None


def find_coordinator(wanted: CoordinatorKey) -> TransactionalRequest:
    """Return a request for the coordinator of a group or a transactional id."""

    def make(version: int) -> Message:
        if version >= FIRST_WITH_MANY_KEYS:
            return FindCoordinatorRequest(key_type=wanted.kind, coordinator_keys=[wanted.name])
        return FindCoordinatorRequest(key=wanted.name, key_type=wanted.kind)

    return TransactionalRequest(
        Rpc.FIND_COORDINATOR, FindCoordinatorRequest, wanted, make, _FIRST_WITH_KEY_TYPE
    )


def coordinator_of(
    response: FindCoordinatorResponse, key: str
) -> Coordinator | FindCoordinatorResponse:
    """Return the result for the key; without a host if a response (v4+) left it out."""
    return next((each for each in response.coordinators if each.key == key), response)


def init_producer_id(
    transactional_id: str,
    timeout_ms: int,
    identity: ProducerIdentity | None,
    *,
    two_phase: bool = False,
) -> TransactionalRequest:
    """Return a request for a producer id; with an `identity`, for its next epoch (KIP-360).

    With `two_phase` its transactions have no timeout (KIP-939). Brokers do not enable that version
    by default yet, so it is used for nothing else.
    """
    producer_id, epoch = identity or NO_IDENTITY

    def make(_: int) -> Message:
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=two_phase,
        )

    lowest = 0 if identity is None else FIRST_INIT_WITH_IDENTITY
    return TransactionalRequest(
        Rpc.INIT_PRODUCER_ID,
        InitProducerIdRequest,
        _of(transactional_id),
        make,
        _FIRST_INIT_OF_TWO_PHASES if two_phase else lowest,
        None if two_phase else _FIRST_INIT_OF_TWO_PHASES - 1,
        advice="These brokers offer no two-phase commit (KIP-939): leave out "
        "transaction_two_phase_commit_enable."
        if two_phase
        else None,
    )


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> TransactionalRequest:
    """Return a request that adds partitions to a V1 transaction."""
    asked = tuple(partitions)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in asked:
        by_topic.setdefault(topic, []).append(partition)

    def make(_: int) -> Message:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name, numbers) for name, numbers in by_topic.items()
            ],
        )

    return TransactionalRequest(
        Rpc.ADD_PARTITIONS, AddPartitionsToTxnRequest, _of(transactional_id), make, partitions=asked
    )


def added_partitions(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, Answered]:
    """Return the result of each partition."""
    return {
        about: Answered(result.partition_error_code, None, about)
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        for about in [TopicPartition(topic.name, result.partition_index)]
    }


def add_offsets(
    transactional_id: str, identity: ProducerIdentity, group_id: str
) -> TransactionalRequest:
    """Return a request that adds a group to a V1 transaction."""

    def make(_: int) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id, identity.producer_id, identity.epoch, group_id
        )

    return TransactionalRequest(
        Rpc.ADD_OFFSETS, AddOffsetsToTxnRequest, _of(transactional_id), make, group_id=group_id
    )


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdentity,
    group: ConsumerGroupMetadata,
    offsets: Offsets,
    topic_ids: Mapping[str, UUID],
    *,
    v2: bool,
) -> TransactionalRequest:
    """Return a request that commits offsets; by topic id if all are known (KIP-1319)."""
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), committed in offsets.items():
        by_topic.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=-1
                if committed.leader_epoch is None
                else committed.leader_epoch,
                committed_metadata=committed.metadata or "",
            )
        )
    all_known = all(topic in topic_ids for topic in by_topic)

    def make(version: int) -> Message:
        by_id = version >= _FIRST_OFFSETS_BY_TOPIC_ID
        return TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name, topic_ids[name] if by_id else UUID(int=0), parts)
                for name, parts in by_topic.items()
            ],
        )

    lowest = _FIRST_OFFSETS_WITH_MEMBER if group.names_member else 0
    return TransactionalRequest(
        Rpc.COMMIT_OFFSETS,
        TxnOffsetCommitRequest,
        CoordinatorKey(CoordinatorKind.GROUP, group.group_id),
        make,
        _FIRST_OFFSETS_OF_V2 if v2 else lowest,
        (None if all_known else _FIRST_OFFSETS_BY_TOPIC_ID - 1) if v2 else _FIRST_OFFSETS_OF_V2 - 1,
        partitions=tuple(offsets),
        topic_ids=topic_ids,
    )


def committed_offsets(
    response: TxnOffsetCommitResponse, topic_ids: Mapping[str, UUID]
) -> dict[TopicPartition, Answered]:
    """Return the result of each partition's offset."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {
        about: Answered(result.error_code, None, about)
        for topic in response.topics
        for result in topic.partitions
        for about in [
            TopicPartition(topic.name or names.get(topic.topic_id, ""), result.partition_index)
        ]
    }


def end(
    transactional_id: str, identity: ProducerIdentity, *, commit: bool, v2: bool
) -> TransactionalRequest:
    """Return a request to commit or abort; a V2 response has the next epoch (KIP-890)."""

    def make(_: int) -> Message:
        return EndTxnRequest(transactional_id, identity.producer_id, identity.epoch, commit)

    return TransactionalRequest(
        Rpc.END,
        EndTxnRequest,
        _of(transactional_id),
        make,
        _FIRST_END_WITH_EPOCH if v2 else 0,
        None if v2 else _FIRST_END_WITH_EPOCH - 1,
    )


def _of(transactional_id: str) -> CoordinatorKey:
    return CoordinatorKey(CoordinatorKind.TRANSACTION, transactional_id)
