"""ListTransactions (66) and DescribeTransactions (65): the coordinators' transactions (KIP-664)."""

from __future__ import annotations

import re
from collections.abc import Callable

from aioproducer import errors
from aioproducer.testing.broker.api.context import RequestContext
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.transactions.states import Transaction, TransactionState
from aioproducer.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    TopicData,
)

_STATES = frozenset(state.value for state in TransactionState)


def list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Return the transactions of the asked coordinator that pass every filter."""
    unknown = [state for state in request.state_filters if state not in _STATES]
    outcome = ctx.attempt(lambda: _listed(ctx, request), ctx.scripted_error(None))
    if outcome.value is None:
        return ListTransactionsResponse(error_code=outcome.code, unknown_state_filters=unknown)
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListTransactionsTransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in outcome.value
        ],
    )


def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe single transactions, at their coordinator."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(ctx, each) for each in request.transactional_ids]
    )


def _listed(ctx: RequestContext, request: ListTransactionsRequest) -> list[Transaction]:
    tests: list[Callable[[Transaction], object]] = []
    if request.state_filters:
        tests.append(lambda each: each.state.value in request.state_filters)
    if request.producer_id_filters:
        tests.append(lambda each: each.producer_id in request.producer_id_filters)
    if request.duration_filter >= 0:
        latest = ctx.now_ms - request.duration_filter
        # Only what has not ended yet has a duration (Java: TransactionStateManager).
        tests.append(lambda each: each.is_pending and each.started_ms < latest)
    if request.transactional_id_pattern:
        try:
            pattern = re.compile(request.transactional_id_pattern)
        except re.error as error:
            raise RefusedError(errors.InvalidRegularExpressionError) from error
        tests.append(lambda each: pattern.fullmatch(each.transactional_id))
    found = ctx.cluster.transactions.coordinated_by(ctx.node_id, ctx.now_ms)
    return [each for each in found if all(test(each) for test in tests)]


def _describe(ctx: RequestContext, transactional_id: str) -> DescribeTransactionsTransactionState:
    outcome = ctx.attempt(
        lambda: _find(ctx, transactional_id), ctx.scripted_error(transactional_id)
    )
    answer = DescribeTransactionsTransactionState(
        error_code=outcome.code, transactional_id=transactional_id
    )
    if (found := outcome.value) is not None:
        answer.transaction_state = found.state.value
        answer.transaction_timeout_ms = found.timeout_ms
        answer.transaction_start_time_ms = found.started_ms
        answer.producer_id, answer.producer_epoch = found.identity
        names = dict.fromkeys(where.topic for where in sorted(found.partitions))
        answer.topics = [
            TopicData(
                topic=name,
                partitions=sorted(
                    where.partition for where in found.partitions if where.topic == name
                ),
            )
            for name in names
        ]
    return answer


def _find(ctx: RequestContext, transactional_id: str) -> Transaction:
    if not transactional_id:
        raise RefusedError(errors.InvalidRequestError)
    found = ctx.cluster.transactions.find(transactional_id, node_id=ctx.node_id, now_ms=ctx.now_ms)
    if found is None:
        raise RefusedError(errors.TransactionalIdNotFoundError)
    return found
