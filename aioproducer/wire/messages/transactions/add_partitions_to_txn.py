"""AddPartitionsToTxn (24): announces partitions a transaction is about to write to (KIP-98).

Versions 0 to 3 are the clients' own; 4 and later are used among brokers only (KIP-890) and are
not declared here, hence the `v3_and_below_` names. From v12 of Produce clients need it no more.
"""

from __future__ import annotations

from aioproducer.wire.schema import (
    ApiKey,
    Message,
    Struct,
    array,
    f,
    int16,
    int32,
    int64,
    string,
    struct,
)


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = f(int32, "0+")
    partition_error_code: int = f(int16, "0+")


@struct
class AddPartitionsToTxnTopicResult(Struct):
    """The outcome for one topic."""

    name: str = f(string, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = f(
        array(AddPartitionsToTxnPartitionResult), "0+"
    )


@struct
class AddPartitionsToTxnResponse(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 3), flexible_from=3
):
    """The result for each partition. From v1 it is sent before the quota delay (KIP-219)."""

    throttle_time_ms: int = f(int32, "0+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = f(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )


@struct
class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = f(string, "0+")
    partitions: list[int] = f(array(int32), "0+")


@struct
class AddPartitionsToTxnRequest(
    Message,
    api_key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 3),
    flexible_from=3,
    response=AddPartitionsToTxnResponse,
):
    """The partitions to add to the ongoing transaction."""

    v3_and_below_transactional_id: str = f(string, "0-3")
    v3_and_below_producer_id: int = f(int64, "0-3")
    v3_and_below_producer_epoch: int = f(int16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = f(array(AddPartitionsToTxnTopic), "0-3")
