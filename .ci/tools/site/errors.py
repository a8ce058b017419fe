"""The page of all errors, generated from the error tables and the advice table.

Each error has a heading, hence an anchor and an entry of the search. `CLIENT` has, for errors of the
client, what their classes do not: whether the record may have been written, and what to do.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Final

from aioproducer import errors
from aioproducer.core.sending.produce_rules import NEVER_APPENDED
from aioproducer.errors import BrokerError, KafkaError, broker, broker_internal
from aioproducer.errors.advice import ADVICE

FILES: Final = (
    "aioproducer/errors/__init__.py",
    "aioproducer/errors/broker.py",
    "aioproducer/errors/broker_internal.py",
    "aioproducer/errors/advice.py",
)

INTRODUCTION: Final = """\
# Errors

Every error is a `KafkaError`. It has the attributes `topic`, `partition`, `node_id`, `elapsed_ms` and `advice`, as far as
they apply, and these two:

- `retriable`: the same operation may succeed later. The producer has already retried it until `delivery_timeout_ms`.
- `persistence` of a record: `NOT_PERSISTED` (it is not in the log and never will be) or `POSSIBLY_PERSISTED` (an attempt may
  have been written). It covers all attempts, so decide by it and not by the class of the last error.

If you publish a record again after `POSSIBLY_PERSISTED`, it may be written twice. After `NOT_PERSISTED` it is not.

"""

TROUBLES: Final = """
## What to do

The attribute `advice` of an error, and the last part of its text, come from this table. More than one row may apply.
`aioproducer doctor` finds most of these problems and prints the same codes.

| code | what to do |
|---|---|
"""


def see(*codes: str) -> str:
    """Links into the table of what to do."""
    return "See " + ", ".join(f"[`{code}`](#{code})" for code in codes if ADVICE[code]) + "."


_NEVER: Final = "no, the call itself raised the error"
_ASK: Final = "see the attribute `persistence`"
_NO_RECORD: Final = "does not apply to a record"

CLIENT: Final[dict[str, tuple[str, str]]] = {
    "ConfigError": (_NO_RECORD, "Correct the option; the error names it and the valid values."),
    "IllegalStateError": (_NEVER, "Call `start`, then the send methods, then `close`."),
    "ProducerClosedError": (
        _ASK,
        "Close after the last `send`, with a timeout that is long enough.",
    ),
    "WrongLoopError": (_NEVER, "Use the producer in the loop that started it, or one per loop."),
    "ForkedError": (_NEVER, ""),
    "ProducerFailedError": (
        _ASK,
        "Close it and start a new one. Please report it with its cause.",
    ),
    "RecordsPurgedError": (_ASK, "Nothing: your program called `purge()`."),
    "RecordsFailedError": (_ASK, ""),
    "BatchRefusedError": (_ASK, ""),
    "TransactionAbortedError": ("no: its transaction was aborted", "Repeat the transaction."),
    "FatalTransactionError": (
        "no, unless the transaction was committed or prepared; `CommitOutcomeUnknownError` is raised "
        "if that is unknown",
        "",
    ),
    "CommitOutcomeUnknownError": ("the whole transaction or none of it", ""),
    "PreparedTransactionEndedError": (
        "the error says whether it was committed or aborted",
        "Compare with your decision; another client or the timeout ended the transaction.",
    ),
    "PreparedTransactionUnknownError": ("possibly", ""),
    "SerializationError": (_NEVER, "Correct the data at `part` and `path`."),
    "SchemaRegistryError": (_NEVER, "See `status`; retry if it is `retriable`."),
    "SchemaNotFoundError": (_NEVER, "Register the schema when you deploy."),
    "IncompatibleSchemaError": (
        _NEVER,
        "Change the schema so that it is compatible; see `details`.",
    ),
    "InvalidPartitionError": (_NEVER, ""),
    "WouldBlockError": (_NEVER, ""),
    "BufferFullError": (_NEVER, ""),
    "KafkaTimeoutError": (_ASK, "Retry, or raise the timeout that the error names."),
    "BufferExhaustedError": (_NEVER, ""),
    "MetadataTimeoutError": (
        _NEVER,
        see("topic-missing", "topic-not-created-here", "partition-unknown", "no-answer"),
    ),
    "DeliveryTimeoutError": (
        _ASK,
        "The error says what the record waited for. "
        + see(
            "advertised-unreachable", "broker-away", "too-few-replicas", "partition-without-leader"
        ),
    ),
    "RequestTimeoutError": (_ASK, "The producer has retried. " + see("no-answer", "broker-away")),
    "NotKafkaError": (_NEVER, ""),
    "KafkaConnectionError": (
        _ASK,
        "The producer has retried. "
        + see("port-refused", "port-unreachable", "advertised-unreachable", "broker-away"),
    ),
    "TlsError": (
        _ASK,
        see(
            "tls-expected",
            "tls-not-spoken",
            "authority-unknown",
            "host-name-mismatch",
            "certificate-expired",
            "client-certificate-refused",
        ),
    ),
    "NodeDisconnectedError": (_ASK, "The producer has retried. " + see("hung-up", "sasl-expected")),
    "ConnectionSetupTimeoutError": (
        _ASK,
        "The producer has retried. " + see("port-silent", "advertised-unreachable"),
    ),
    "NameResolutionError": (
        _ASK,
        "The producer has retried. " + see("name-unresolved", "advertised-unreachable"),
    ),
    "ProxyError": (_ASK, ""),
    "ProxyAuthenticationError": (_NO_RECORD, ""),
    "BootstrapError": (_NO_RECORD, ""),
    "NotConnectedError": (_NO_RECORD, ""),
    "ProtocolError": (_ASK, see("not-kafka", "tls-expected", "sasl-expected")),
    "UnsupportedCodecError": (_NO_RECORD, "Install the library that the error names."),
    "AuthenticationError": (_ASK, ""),
    "AuthorizationError": (_ASK, ""),
}
"""Errors of the client: whether the record may have been written, what to do without an advice."""

_FAMILIES: Final = frozenset(
    {"KafkaError", "BrokerError", "RetriableBrokerError", "InvalidMetadataError"}
)


def page() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION, "## From the client\n\n", *map(_client_entry, client_errors())]
    for title, table in (
        ("From brokers", broker),
        ("From brokers, to others than producers", broker_internal),
    ):
        parts += [f"## {title}\n\n", *map(_broker_entry, _rows_of(table))]
    parts.append(TROUBLES)
    parts += [f'| <a id="{code}"></a>`{code}` | {advice} |\n' for code, advice in ADVICE.items()]
    return "".join(parts)


def client_errors() -> list[type[KafkaError]]:
    """The public errors that are no broker's code, in the order of their names."""
    return sorted(
        (
            value
            for name, value in vars(errors).items()
            if inspect.isclass(value)
            and issubclass(value, KafkaError)
            and name not in _FAMILIES
            and not (issubclass(value, BrokerError) and name != "AuthorizationError")
        ),
        key=lambda error: error.__name__,
    )


def every_error() -> list[type[KafkaError]]:
    """Return the errors that have an entry on the page."""
    return [*client_errors(), *_rows_of(broker), *_rows_of(broker_internal)]


def _rows_of(table: ModuleType) -> list[type[BrokerError]]:
    """The codes that a table gives a class to."""
    rows: list[type[BrokerError]] = [
        each
        for each in vars(table).values()
        if inspect.isclass(each) and issubclass(each, BrokerError) and "code" in vars(each)
    ]
    return sorted((row for row in rows if row is not BrokerError), key=lambda row: row.code)


def _client_entry(error: type[KafkaError]) -> str:
    written, what = CLIENT[error.__name__]
    return _entry(error, _doc(error), written, what or error.advice or "")


def _broker_entry(error: type[BrokerError]) -> str:
    written = "not by this attempt" if error.code in NEVER_APPENDED else "possibly"
    return _entry(error, f"Error code {error.code}: {_doc(error)}", written, _remedy(error))


def _entry(error: type[KafkaError], happened: str, written: str, remedy: str) -> str:
    name = error.__name__
    return (
        f"### `{name}` {{ #{name.lower()} }}\n\n{happened}\n\n"
        f"- Written: {written}\n- What to do: {remedy}\n\n"
    )


def _remedy(error: type[BrokerError]) -> str:
    if error.advice:
        return error.advice
    if error.retriable:
        return "Nothing: the producer retries until `delivery_timeout_ms`."
    return (
        "The producer does not retry; see the broker's log. Abort the transaction, if there is one, "
        "and do its work again."
    )


def _doc(error: type[KafkaError]) -> str:
    return (inspect.getdoc(error) or "").split("\n\n", 1)[0].replace("\n", " ").replace("|", "\\|")
