"""Every message of Kafka's protocol that this client supports, one module per API.

`admin/` and `transactions/` have the messages of these subjects, `common` the structs of several.
Modules are named as the `ApiKey`, classes as in Kafka's own schema, with one exception: the two
different structs both called `TransactionState` there are `ListTransactionsTransactionState` and
`DescribeTransactionsTransactionState` here. In a module the response comes first, since its request
names it.
"""

from __future__ import annotations

from typing import Final

MODULES: Final = (
    "api_versions",
    "describe_configs",
    "fetch",
    "find_coordinator",
    "get_telemetry_subscriptions",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "produce",
    "push_telemetry",
    "sasl_authenticate",
    "sasl_handshake",
    "transactions.add_offsets_to_txn",
    "transactions.add_partitions_to_txn",
    "transactions.describe_transactions",
    "transactions.end_txn",
    "transactions.list_transactions",
    "transactions.txn_offset_commit",
)
"""Each is imported when its request is first looked up, so that importing the library is cheap."""
