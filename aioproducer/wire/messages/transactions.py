"""Messages of transactions (KIP-98, KIP-664, KIP-890).

AddPartitionsToTxn from v4 is used among brokers only (KIP-890) and not declared here, hence the
`v3_and_below_` names. TxnOffsetCommit v3 fences by group member (KIP-447), v5 adds the group to the
transaction implicitly (KIP-890), v6 names topics by id (KIP-1319). From EndTxn v5 every end brings
a new epoch (KIP-890). ListTransactions v1 filters by duration (KIP-994), v2 by pattern (KIP-1152).
"""

from __future__ import annotations

from uuid import UUID

from aioproducer.wire.schema import ApiKey, Message, Struct, array, f, struct


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = f("int32", "0+")
    partition_error_code: int = f("int16", "0+")


@struct
class AddPartitionsToTxnTopicResult(Struct):
    """The outcome for one topic."""

    name: str = f("string", "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = f(
        array(AddPartitionsToTxnPartitionResult), "0+"
    )


@struct
class AddPartitionsToTxnResponse(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 3), flexible_from=3
):
    """The result for each partition. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = f(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )


@struct
class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = f("string", "0+")
    partitions: list[int] = f(array("int32"), "0+")


@struct
class AddPartitionsToTxnRequest(Message, response=AddPartitionsToTxnResponse):
    """The partitions to add to the ongoing transaction."""

    v3_and_below_transactional_id: str = f("string", "0-3")
    v3_and_below_producer_id: int = f("int64", "0-3")
    v3_and_below_producer_epoch: int = f("int16", "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = f(array(AddPartitionsToTxnTopic), "0-3")


@struct
class AddOffsetsToTxnResponse(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible_from=3
):
    """The result for the group. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+")
    error_code: int = f("int16", "0+")


@struct
class AddOffsetsToTxnRequest(Message, response=AddOffsetsToTxnResponse):
    """The group whose offsets the transaction will commit."""

    transactional_id: str = f("string", "0+")
    producer_id: int = f("int64", "0+")
    producer_epoch: int = f("int16", "0+")
    group_id: str = f("string", "0+")


@struct
class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = f("int32", "0+")
    error_code: int = f("int16", "0+")


@struct
class TxnOffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = f("string", "0-5", ignorable=True)
    topic_id: UUID = f("uuid", "6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = f(
        array(TxnOffsetCommitResponsePartition), "0+"
    )


@struct
class TxnOffsetCommitResponse(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6), flexible_from=3
):
    """The result for each offset. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+")
    topics: list[TxnOffsetCommitResponseTopic] = f(array(TxnOffsetCommitResponseTopic), "0+")


@struct
class TxnOffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition."""

    partition_index: int = f("int32", "0+")
    committed_offset: int = f("int64", "0+")
    committed_leader_epoch: int = f("int32", "2+", default=-1, ignorable=True)
    committed_metadata: str | None = f("string", "0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic(Struct):
    """The offsets to commit for one topic."""

    name: str = f("string", "0-5", ignorable=True)
    topic_id: UUID = f("uuid", "6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = f(
        array(TxnOffsetCommitRequestPartition), "0+"
    )


@struct
class TxnOffsetCommitRequest(Message, response=TxnOffsetCommitResponse):
    """The offsets, and the transaction and group member they belong to."""

    transactional_id: str = f("string", "0+")
    group_id: str = f("string", "0+")
    producer_id: int = f("int64", "0+")
    producer_epoch: int = f("int16", "0+")
    generation_id_or_member_epoch: int = f("int32", "3+", default=-1)
    member_id: str = f("string", "3+")
    group_instance_id: str | None = f("string", "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = f(array(TxnOffsetCommitRequestTopic), "0+")


@struct
class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions=(0, 5), flexible_from=3):
    """The result of the request. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    producer_id: int = f("int64", "5+", default=-1, ignorable=True)
    producer_epoch: int = f("int16", "5+", default=-1, ignorable=True)


@struct
class EndTxnRequest(Message, response=EndTxnResponse):
    """Asks the coordinator to commit or to abort."""

    transactional_id: str = f("string", "0+")
    producer_id: int = f("int64", "0+")
    producer_epoch: int = f("int16", "0+")
    committed: bool = f("bool", "0+")


@struct
class TopicData(Struct):
    """The partitions of one topic that are part of the transaction."""

    topic: str = f("string", "0+")
    partitions: list[int] = f(array("int32"), "0+")


@struct
class DescribeTransactionsTransactionState(Struct):
    """A transaction in detail; Kafka's schema calls it `TransactionState`, as it does another."""

    error_code: int = f("int16", "0+")
    transactional_id: str = f("string", "0+")
    transaction_state: str = f("string", "0+")
    transaction_timeout_ms: int = f("int32", "0+")
    transaction_start_time_ms: int = f("int64", "0+")
    producer_id: int = f("int64", "0+")
    producer_epoch: int = f("int16", "0+")
    topics: list[TopicData] = f(array(TopicData), "0+")


@struct
class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_from=0
):
    """The state of each transaction."""

    throttle_time_ms: int = f("int32", "0+")
    transaction_states: list[DescribeTransactionsTransactionState] = f(
        array(DescribeTransactionsTransactionState), "0+"
    )


@struct
class DescribeTransactionsRequest(Message, response=DescribeTransactionsResponse):
    """The transactional ids to describe."""

    transactional_ids: list[str] = f(array("string"), "0+")


@struct
class ListTransactionsTransactionState(Struct):
    """A transaction in the list; Kafka's schema calls it `TransactionState`, as it does another."""

    transactional_id: str = f("string", "0+")
    producer_id: int = f("int64", "0+")
    transaction_state: str = f("string", "0+")


@struct
class ListTransactionsResponse(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_from=0
):
    """The transactions that pass the filters."""

    throttle_time_ms: int = f("int32", "0+")
    error_code: int = f("int16", "0+")
    unknown_state_filters: list[str] = f(array("string"), "0+")
    transaction_states: list[ListTransactionsTransactionState] = f(
        array(ListTransactionsTransactionState), "0+"
    )


@struct
class ListTransactionsRequest(Message, response=ListTransactionsResponse):
    """Filters; an empty one lets everything pass."""

    state_filters: list[str] = f(array("string"), "0+")
    producer_id_filters: list[int] = f(array("int64"), "0+")
    duration_filter: int = f("int64", "1+", default=-1)
    transactional_id_pattern: str | None = f("string", "2+", nullable="2+", default=None)
