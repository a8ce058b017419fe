"""DescribeTransactions (65): the state of single transactions (KIP-664).

Must go to the coordinator of the transactional ids; states are named as in the transaction log
(`Ongoing`, `PrepareCommit`, `CompleteAbort` ...).
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
class TopicData(Struct):
    """The partitions of one topic that are part of the transaction."""

    topic: str = f(string, "0+")
    partitions: list[int] = f(array(int32), "0+")


@struct
class DescribeTransactionsTransactionState(Struct):
    """A transaction in detail; Kafka's schema calls it `TransactionState`, as it does another."""

    error_code: int = f(int16, "0+")
    transactional_id: str = f(string, "0+")
    transaction_state: str = f(string, "0+")
    transaction_timeout_ms: int = f(int32, "0+")
    transaction_start_time_ms: int = f(int64, "0+")
    producer_id: int = f(int64, "0+")
    producer_epoch: int = f(int16, "0+")
    topics: list[TopicData] = f(array(TopicData), "0+")


@struct
class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_from=0
):
    """The state of each transaction."""

    throttle_time_ms: int = f(int32, "0+")
    transaction_states: list[DescribeTransactionsTransactionState] = f(
        array(DescribeTransactionsTransactionState), "0+"
    )


@struct
class DescribeTransactionsRequest(
    Message,
    api_key=ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    flexible_from=0,
    response=DescribeTransactionsResponse,
):
    """The transactional ids to describe."""

    transactional_ids: list[str] = f(array(string), "0+")
