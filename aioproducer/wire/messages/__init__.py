"""Every message of Kafka's protocol that this client supports.

`common` has the structs of several messages. Classes are named as in Kafka's own schema, with one
exception: the two different structs both called `TransactionState` there are
`ListTransactionsTransactionState` and `DescribeTransactionsTransactionState` here. In a module the
response comes first, since its request names it.
"""
