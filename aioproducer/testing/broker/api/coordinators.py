"""FindCoordinator (10): the coordinator of a transactional id or a group."""

from __future__ import annotations

from aioproducer import errors
from aioproducer.testing.broker.api.context import RequestContext
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import BrokerSpec
from aioproducer.testing.broker.transactions.shards import CoordinatorKind
from aioproducer.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_FIRST_VERSION_WITH_KEYS = 4


def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name the coordinator of each key, as far as this broker has it."""
    if ctx.version >= _FIRST_VERSION_WITH_KEYS:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_find(ctx, request.key_type, key) for key in keys]
        )
    found = _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    outcome = ctx.attempt(lambda: _coordinator(ctx, key_type, key), ctx.scripted_error(key))
    if outcome.value is None:
        return Coordinator(
            key=key, node_id=-1, port=-1, error_code=outcome.code, error_message=outcome.message
        )
    node = outcome.value
    return Coordinator(
        key=key, node_id=node.node_id, host=node.host, port=node.port, error_message=None
    )


def _coordinator(ctx: RequestContext, key_type: int, key: str) -> BrokerSpec:
    try:
        kind = CoordinatorKind(key_type)
    except ValueError:
        raise RefusedError(errors.InvalidRequestError) from None
    cluster = ctx.cluster
    leader = cluster.known_leadership(ctx.node_id, cluster.shards.shard(kind, key)).leader
    for node in cluster.known_brokers(ctx.node_id):
        if node.node_id == leader:
            return node
    raise RefusedError(errors.CoordinatorNotAvailableError, "The coordinator is not available.")
