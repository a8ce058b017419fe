"""Produce (0): what a leader does with record batches.

With `acks=0` there is no response; an error then closes the connection, the only way for a broker
to report it (Java: KafkaApis.handleProduceRequest).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from aioproducer import errors
from aioproducer.records.batch import RecordBatch
from aioproducer.testing.broker.api.context import (
    ERRORS_WITH_LEADER,
    DisconnectError,
    LongPoll,
    RequestContext,
)
from aioproducer.testing.broker.message_sets import FIRST_VERSION_WITH_BATCHES, as_batch
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import UnknownProducers
from aioproducer.testing.broker.topics import NO_LEADER, Partition, Topic
from aioproducer.testing.broker.transactions.coordinator import PartitionCheck
from aioproducer.testing.broker.transactions.states import ProducerIdentity
from aioproducer.testing.broker.validation import only_batch, validate_batch
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aioproducer.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ACKS_ALL = -1
_VALID_ACKS = frozenset({ACKS_ALL, 0, 1})
_FIRST_VERSION_WITH_LEADER_HINTS = 10
_FIRST_VERSION_WITH_ADDING = 12
_FIRST_VERSION_WITH_TOPIC_IDS = 13
_NOT_WRITTEN = -1

_COORDINATOR_ERRORS = frozenset(
    {
        errors.CoordinatorLoadInProgressError,
        errors.CoordinatorNotAvailableError,
        errors.NotCoordinatorError,
    }
)

_ERRORS_WITHOUT_LOG_START = frozenset(
    error.code
    for error in (
        errors.CorruptMessageError,
        errors.UnknownTopicOrPartitionError,
        errors.NotLeaderOrFollowerError,
        errors.RecordTooLargeError,
        errors.RecordListTooLargeError,
        errors.KafkaStorageError,
        errors.UnknownTopicIdError,
    )
)
"""The others contain the log start offset (Java: ReplicaManager.appendToLocalLog); clients take an
unknown sequence after a truncated log for a loss of data."""


class _Unreplicated(NamedTuple):
    """A batch in the leader's log whose response waits for the other in-sync replicas."""

    topic: Topic
    partition: Partition
    leader_epoch: int
    end_offset: int
    answer: PartitionProduceResponse


@dataclass(frozen=True, slots=True)
class _Pass:
    """One Produce request on its way, and what of it is not replicated yet."""

    request: ProduceRequest
    deadline_ms: int
    unreplicated: list[_Unreplicated] = field(default_factory=list)


def produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | LongPoll | None:
    """Append every batch that may be appended, and say what became of each.

    With `acks=all` the answer waits until every in-sync replica has them, at most as long as the
    request allows (Java: DelayedProduce).
    """
    work = _Pass(request, ctx.now_ms + request.timeout_ms)
    responses = [
        TopicProduceResponse(
            name=data.name,
            topic_id=data.topic_id,
            partition_responses=list(_produce_topic(ctx, work, data)),
        )
        for data in request.topic_data
    ]
    if request.acks == 0:
        _disconnect_on_error(responses)
        return None
    return _when_replicated(work, responses, ctx)


def _when_replicated(
    work: _Pass, responses: list[TopicProduceResponse], ctx: RequestContext
) -> ProduceResponse | LongPoll:
    work.unreplicated[:] = [
        each for each in work.unreplicated if not _is_final(ctx, work.deadline_ms, each)
    ]
    if work.unreplicated:
        watching = frozenset(
            TopicPartition(each.topic.name, each.partition.index) for each in work.unreplicated
        )
        return LongPoll(work.deadline_ms, watching, partial(_when_replicated, work, responses))
    return ProduceResponse(responses=responses, node_endpoints=_leaders_named(ctx, responses))


def _is_final(ctx: RequestContext, deadline_ms: int, each: _Unreplicated) -> bool:
    """Return whether a batch's response is final; an error after the append goes into it.

    Java: Partition.checkEnoughReplicasReachOffset. The batch may be in the log and stay there
    whatever the response is: the error only means that this leader will not find out.
    """
    partition = each.partition
    error: type[errors.BrokerError] | None = None
    if (partition.leader, partition.leader_epoch) != (ctx.node_id, each.leader_epoch):
        error = errors.NotLeaderOrFollowerError
    elif partition.high_watermark >= each.end_offset:
        if len(partition.isr) < _needed_replicas(each.topic, partition):
            error = errors.NotEnoughReplicasAfterAppendError
    elif ctx.now_ms >= deadline_ms:
        error = errors.RequestTimedOutError
    else:
        return False
    if error is not None:
        answer = each.answer
        failed = _failed(ctx, each.topic, answer.index, error.code, None)
        answer.error_code, answer.base_offset = failed.error_code, failed.base_offset
        answer.current_leader = failed.current_leader
        answer.log_append_time_ms = failed.log_append_time_ms
        answer.log_start_offset = _log_start_for(partition, error.code)
    return True


def _produce_topic(
    ctx: RequestContext, work: _Pass, data: TopicProduceData
) -> Iterable[PartitionProduceResponse]:
    try:
        by_id = ctx.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        topic = ctx.find_topic(data.name, data.topic_id, by_id=by_id)
    except RefusedError as refusal:
        return [_refused(ctx, None, each, refusal) for each in data.partition_data]
    return [_produce_partition(ctx, work, topic, each) for each in data.partition_data]


def _produce_partition(
    ctx: RequestContext, work: _Pass, topic: Topic, data: PartitionProduceData
) -> PartitionProduceResponse:
    scripted = ctx.scripted_error(topic.name, data.index)
    if scripted is None or scripted.apply:
        try:
            answer = _append(ctx, work, topic, data)
        except RefusedError as refusal:
            answer = _refused(ctx, topic, data, refusal)
        if scripted is None:
            return answer
    answer = _failed(ctx, topic, data.index, scripted.code, scripted.message)
    if (partition := topic.partition(data.index)) is not None:
        answer.log_start_offset = _log_start_for(partition, scripted.code)
    return answer


def _append(
    ctx: RequestContext, work: _Pass, topic: Topic, data: PartitionProduceData
) -> PartitionProduceResponse:
    request = work.request
    if request.acks not in _VALID_ACKS:
        raise RefusedError(errors.InvalidRequiredAcksError)
    partition = ctx.led_partition(topic, data.index)
    records = data.records or b""
    if ctx.version < FIRST_VERSION_WITH_BATCHES:
        records = as_batch(records, ctx.version)
    batch = only_batch(records, version=ctx.version)
    if batch.is_transactional:
        _admit(ctx, request, partition, batch)
    try:
        if request.acks == ACKS_ALL:
            _check_in_sync_replicas(topic, partition)
        validate_batch(
            batch,
            topic.config,
            ctx.now_ms,
            verify_records=ctx.cluster.settings.verify_records,
        )
        partition.expire_producers(ctx.cluster.settings, ctx.now_ms)
        _check_is_known(ctx, partition, batch)
        if batch.is_transactional and ctx.version >= _FIRST_VERSION_WITH_ADDING:
            _check_begins_at_zero(partition, batch)
        appended = partition.append(records, batch, topic.config, ctx.now_ms)
    except RefusedError as refusal:
        if ctx.cluster.settings.unknown_producers is not UnknownProducers.OUT_OF_ORDER:
            refusal.log_start_offset = _log_start_for(partition, refusal.code)
        raise
    if appended.is_new:
        ctx.cluster.notify(topic.name, data.index)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.start_offset,
    )
    if request.acks == ACKS_ALL:
        work.unreplicated.append(
            _Unreplicated(topic, partition, partition.leader_epoch, appended.end_offset, answer)
        )
    return answer


def _check_in_sync_replicas(topic: Topic, partition: Partition) -> None:
    needed = _needed_replicas(topic, partition)
    if len(partition.isr) < needed:
        raise RefusedError(
            errors.NotEnoughReplicasError,
            f"The size of the current ISR {len(partition.isr)} is insufficient to satisfy the "
            f"min.isr requirement of {needed} for partition {topic.name}-{partition.index}",
        )


def _needed_replicas(topic: Topic, partition: Partition) -> int:
    # No more can be asked for than there are replicas (Java: Partition.effectiveMinIsr).
    return min(topic.config.min_insync_replicas, len(partition.replicas))


def _admit(
    ctx: RequestContext, request: ProduceRequest, partition: Partition, batch: RecordBatch
) -> None:
    """Refuse a transactional batch whose partition is not part of the transaction (KIP-890)."""
    producer = ProducerIdentity(batch.producer_id, batch.producer_epoch)
    if request.transactional_id is None:
        raise RefusedError(errors.TransactionalIdAuthorizationFailedError)
    if partition.has_open_transaction(*producer):
        return
    check = PartitionCheck.of(ctx.version, _FIRST_VERSION_WITH_ADDING)
    where = TopicPartition(partition.topic, partition.index)
    try:
        ctx.cluster.transactions.admit(request.transactional_id, producer, where, check, ctx.now_ms)
    except RefusedError as refusal:
        adds = check is PartitionCheck.ADD
        if refusal.error in _COORDINATOR_ERRORS or (
            refusal.error is errors.ConcurrentTransactionsError and not adds
        ):
            # An error that makes older clients try again later (Java: ReplicaManager).
            raise RefusedError(
                errors.NotEnoughReplicasError,
                "Unable to verify the partition has been added to the transaction. "
                f"Underlying error: {refusal.error.error_name}",
            ) from refusal
        raise


def _check_is_known(ctx: RequestContext, partition: Partition, batch: RecordBatch) -> None:
    """Refuse a batch in the middle of an unknown producer's sequences, as some brokers do."""
    handling, producer_id = ctx.cluster.settings.unknown_producers, batch.producer_id
    if (
        handling is UnknownProducers.ACCEPT
        or producer_id < 0
        or batch.base_sequence == 0
        or partition.producers.epoch_of(producer_id) is not None
    ):
        return
    if handling is UnknownProducers.UNKNOWN_PRODUCER_ID:
        raise RefusedError(
            errors.UnknownProducerIdError,
            f"Found no record of producerId={producer_id} on the broker. It is possible that the "
            f"last message with the producerId={producer_id} has been removed due to hitting the "
            "retention limit.",
        )
    raise RefusedError(errors.OutOfOrderSequenceNumberError)


def _check_begins_at_zero(partition: Partition, batch: RecordBatch) -> None:
    """Refuse a V2 transaction by an expired producer that does not begin at sequence 0."""
    producer_id, sequence = batch.producer_id, batch.base_sequence
    if sequence != 0 and partition.producers.epoch_of(producer_id) is None:
        raise RefusedError(
            errors.OutOfOrderSequenceNumberError,
            f"Invalid sequence number for producer {producer_id}: {sequence} (incoming seq. "
            "number). Expected sequence 0 for transactions v2 producer with no existing state",
        )


def _log_start_for(partition: Partition, code: int) -> int:
    return _NOT_WRITTEN if code in _ERRORS_WITHOUT_LOG_START else partition.log.start_offset


def _refused(
    ctx: RequestContext, topic: Topic | None, data: PartitionProduceData, refusal: RefusedError
) -> PartitionProduceResponse:
    answer = _failed(ctx, topic, data.index, refusal.code, refusal.message)
    answer.log_start_offset = refusal.log_start_offset
    if ctx.cluster.settings.names_bad_records:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refusal.record_errors
        ]
    return answer


def _failed(
    ctx: RequestContext, topic: Topic | None, index: int, code: int, message: str | None
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(
        index=index, error_code=code, base_offset=_NOT_WRITTEN, error_message=message
    )
    partition = topic.partition(index) if topic else None
    has_hint = ctx.version >= _FIRST_VERSION_WITH_LEADER_HINTS and code in ERRORS_WITH_LEADER
    if has_hint and partition is not None:
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return answer


def _leaders_named(
    ctx: RequestContext, responses: list[TopicProduceResponse]
) -> list[NodeEndpoint]:
    named = {
        answer.current_leader.leader_id
        for topic in responses
        for answer in topic.partition_responses
        if answer.current_leader.leader_id != NO_LEADER
    }
    return node_endpoints(ctx, named)


def node_endpoints(ctx: RequestContext, node_ids: set[int]) -> list[NodeEndpoint]:
    """Return the addresses of the brokers named as leaders (KIP-951)."""
    return [
        NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in ctx.cluster.live_brokers
        if node.node_id in node_ids
    ]


def _disconnect_on_error(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                raise DisconnectError(
                    f"error {answer.error_code} for {topic.name}-{answer.index} with acks=0"
                )
