"""The permission that a refused request lacks: operation, resource and principal of an error.

The operations are those of Kafka's authorizer for each request; the kind of resource follows from
the error's class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from aioproducer import errors

_Error = TypeVar("_Error", bound=errors.KafkaError)

_OF_TOPICS: Final[Mapping[str, str]] = {
    "Produce": "WRITE",
    "AddPartitionsToTxn": "WRITE",
    "InitProducerId": "WRITE",
    "TxnOffsetCommit": "READ",
    "OffsetCommit": "READ",
    "Fetch": "READ",
    "CreateTopics": "CREATE",
    "CreatePartitions": "ALTER",
    "DeleteTopics": "DELETE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
}
_OF_GROUPS: Final[Mapping[str, str]] = {"OffsetFetch": "DESCRIBE", "FindCoordinator": "DESCRIBE"}
_OF_TRANSACTIONAL_IDS: Final[Mapping[str, str]] = {
    "FindCoordinator": "DESCRIBE",
    "DescribeTransactions": "DESCRIBE",
    "ListTransactions": "DESCRIBE",
}
_OF_CLUSTER: Final[Mapping[str, str]] = {
    "InitProducerId": "IDEMPOTENT_WRITE",
    "Produce": "IDEMPOTENT_WRITE",
    "CreateTopics": "CREATE",
    "Metadata": "DESCRIBE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
}
_CLUSTER_OR: Final[Mapping[str, str]] = {
    "InitProducerId": "the cluster or, since Kafka 2.8, WRITE on a topic",
    "Produce": "the cluster or, since Kafka 2.8, WRITE on a topic",
    "CreateTopics": "the cluster, or on the topic",
}


def with_access(
    error: _Error,
    request: str,
    principal: Callable[[], str],
    *,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
) -> _Error:
    """Return the error, with principal and permission if authorization failed."""
    if not isinstance(error, errors.AuthorizationError) or error.principal is not None:
        return error
    topic, user = error.topic or topic, principal()
    if isinstance(error, errors.TopicAuthorizationFailedError):
        named = "a topic" if topic is None else f"topic {topic!r}"
        return error.with_access(user, _OF_TOPICS.get(request, "DESCRIBE"), named)
    if isinstance(error, errors.GroupAuthorizationFailedError):
        named = "the consumer group" if group is None else f"group {group!r}"
        return error.with_access(user, _OF_GROUPS.get(request, "READ"), named)
    if isinstance(error, errors.TransactionalIdAuthorizationFailedError):
        wanted = _OF_TRANSACTIONAL_IDS.get(request, "WRITE")
        named = (
            "the transactional id"
            if transactional_id is None
            else f"transactional id {transactional_id!r}"
        )
        return error.with_access(user, wanted, named)
    if isinstance(error, errors.ClusterAuthorizationFailedError):
        wanted = _OF_CLUSTER.get(request, "CLUSTER_ACTION")
        return error.with_access(user, wanted, _CLUSTER_OR.get(request, "the cluster"))
    return error


def request_name(request_type: type) -> str:
    """Return the name of a request in Kafka's protocol, of its message's class."""
    return request_type.__name__.removesuffix("Request")


def this_principal() -> str:
    """Return the principal where nothing else is known."""
    return "the principal of this connection"
