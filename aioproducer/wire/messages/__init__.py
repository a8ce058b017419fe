"""Every message of Kafka's protocol that this client supports.

`admin/` and `transactions/` have the messages of these subjects, `common` the structs of several.
Modules are named as the `ApiKey`, classes as in Kafka's own schema, with one exception: the two
different structs both called `TransactionState` there are `ListTransactionsTransactionState` and
`DescribeTransactionsTransactionState` here. In a module the response comes first, since its request
names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MODULES: Final[Mapping[str, str]] = {
    "ADD_OFFSETS_TO_TXN": "transactions",
    "ADD_PARTITIONS_TO_TXN": "transactions",
    "API_VERSIONS": "api_versions",
    "DESCRIBE_CONFIGS": "describe_configs",
    "DESCRIBE_TRANSACTIONS": "transactions",
    "END_TXN": "transactions",
    "FETCH": "fetch",
    "FIND_COORDINATOR": "find_coordinator",
    "GET_TELEMETRY_SUBSCRIPTIONS": "telemetry",
    "INIT_PRODUCER_ID": "init_producer_id",
    "LIST_OFFSETS": "list_offsets",
    "LIST_TRANSACTIONS": "transactions",
    "METADATA": "metadata",
    "OFFSET_COMMIT": "offsets",
    "OFFSET_FETCH": "offsets",
    "PRODUCE": "produce",
    "PUSH_TELEMETRY": "telemetry",
    "SASL_AUTHENTICATE": "sasl_authenticate",
    "SASL_HANDSHAKE": "sasl_handshake",
    "TXN_OFFSET_COMMIT": "transactions",
}
"""The module of each API. It is imported when its request is first looked up, so that importing the
library is cheap."""
