"""Requests to coordinators from outside of a producer, and readers of their responses.

A `CoordinatorQuery` has the key of its coordinator, or None if any broker, or each one, can answer
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from aioproducer.core.metadata.cluster import (
    MAX_BROKERS,
    is_usable,
    place_for_errors,
    too_many_brokers,
    usable_nodes,
)
from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import requests
from aioproducer.core.transactions.requests import (
    CoordinatorKey,
    CoordinatorKind,
    TransactionalRequest,
)
from aioproducer.core.transactions.rules import Rpc
from aioproducer.errors import ProtocolError, error_from_code
from aioproducer.errors.base import raise_for_code
from aioproducer.types import (
    ConsumerGroupMetadata,
    Node,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
    TransactionDescription,
)
from aioproducer.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TxnOffsetCommitResponse,
)
from aioproducer.wire.schema import Message

_T = TypeVar("_T")

UNKNOWN_TOPIC_OR_PARTITION = 3
TRANSACTIONAL_ID_NOT_FOUND = 105
_FIRST_METADATA_OF_NO_TOPIC = 1
_FIRST_METADATA_WITHOUT_CREATION = 4
_LAST_METADATA_BEFORE_IDS = 9
_FIRST_LIST_WITH_DURATION = 1
_FIRST_LIST_WITH_PATTERN = 2
_FIRST_OFFSETS_THAT_ARE_STABLE = 7
_FIRST_OFFSETS_OF_MANY_GROUPS = 8
_LAST_OFFSETS_BY_NAME = 9


@dataclass(frozen=True, slots=True)
class CoordinatorQuery(Generic[_T]):
    """One request and the reader of its response, which returns the result or raises its error.

    `coordinator` is the key of the coordinator; None for any broker. `min_version` is the first
    version that supports the query, `max_version` the last that may be used; None for the message's
    last.
    """

    request_type: type[Message]
    make: Callable[[int], Message]
    read: Callable[[Any], _T]
    coordinator: CoordinatorKey | None = None
    min_version: int = 0
    max_version: int | None = None


def brokers() -> CoordinatorQuery[dict[int, Node]]:
    """Return the query for the brokers of the cluster."""

    def read(answer: MetadataResponse) -> dict[int, Node]:
        if len(answer.brokers) > MAX_BROKERS:
            raise too_many_brokers(len(answer.brokers))
        return usable_nodes(answer.brokers)

    return CoordinatorQuery(
        MetadataRequest,
        lambda _: MetadataRequest(topics=[], allow_auto_topic_creation=True),
        read,
        min_version=_FIRST_METADATA_OF_NO_TOPIC,
        max_version=_LAST_METADATA_BEFORE_IDS,
    )


def topic_names() -> CoordinatorQuery[list[str]]:
    """Return the query for the topics of the cluster."""

    def read(answer: MetadataResponse) -> list[str]:
        return [each.name for each in answer.topics if each.name is not None]

    def make(version: int) -> MetadataRequest:
        if version < _FIRST_METADATA_OF_NO_TOPIC:
            return MetadataRequest(topics=[], allow_auto_topic_creation=True)
        return MetadataRequest(topics=None, allow_auto_topic_creation=True)

    return CoordinatorQuery(MetadataRequest, make, read, max_version=_LAST_METADATA_BEFORE_IDS)


def partition_count(topic: str, *, may_create: bool) -> CoordinatorQuery[int]:
    """Return the query for a topic's partition count; it may create the topic (KIP-487)."""

    def read(answer: MetadataResponse) -> int:
        for found in answer.topics:
            if found.name == topic:
                raise_for_code(found.error_code)
                return len(found.partitions)
        raise error_from_code(UNKNOWN_TOPIC_OR_PARTITION, topic=topic)

    return CoordinatorQuery(
        MetadataRequest,
        lambda _: MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create
        ),
        read,
        min_version=_FIRST_METADATA_WITHOUT_CREATION,
        max_version=_LAST_METADATA_BEFORE_IDS,
    )


def find_coordinator(wanted: CoordinatorKey) -> CoordinatorQuery[Node]:
    """Return the query for the coordinator of a group or a transactional id."""

    def read(answer: FindCoordinatorResponse) -> Node:
        found = requests.coordinator_of(answer, wanted.name)
        raise_for_code(found.error_code, found.error_message)
        return _node(found.node_id, found.host, found.port)

    return _of(requests.find_coordinator(wanted), read)


def _node(node_id: int, host: str, port: int) -> Node:
    if node_id < 0 or not is_usable(host, port):
        raise ProtocolError(f"a broker named a coordinator at {place_for_errors(host, port)}")
    return Node(node_id, host, port)


def find_coordinators(
    kind: CoordinatorKind, names: Sequence[str]
) -> CoordinatorQuery[dict[str, Node]]:
    """Return the query for the coordinators of groups or transactional ids (KIP-699)."""

    def read(answer: FindCoordinatorResponse) -> dict[str, Node]:
        found = answer.coordinators
        for each in found:
            raise_for_code(each.error_code, each.error_message)
        nodes = {each.key: _node(each.node_id, each.host, each.port) for each in found}
        _refuse_gaps("coordinators", names, nodes)
        return nodes

    return CoordinatorQuery(
        FindCoordinatorRequest,
        lambda _: FindCoordinatorRequest(key_type=kind, coordinator_keys=list(names)),
        read,
        min_version=requests.FIRST_WITH_MANY_KEYS,
    )


def end(prepared: PreparedTransaction, *, commit: bool) -> CoordinatorQuery[None]:
    """Return the request to commit or abort a prepared transaction."""
    request = requests.end(
        prepared.transactional_id,
        ProducerIdentity(prepared.producer_id, prepared.epoch),
        commit=commit,
        v2=prepared.transaction_version >= 2,
    )
    return _of(request, _read_nothing)


def fence(found: TransactionDescription) -> CoordinatorQuery[None]:
    """Return the request to abort a producer's open transaction and fence it (KIP-360).

    In V1 an EndTxn would not change its epoch: its next records would be in no transaction.
    """
    identity = ProducerIdentity(found.producer_id, found.epoch)
    request = requests.init_producer_id(found.transactional_id, found.timeout_ms, identity)
    return _of(request, _read_nothing)


def take_over(
    transactional_id: str, timeout_ms: int, identity: ProducerIdentity | None = None
) -> CoordinatorQuery[ProducerIdentity]:
    """Return the request for the next epoch of a transactional id, which fences its producer.

    With an `identity` it succeeds only if that is the current one (KIP-360).
    """

    def read(answer: InitProducerIdResponse) -> ProducerIdentity:
        raise_for_code(answer.error_code)
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            raise ProtocolError(f"a broker gave {transactional_id!r} no producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return _of(requests.init_producer_id(transactional_id, timeout_ms, identity), read)


def add_group(owner: PreparedTransaction, group_id: str) -> CoordinatorQuery[None]:
    """Return the request to add a group to a V1 transaction; V2 does not need it."""
    identity = ProducerIdentity(owner.producer_id, owner.epoch)
    request = requests.add_offsets(owner.transactional_id, identity, group_id)
    return _of(request, _read_nothing)


def commit_in_transaction(
    owner: PreparedTransaction, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> CoordinatorQuery[None]:
    """Return the request to add a group's offsets to a transaction."""

    def read(answer: TxnOffsetCommitResponse) -> None:
        results = requests.committed_offsets(answer, {})
        for place, each in results.items():
            raise_for_code(each.code, topic=place.topic, partition=place.partition)
        _refuse_gaps("offsets", offsets, results)

    identity = ProducerIdentity(owner.producer_id, owner.epoch)
    group = ConsumerGroupMetadata(group_id)
    v2 = owner.transaction_version >= 2
    request = requests.commit_offsets(owner.transactional_id, identity, group, offsets, {}, v2=v2)
    return _of(request, read)


def describe(transactional_id: str) -> CoordinatorQuery[TransactionDescription | None]:
    """Return the query for the description of a transactional id; its result may be None."""
    query = describe_each([transactional_id])
    return CoordinatorQuery(
        query.request_type,
        query.make,
        lambda answer: query.read(answer).get(transactional_id),
        CoordinatorKey(CoordinatorKind.TRANSACTION, transactional_id),
    )


def describe_each(names: Sequence[str]) -> CoordinatorQuery[dict[str, TransactionDescription]]:
    """Return the query for the descriptions of transactional ids of one coordinator."""

    def read(answer: DescribeTransactionsResponse) -> dict[str, TransactionDescription]:
        found = {}
        answered = {each.transactional_id for each in answer.transaction_states}
        _refuse_gaps("transactional ids", names, answered)
        for each in answer.transaction_states:
            if each.error_code == TRANSACTIONAL_ID_NOT_FOUND:
                continue
            raise_for_code(each.error_code)
            found[each.transactional_id] = TransactionDescription(
                each.transactional_id,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms,
                tuple(TopicPartition(t.topic, p) for t in each.topics for p in t.partitions),
            )
        return found

    return CoordinatorQuery(
        DescribeTransactionsRequest,
        lambda _: DescribeTransactionsRequest(transactional_ids=list(names)),
        read,
    )


def list_open(
    prefix: str, older_than_ms: int | None, *, idle: bool = False
) -> CoordinatorQuery[list[str]]:
    """Return the query for transactional ids with an open transaction, at one coordinator.

    With `idle` also those that are initialized and have begun no transaction.
    """
    states = ["Ongoing", "Empty"] if idle else ["Ongoing"]

    def make(version: int) -> Message:
        request = ListTransactionsRequest(state_filters=states)
        if older_than_ms is not None:
            request.duration_filter = older_than_ms
        if version >= _FIRST_LIST_WITH_PATTERN and prefix:
            request.transactional_id_pattern = re.escape(prefix) + ".*"
        return request

    def read(answer: ListTransactionsResponse) -> list[str]:
        raise_for_code(answer.error_code)
        found = (each.transactional_id for each in answer.transaction_states)
        # Brokers before 4.1 do not support the pattern (KIP-1152).
        return [name for name in found if name.startswith(prefix)]

    lowest = 0 if older_than_ms is None else _FIRST_LIST_WITH_DURATION
    return CoordinatorQuery(ListTransactionsRequest, make, read, min_version=lowest)


def committed(
    group_id: str, partitions: Iterable[TopicPartition] | None
) -> CoordinatorQuery[dict[TopicPartition, OffsetAndMetadata]]:
    """Return the query for a group's stable offsets (KIP-447).

    The response is an error while an open transaction may change one of them. `partitions` None
    means all with an offset; a partition whose first offset is in an open transaction is missing.
    """
    by_topic: dict[str, list[int]] = {}
    asked = [TopicPartition(*each) for each in partitions or ()]
    for topic, partition in asked:
        by_topic.setdefault(topic, []).append(partition)
    has_groups = False

    def make(version: int) -> Message:
        nonlocal has_groups
        has_groups = version >= _FIRST_OFFSETS_OF_MANY_GROUPS
        if not has_groups:
            single = [OffsetFetchRequestTopic(name, ids) for name, ids in by_topic.items()]
            wanted = None if partitions is None else single
            return OffsetFetchRequest(group_id, topics=wanted, require_stable=True)
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=ids)
                for name, ids in by_topic.items()
            ]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id, topics=topics)], require_stable=True
        )

    def read(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        if has_groups:
            _refuse_gaps("groups", [group_id], {each.group_id for each in answer.groups})
        return _committed(answer, asked)

    return CoordinatorQuery(
        OffsetFetchRequest,
        make,
        read,
        CoordinatorKey(CoordinatorKind.GROUP, group_id),
        _FIRST_OFFSETS_THAT_ARE_STABLE,
        _LAST_OFFSETS_BY_NAME,
    )


def commit(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> CoordinatorQuery[None]:
    """Return the request to commit offsets of a group without members, in no transaction."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        entry = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=position.offset,
            committed_metadata=position.metadata,
        )
        by_topic.setdefault(topic, []).append(entry)

    def read(answer: OffsetCommitResponse) -> None:
        answered = set()
        for topic in answer.topics:
            for each in topic.partitions:
                raise_for_code(each.error_code, topic=topic.name, partition=each.partition_index)
                answered.add(TopicPartition(topic.name, each.partition_index))
        _refuse_gaps("offsets", offsets, answered)

    topics = [OffsetCommitRequestTopic(name=name, partitions=by_topic[name]) for name in by_topic]
    return CoordinatorQuery(
        OffsetCommitRequest,
        lambda _: OffsetCommitRequest(group_id, topics=topics),
        read,
        CoordinatorKey(CoordinatorKind.GROUP, group_id),
        max_version=_LAST_OFFSETS_BY_NAME,
    )


def _committed(
    response: OffsetFetchResponse, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    group = response.groups[0] if response.groups else response
    raise_for_code(group.error_code)
    answered = {
        TopicPartition(t.name, p.partition_index) for t in group.topics for p in t.partitions
    }
    _refuse_gaps("offsets", asked, answered)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in group.topics:
        for part in topic.partitions:
            raise_for_code(part.error_code, topic=topic.name, partition=part.partition_index)
            if part.committed_offset >= 0:
                epoch = part.committed_leader_epoch
                found[TopicPartition(topic.name, part.partition_index)] = OffsetAndMetadata(
                    part.committed_offset, part.metadata or None, None if epoch < 0 else epoch
                )
    return found


def _read_nothing(
    answer: AddOffsetsToTxnResponse | EndTxnResponse | InitProducerIdResponse,
) -> None:
    raise_for_code(answer.error_code)


def _of(request: TransactionalRequest, read: Callable[[Any], _T]) -> CoordinatorQuery[_T]:
    """Return a question with a request of a producer."""
    return CoordinatorQuery(
        request.request_type,
        request.make,
        read,
        None if request.rpc is Rpc.FIND_COORDINATOR else request.coordinator,
        request.min_version,
        request.max_version,
    )


def _refuse_gaps(subject: str, asked: Iterable[object], answered: Container[object]) -> None:
    """Raise unless a response has a result for everything that was asked."""
    for each in asked:
        if each not in answered:
            raise ProtocolError(f"a broker left {each!r} out of the {subject} it was asked for")
