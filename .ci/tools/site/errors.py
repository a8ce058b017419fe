"""The error catalogue, made of the error tables and the advice table: what happened, may it be
written, what to do.

Owns: the page, and for errors that arise in the client the two answers their classes do not carry.
Must not know: broker codes one by one; families, effects and the codes that precede the append tell.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Final

from aioproducer import errors
from aioproducer.core.sending.produce_rules import SURELY_REFUSED
from aioproducer.errors import BrokerError, KafkaError, TransactionEffect, broker, broker_internal
from aioproducer.errors.advice import ADVICE

INTRODUCTION: Final = """\
# Errors

Every error is a `KafkaError`. It carries what is known as attributes: `topic`, `partition`, `node_id`, `elapsed_ms`,
`advice`, and

- `retriable`: whether the same operation may succeed when it is tried again. The producer has done so already, until
  `delivery_timeout_ms`;
- `persistence`: of a record, `NOT_PERSISTED` (it never will stand in the log) or `POSSIBLY_PERSISTED` (an attempt may
  have been written). It sums up all attempts, so look at it rather than at the class of the last error.

A program that publishes a record again after `POSSIBLY_PERSISTED` may write it twice; after `NOT_PERSISTED` it does
not.

"""

TROUBLES: Final = """
## What to do

`advice` of an error, and the last part of its text, come from this table; more than one may apply. `aioproducer doctor`
finds most of these and has the same codes.

| code | what to do |
|---|---|
"""


def see(*codes: str) -> str:
    """Links into the table of what to do."""
    return "See " + ", ".join(f"[`{code}`](#{code})" for code in codes if ADVICE[code]) + "."


_NEVER: Final = "no: the call raised it"
_ASK: Final = "`persistence` tells"
_NO_RECORD: Final = "no record is concerned"

CLIENT: Final[dict[str, tuple[str, str]]] = {
    "ConfigError": (_NO_RECORD, "Correct the option; the text names it, and what it may be."),
    "IllegalStateError": (_NEVER, "Call in the order that `start`, `send` and `close` want."),
    "ProducerClosedError": (_ASK, "Close after the last `send`; give `close` the time it needs."),
    "WrongLoopError": (_NEVER, "Use the producer in the loop that started it, or one per loop."),
    "ForkedError": (_NEVER, ""),
    "ProducerFailedError": (
        _ASK,
        "Close it and start a new one; please report it, with its cause.",
    ),
    "RecordsPurgedError": (_ASK, "It was asked for by `purge()`."),
    "RecordsFailedError": (_ASK, ""),
    "BatchRefusedError": (_ASK, ""),
    "TransactionAbortedError": ("no: its transaction was aborted", "Do the transaction again."),
    "FatalTransactionError": (
        "no, unless the transaction was committed or prepared; a `CommitOutcomeUnknownError` says "
        "where that is open",
        "",
    ),
    "CommitOutcomeUnknownError": ("all of its transaction, or nothing of it", ""),
    "PreparedTransactionEndedError": (
        "as the text says: it was committed, or aborted",
        "Compare with what the decision was; somebody else, or the time limit, ended it.",
    ),
    "PreparedTransactionUnknownError": ("possibly", ""),
    "SerializationError": (_NEVER, "Correct the data; `part` and `path` say where."),
    "SchemaRegistryError": (_NEVER, "See `status`; try again if it is `retriable`."),
    "SchemaNotFoundError": (_NEVER, "Register the schema when you deploy."),
    "IncompatibleSchemaError": (_NEVER, "Change the schema so that readers can follow: `details`."),
    "InvalidPartitionError": (_NEVER, ""),
    "WouldBlockError": (_NEVER, ""),
    "BufferFullError": (_NEVER, ""),
    "KafkaTimeoutError": (_ASK, "The text says which wait; try again, or give it more time."),
    "BufferExhaustedError": (_NEVER, ""),
    "MetadataTimeoutError": (
        _NEVER,
        see("topic-missing", "topic-not-created-here", "partition-unknown", "no-answer"),
    ),
    "DeliveryTimeoutError": (
        _ASK,
        "The text says what it waited for. "
        + see(
            "advertised-unreachable", "broker-away", "too-few-replicas", "partition-without-leader"
        ),
    ),
    "RequestTimeoutError": (_ASK, "It was tried again. " + see("no-answer", "broker-away")),
    "NotKafkaError": (_NEVER, ""),
    "KafkaConnectionError": (
        _ASK,
        "It was tried again. "
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
    "NodeDisconnectedError": (_ASK, "It was tried again. " + see("hung-up", "sasl-expected")),
    "ConnectionSetupTimeoutError": (
        _ASK,
        "It was tried again. " + see("port-silent", "advertised-unreachable"),
    ),
    "NameResolutionError": (
        _ASK,
        "It was tried again. " + see("name-unresolved", "advertised-unreachable"),
    ),
    "ProxyError": (_ASK, ""),
    "ProxyAuthenticationError": (_NO_RECORD, ""),
    "BootstrapError": (_NO_RECORD, ""),
    "NotConnectedError": (_NO_RECORD, ""),
    "ProtocolError": (_ASK, see("not-kafka", "tls-expected", "sasl-expected")),
    "UnsupportedCodecError": (_NO_RECORD, "Install the codec's library; the text names it."),
    "AuthenticationError": (_ASK, ""),
    "AuthorizationError": (_ASK, ""),
}
"""Errors that arise in the client: may the record be written, and what to do where no advice is."""

_FAMILIES: Final = frozenset(
    {"KafkaError", "BrokerError", "RetriableBrokerError", "InvalidMetadataError"}
)
_EFFECTS: Final = {
    TransactionEffect.NONE: "It is not tried again; the broker's log says more.",
    TransactionEffect.ABORTABLE: "It is not tried again; a transaction has to be aborted and done again.",
    TransactionEffect.RECOVERABLE: "Close this producer; a new one goes on.",
    TransactionEffect.FATAL: "Close this producer; a new one would meet the same.",
}


def page() -> str:
    """The page in Markdown."""
    parts = [INTRODUCTION, "## From the client\n\n"]
    parts.append("| error | what happened | may it be written | what to do |\n|---|---|---|---|\n")
    parts += map(_client_row, client_errors())
    for title, table in (
        ("From brokers", broker),
        ("From brokers, to others than producers", broker_internal),
    ):
        parts.append(f"\n## {title}\n\n")
        parts.append("| error | code | what happened | may it be written | what to do |\n")
        parts.append("|---|---:|---|---|---|\n")
        parts += map(_broker_row, _rows_of(table))
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


def _rows_of(table: ModuleType) -> list[type[BrokerError]]:
    """The codes that a table gives a class to."""
    rows: list[type[BrokerError]] = [
        each
        for each in vars(table).values()
        if inspect.isclass(each) and issubclass(each, BrokerError) and "code" in vars(each)
    ]
    return sorted((row for row in rows if row is not BrokerError), key=lambda row: row.code)


def _client_row(error: type[KafkaError]) -> str:
    written, what = CLIENT[error.__name__]
    return f"| {_name(error)} | {_doc(error)} | {written} | {what or error.advice} |\n"


def _broker_row(error: type[BrokerError]) -> str:
    written = "not by this attempt" if error.code in SURELY_REFUSED else "possibly"
    cells = (_name(error), str(error.code), _doc(error), written, _remedy(error))
    return f"| {' | '.join(cells)} |\n"


def _remedy(error: type[BrokerError]) -> str:
    if error.advice:
        return error.advice
    if error.retriable:
        return "Nothing: the producer tries again until `delivery_timeout_ms`."
    return (
        _EFFECTS[error.transaction_effect] or "It is not tried again; the broker's log says more."
    )


def _name(error: type[KafkaError]) -> str:
    return f'<a id="{error.__name__.lower()}"></a>`{error.__name__}`'


def _doc(error: type[KafkaError]) -> str:
    return (inspect.getdoc(error) or "").split("\n\n", 1)[0].replace("\n", " ").replace("|", "\\|")
