"""ListTransactions (66): the transactions of a coordinator (KIP-664).

v1 filters by how long they have been running (KIP-994), v2 by a pattern of the id (KIP-1152).
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
class ListTransactionsTransactionState(Struct):
    """A transaction in the list; Kafka's schema calls it `TransactionState`, as it does another."""

    transactional_id: str = f(string, "0+")
    producer_id: int = f(int64, "0+")
    transaction_state: str = f(string, "0+")


@struct
class ListTransactionsResponse(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_from=0
):
    """The transactions that pass the filters."""

    throttle_time_ms: int = f(int32, "0+")
    error_code: int = f(int16, "0+")
    unknown_state_filters: list[str] = f(array(string), "0+")
    transaction_states: list[ListTransactionsTransactionState] = f(
        array(ListTransactionsTransactionState), "0+"
    )


@struct
class ListTransactionsRequest(
    Message,
    api_key=ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    flexible_from=0,
    response=ListTransactionsResponse,
):
    """Filters; an empty one lets everything pass."""

    state_filters: list[str] = f(array(string), "0+")
    producer_id_filters: list[int] = f(array(int64), "0+")
    duration_filter: int = f(int64, "1+", default=-1)
    transactional_id_pattern: str | None = f(string, "2+", nullable="2+", default=None)
