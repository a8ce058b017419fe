"""InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26): the
life of a transaction as a producer drives it.
"""

from __future__ import annotations

from typing import Any

from aioproducer import errors
from aioproducer.testing.broker.api.context import PARTITION_ERRORS, Outcome, RequestContext
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.transactions.states import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    V1,
    V2,
    ProducerIdentity,
)
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from aioproducer.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
)

_FIRST_INIT_VERSION_WITH_FENCED = 4
_FIRST_ADD_VERSION_WITH_FENCED = 2
_FIRST_END_VERSION_WITH_FENCED = 2
_FIRST_END_VERSION_WITH_BUMP = 5


def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out a producer id and epoch; without a transactional id always a new id."""
    scripted = ctx.scripted_error(request.transactional_id)
    outcome = ctx.attempt(lambda: _initialize(ctx, request), scripted)
    if outcome.value is None:
        code = _known_error(ctx, outcome, _FIRST_INIT_VERSION_WITH_FENCED)
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH)
    producer_id, epoch = outcome.value
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _initialize(ctx: RequestContext, request: InitProducerIdRequest) -> ProducerIdentity:
    given = ProducerIdentity(request.producer_id, request.producer_epoch)
    has_id, has_epoch = given.producer_id != NO_PRODUCER_ID, given.epoch != NO_EPOCH
    if has_id != has_epoch:
        raise RefusedError(errors.InvalidRequestError)
    if request.transactional_id is None:
        return ProducerIdentity(ctx.cluster.new_producer_id(), ctx.cluster.settings.first_epoch)
    if request.keep_prepared_txn:
        # No broker has that yet (Java: TransactionCoordinator.handleInitProducerId).
        raise RefusedError(errors.UnsupportedVersionError)
    return ctx.cluster.transactions.initialize(
        request.transactional_id,
        request.transaction_timeout_ms,
        given if has_id else None,
        node_id=ctx.node_id,
        now_ms=ctx.now_ms,
        two_phase=request.enable2_pc,
    )


def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all of the partitions, or none."""
    codes = _add_partitions(ctx, request)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=codes[TopicPartition(topic.name, index)],
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _add_partitions(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> dict[TopicPartition, int]:
    asked = [
        TopicPartition(topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    not_attempted = dict.fromkeys(asked, errors.OperationNotAttemptedError.code)
    unknown = [where for where in asked if ctx.cluster.partition(*where) is None]
    if unknown:
        return not_attempted | dict.fromkeys(unknown, errors.UnknownTopicOrPartitionError.code)
    struck = ((where, ctx.scripted_error(*where)) for where in asked)
    culprit, scripted = next(((where, each) for where, each in struck if each), (None, None))
    producer = ProducerIdentity(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    outcome = ctx.attempt(
        lambda: ctx.cluster.transactions.add(
            request.v3_and_below_transactional_id,
            producer,
            asked,
            node_id=ctx.node_id,
            now_ms=ctx.now_ms,
        ),
        scripted,
    )
    code = _known_error(ctx, outcome, _FIRST_ADD_VERSION_WITH_FENCED)
    if culprit is not None and code in PARTITION_ERRORS:
        return not_attempted | {culprit: code}
    return dict.fromkeys(asked, code)


def add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group's offsets to the transaction."""
    transactions = ctx.cluster.transactions
    outcome = ctx.attempt(
        lambda: transactions.add(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            [transactions.offsets_partition(request.group_id)],
            node_id=ctx.node_id,
            now_ms=ctx.now_ms,
        ),
        ctx.scripted_error(request.transactional_id),
    )
    return AddOffsetsToTxnResponse(
        error_code=_known_error(ctx, outcome, _FIRST_ADD_VERSION_WITH_FENCED)
    )


def end_txn(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Decide a transaction's end; v5 returns the producer's next id and epoch (KIP-890)."""
    outcome = ctx.attempt(
        lambda: ctx.cluster.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=V2 if ctx.version >= _FIRST_END_VERSION_WITH_BUMP else V1,
            node_id=ctx.node_id,
            now_ms=ctx.now_ms,
        ),
        ctx.scripted_error(request.transactional_id),
    )
    if outcome.value is None:
        return EndTxnResponse(error_code=_known_error(ctx, outcome, _FIRST_END_VERSION_WITH_FENCED))
    producer_id, epoch = outcome.value
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def _known_error(ctx: RequestContext, outcome: Outcome[Any], first_with_fenced: int) -> int:
    """PRODUCER_FENCED is a separate code in newer versions only (KIP-588)."""
    if ctx.version < first_with_fenced and outcome.code == errors.ProducerFencedError.code:
        return errors.InvalidProducerEpochError.code
    return outcome.code
