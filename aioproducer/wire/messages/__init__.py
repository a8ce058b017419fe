"""Every message of Kafka's protocol that this client supports, one module per API.

Owns: the lazy imports. `from aioproducer.wire.messages import MetadataRequest` loads the module
that declares it and no other, so that importing the library stays cheap; type checkers read the
stub beside this file. `admin/` and `transactions/` have the messages of these subjects. Modules are
named as the `ApiKey`, classes as in Kafka's own schema, with one exception: the two different
structs both called `TransactionState` there are `ListTransactionsTransactionState` and
`DescribeTransactionsTransactionState` here. In a module the response comes first, since its request
names it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

CLASSES: dict[str, tuple[str, ...]] = {
    "admin.create_partitions": (
        "CreatePartitionsTopicResult",
        "CreatePartitionsResponse",
        "CreatePartitionsAssignment",
        "CreatePartitionsTopic",
        "CreatePartitionsRequest",
    ),
    "admin.create_topics": (
        "CreatableTopicConfigs",
        "CreatableTopicResult",
        "CreateTopicsResponse",
        "CreatableReplicaAssignment",
        "CreatableTopicConfig",
        "CreatableTopic",
        "CreateTopicsRequest",
    ),
    "admin.delete_topics": (
        "DeletableTopicResult",
        "DeleteTopicsResponse",
        "DeleteTopicState",
        "DeleteTopicsRequest",
    ),
    "admin.describe_cluster": (
        "DescribeClusterBroker",
        "DescribeClusterResponse",
        "DescribeClusterRequest",
    ),
    "admin.describe_configs": (
        "DescribeConfigsSynonym",
        "DescribeConfigsResourceResult",
        "DescribeConfigsResult",
        "DescribeConfigsResponse",
        "DescribeConfigsResource",
        "DescribeConfigsRequest",
    ),
    "admin.describe_topic_partitions": (
        "DescribeTopicPartitionsResponsePartition",
        "DescribeTopicPartitionsResponseTopic",
        "Cursor",
        "DescribeTopicPartitionsResponse",
        "TopicRequest",
        "DescribeTopicPartitionsRequest",
    ),
    "admin.incremental_alter_configs": (
        "AlterConfigsResourceResponse",
        "IncrementalAlterConfigsResponse",
        "AlterableConfig",
        "AlterConfigsResource",
        "IncrementalAlterConfigsRequest",
    ),
    "api_versions": (
        "ApiVersion",
        "SupportedFeatureKey",
        "FinalizedFeatureKey",
        "ApiVersionsResponse",
        "ApiVersionsRequest",
    ),
    "common": (
        "LeaderIdAndEpoch",
        "NodeEndpoint",
    ),
    "fetch": (
        "EpochEndOffset",
        "SnapshotId",
        "AbortedTransaction",
        "PartitionData",
        "FetchableTopicResponse",
        "FetchResponse",
        "ReplicaState",
        "FetchPartition",
        "FetchTopic",
        "ForgottenTopic",
        "FetchRequest",
    ),
    "find_coordinator": (
        "Coordinator",
        "FindCoordinatorResponse",
        "FindCoordinatorRequest",
    ),
    "get_telemetry_subscriptions": (
        "GetTelemetrySubscriptionsResponse",
        "GetTelemetrySubscriptionsRequest",
    ),
    "init_producer_id": (
        "InitProducerIdResponse",
        "InitProducerIdRequest",
    ),
    "list_offsets": (
        "ListOffsetsPartitionResponse",
        "ListOffsetsTopicResponse",
        "ListOffsetsResponse",
        "ListOffsetsPartition",
        "ListOffsetsTopic",
        "ListOffsetsRequest",
    ),
    "metadata": (
        "MetadataResponseBroker",
        "MetadataResponsePartition",
        "MetadataResponseTopic",
        "MetadataResponse",
        "MetadataRequestTopic",
        "MetadataRequest",
    ),
    "offset_commit": (
        "OffsetCommitResponsePartition",
        "OffsetCommitResponseTopic",
        "OffsetCommitResponse",
        "OffsetCommitRequestPartition",
        "OffsetCommitRequestTopic",
        "OffsetCommitRequest",
    ),
    "offset_fetch": (
        "OffsetFetchResponsePartition",
        "OffsetFetchResponseTopic",
        "OffsetFetchResponsePartitions",
        "OffsetFetchResponseTopics",
        "OffsetFetchResponseGroup",
        "OffsetFetchResponse",
        "OffsetFetchRequestTopic",
        "OffsetFetchRequestTopics",
        "OffsetFetchRequestGroup",
        "OffsetFetchRequest",
    ),
    "produce": (
        "BatchIndexAndErrorMessage",
        "PartitionProduceResponse",
        "TopicProduceResponse",
        "ProduceResponse",
        "PartitionProduceData",
        "TopicProduceData",
        "ProduceRequest",
    ),
    "push_telemetry": (
        "PushTelemetryResponse",
        "PushTelemetryRequest",
    ),
    "sasl_authenticate": (
        "SaslAuthenticateResponse",
        "SaslAuthenticateRequest",
    ),
    "sasl_handshake": (
        "SaslHandshakeResponse",
        "SaslHandshakeRequest",
    ),
    "transactions.add_offsets_to_txn": (
        "AddOffsetsToTxnResponse",
        "AddOffsetsToTxnRequest",
    ),
    "transactions.add_partitions_to_txn": (
        "AddPartitionsToTxnPartitionResult",
        "AddPartitionsToTxnTopicResult",
        "AddPartitionsToTxnResponse",
        "AddPartitionsToTxnTopic",
        "AddPartitionsToTxnRequest",
    ),
    "transactions.describe_transactions": (
        "TopicData",
        "DescribeTransactionsTransactionState",
        "DescribeTransactionsResponse",
        "DescribeTransactionsRequest",
    ),
    "transactions.end_txn": (
        "EndTxnResponse",
        "EndTxnRequest",
    ),
    "transactions.list_transactions": (
        "ListTransactionsTransactionState",
        "ListTransactionsResponse",
        "ListTransactionsRequest",
    ),
    "transactions.txn_offset_commit": (
        "TxnOffsetCommitResponsePartition",
        "TxnOffsetCommitResponseTopic",
        "TxnOffsetCommitResponse",
        "TxnOffsetCommitRequestPartition",
        "TxnOffsetCommitRequestTopic",
        "TxnOffsetCommitRequest",
    ),
}
_MODULE_OF = {name: module for module, names in CLASSES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load the module that declares `name`, once."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
