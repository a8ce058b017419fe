"""OffsetCommit (8), OffsetFetch (9) and TxnOffsetCommit (28): positions of consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from aioproducer import errors
from aioproducer.testing.broker.api.context import PARTITION_ERRORS, RequestContext
from aioproducer.testing.broker.faults import ErrorAnswer
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.transactions.coordinator import PartitionCheck
from aioproducer.testing.broker.transactions.groups import Group, GroupMember, GroupOffset
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aioproducer.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_TXN_VERSION_WITH_ADDING = 5
_FIRST_TXN_VERSION_WITH_IDS = 6
_FIRST_COMMIT_VERSION_WITH_IDS = 10
_FIRST_FETCH_VERSION_WITH_GROUPS = 8
_FIRST_FETCH_VERSION_WITH_IDS = 10
_MAX_METADATA_LENGTH = 4096
"""The broker option `offset.metadata.max.bytes`."""
_NO_OFFSET = -1


def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit offsets if and when the transaction commits."""
    member = GroupMember(
        request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    )
    commit = partial(
        ctx.cluster.groups.commit_in_transaction,
        request.group_id,
        member,
        transactional_id=request.transactional_id,
        producer=ProducerIdentity(request.producer_id, request.producer_epoch),
        check=PartitionCheck.of(ctx.version, _FIRST_TXN_VERSION_WITH_ADDING),
    )
    by_id = ctx.version >= _FIRST_TXN_VERSION_WITH_IDS
    codes = _commit(ctx, request.topics, commit, by_id=by_id)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=next(codes)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets at once."""
    member = GroupMember(
        request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    )
    commit = partial(ctx.cluster.groups.commit, request.group_id, member)
    by_id = ctx.version >= _FIRST_COMMIT_VERSION_WITH_IDS
    codes = _commit(ctx, request.topics, commit, by_id=by_id)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=next(codes)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return what is committed, of one group or, from v8, of many."""
    if ctx.version >= _FIRST_FETCH_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=[_fetch_group(ctx, each, request.require_stable) for each in request.groups]
        )
    topics = request.topics
    asked = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
            for each in topics
        ],
    )
    found = _fetch_group(ctx, asked, request.require_stable)
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


def _commit(
    ctx: RequestContext,
    topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
    commit: Callable[..., None],
    *,
    by_id: bool,
) -> Iterator[int]:
    """Commit what can be committed; yield the code of each partition in the request's order."""
    asked = [(topic, each) for topic in topics for each in topic.partitions]
    offsets: dict[TopicPartition, GroupOffset] = {}
    answers: list[TopicPartition | int] = []
    for topic, each in asked:
        try:
            where = _locate(ctx, topic, each.partition_index, by_id=by_id)
            metadata = each.committed_metadata or ""
            if len(metadata) > _MAX_METADATA_LENGTH:
                raise RefusedError(errors.OffsetMetadataTooLargeError)
        except RefusedError as refusal:
            answers.append(refusal.code)
        else:
            answers.append(where)
            offsets[where] = GroupOffset(
                each.committed_offset, each.committed_leader_epoch, metadata
            )
    struck, scripted = _strike(ctx, offsets)
    outcome = ctx.attempt(
        lambda: commit(offsets=offsets, node_id=ctx.node_id, now_ms=ctx.now_ms), scripted
    )
    for answer in answers:
        yield answer if isinstance(answer, int) else struck.get(answer, outcome.code)


def _strike(
    ctx: RequestContext, offsets: dict[TopicPartition, GroupOffset]
) -> tuple[dict[TopicPartition, int], ErrorAnswer | None]:
    """Return the partitions that a fault strikes alone, and the fault of the whole request."""
    struck: dict[TopicPartition, int] = {}
    for where in list(offsets):
        scripted = ctx.scripted_error(*where)
        if scripted is None:
            continue
        if scripted.code not in PARTITION_ERRORS:
            return struck, scripted
        struck[where] = scripted.code
        if not scripted.apply:
            del offsets[where]
    return struck, None


def _locate(
    ctx: RequestContext,
    topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic,
    index: int,
    *,
    by_id: bool,
) -> TopicPartition:
    found = ctx.find_topic(topic.name, topic.topic_id, by_id=by_id)
    if found.partition(index) is None:
        raise RefusedError(errors.UnknownTopicOrPartitionError)
    return TopicPartition(found.name, index)


def _fetch_group(
    ctx: RequestContext, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    outcome = ctx.attempt(
        lambda: ctx.cluster.groups.check_coordinator(
            asked.group_id, node_id=ctx.node_id, now_ms=ctx.now_ms
        ),
        ctx.scripted_error(asked.group_id),
    )
    if outcome.code:
        answer.error_code = outcome.code
        return answer
    group = ctx.cluster.groups.groups.get(asked.group_id) or Group()
    topics = asked.topics
    if topics is None:
        names = dict.fromkeys(where.topic for where in group.offsets)
        topics = [
            OffsetFetchRequestTopics(
                name=name,
                topic_id=ctx.cluster.topics[name].topic_id,
                partition_indexes=[each.partition for each in group.offsets if each.topic == name],
            )
            for name in names
            if name in ctx.cluster.topics
        ]
    answer.topics = [_fetch_topic(ctx, group, each, require_stable) for each in topics]
    return answer


def _fetch_topic(
    ctx: RequestContext, group: Group, asked: OffsetFetchRequestTopics, require_stable: bool
) -> OffsetFetchResponseTopics:
    name = asked.name
    missing = 0
    if ctx.version >= _FIRST_FETCH_VERSION_WITH_IDS:
        topic = ctx.cluster.topic_by_id(asked.topic_id)
        name = "" if topic is None else topic.name
        missing = errors.UnknownTopicIdError.code if topic is None else 0
    answer = OffsetFetchResponseTopics(name=name, topic_id=asked.topic_id)
    for index in asked.partition_indexes:
        where = TopicPartition(name, index)
        code, offset = missing, group.offsets.get(where)
        if require_stable and group.is_unstable(where):
            code, offset = errors.UnstableOffsetCommitError.code, None
        found = offset or GroupOffset(_NO_OFFSET)
        answer.partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=code,
            )
        )
    return answer
