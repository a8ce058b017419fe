"""The errors of aioproducer: one hierarchy under `KafkaError`.

Errors a broker answers are rows of `broker` and `broker_internal`; where a client-side error has
the meaning of a broker code (`RecordTooLargeError`, `InvalidTopicError`, `UnsupportedVersionError`)
the row is the class.

Invariants: user mistakes are `ConfigError`, `SerializationError`, `RecordTooLargeError` and
`IllegalStateError`, raised by the call; a time limit that ran out is a `KafkaTimeoutError`; every
error pickles and copies (see `KafkaError`).
"""

from __future__ import annotations

from typing import ClassVar, Unpack

# The star form is what makes these names part of this module for type checkers (PEP 561).
from aioproducer.errors.base import *  # noqa: F403
from aioproducer.errors.base import AuthenticationError, ErrorFacts, KafkaError
from aioproducer.errors.broker import *  # noqa: F403
from aioproducer.errors.broker_internal import *  # noqa: F403
from aioproducer.types import Persistence, PreparedTransaction


class ConfigError(KafkaError, ValueError):
    """An option is unknown, has a wrong value or contradicts another one."""


class IllegalStateError(KafkaError, RuntimeError):
    """The call does not fit what the producer is doing at the moment."""


class ProducerClosedError(IllegalStateError, advice="closed"):
    """The producer is closed, or was closed before the record could be delivered."""

    default_message: ClassVar[str] = "the producer is closed"


class WrongLoopError(IllegalStateError):
    """The producer belongs to another event loop than the one it is used from."""


class ForkedError(IllegalStateError, advice="forked"):
    """The producer was started in a parent process; its sockets are not ours."""


class ProducerFailedError(KafkaError):
    """The producer's background work ended unexpectedly; its message carries the cause."""


class RecordsPurgedError(KafkaError):
    """The record was given up by `Producer.purge()` before it was acknowledged."""


class RecordsFailedError(KafkaError, advice="records-failed"):
    """`flush(raise_failures=True)`: records have failed since the last such call.

    Attributes:
        count: how many.
    """

    def __init__(
        self, message: str | None = None, *, count: int = 0, **facts: Unpack[ErrorFacts]
    ) -> None:
        super().__init__(message, **facts)
        self.count = count


class BatchRefusedError(KafkaError, advice="batch-refused"):
    """The broker refused the record's batch because of other records in it; `__cause__` says why.

    A producer sends such records again by itself, except in a transaction, in a batch that may have
    been written by an earlier attempt, in one that follows a batch that is written already, and in
    a batch that must not be split.
    """

    retriable: bool = True


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted before the record was sent (KIP-654)."""


class FatalTransactionError(KafkaError, advice="producer-ended"):
    """The transactional producer cannot go on; its message carries the cause."""


class CommitOutcomeUnknownError(KafkaError, advice="commit-outcome-unknown"):
    """The coordinator was asked to commit, and its answer is missing: committed whole, or not.

    Attributes:
        transaction: What `TransactionAdmin` finds the outcome by: transactional id, producer id
            and epoch.
    """

    persistence: Persistence | None = Persistence.POSSIBLY_PERSISTED
    transaction: PreparedTransaction | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        transaction: PreparedTransaction | None = None,
        **facts: Unpack[ErrorFacts],
    ) -> None:
        super().__init__(message, **facts)
        if transaction is not None:
            self.transaction = transaction


class PreparedTransactionEndedError(KafkaError):
    """The prepared transaction has ended already, and not as asked for."""


class PreparedTransactionUnknownError(KafkaError, advice="prepared-outcome-unknown"):
    """The prepared transaction has ended, and its outcome can no longer be determined."""


class SerializationError(KafkaError):
    """A key, value or header cannot be turned into the bytes of a record.

    Attributes:
        part: `key` or `value`, where a serializer refused one.
        path: The field inside of it, as `customer.age`, where that is known.
    """

    part: str | None = None
    path: str | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        part: str | None = None,
        path: str | None = None,
        **facts: Unpack[ErrorFacts],
    ) -> None:
        super().__init__(message, **facts)
        if part is not None:
            self.part = part
        if path is not None:
            self.path = path


class SchemaRegistryError(SerializationError):
    """The schema registry refused a request, or could not be asked.

    Attributes:
        status: The HTTP status; None when there was no answer.
        error_code: The registry's own code, such as 40401; None when it gave none.
    """

    status: int | None = None
    error_code: int | None = None


class SchemaNotFoundError(SchemaRegistryError):
    """The registry has no such subject, version or schema."""


class IncompatibleSchemaError(SchemaRegistryError):
    """The registry refused a schema because readers of an earlier one would break.

    Attributes:
        details: What differs, one text per difference; the registry's words.
    """

    details: tuple[str, ...] = ()


class InvalidPartitionError(KafkaError, advice="partition-unknown"):
    """The partition asked for, or chosen by the partitioner, does not exist."""


class WouldBlockError(KafkaError, advice="would-block"):
    """`send_nowait()` or a callback would have to wait: for metadata, memory or a serializer."""

    retriable: bool = True


class BufferFullError(WouldBlockError):
    """There is no memory for the record, and the call does not wait for it."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """A wait reached its bound."""

    retriable: bool = True


class BufferExhaustedError(KafkaTimeoutError, advice="buffer-exhausted"):
    """No memory became free within `max_block_ms`."""


class MetadataTimeoutError(KafkaTimeoutError):
    """The topic or partition did not become known within `max_block_ms`."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """The record was not acknowledged within `delivery_timeout_ms`."""


class RequestTimeoutError(KafkaTimeoutError):
    """The broker did not answer a request within `request_timeout_ms`."""


class KafkaConnectionError(KafkaError):
    """A broker cannot be reached, or the connection to it broke."""

    retriable: bool = True


class NotKafkaError(KafkaConnectionError, advice="not-kafka"):
    """Something answers at the broker's address that is not a Kafka broker."""


class TlsError(AuthenticationError):
    """TLS with a broker failed: one side does not accept the other, or does not use TLS."""


class NodeDisconnectedError(KafkaConnectionError):
    """The connection ended before the response came."""


class ConnectionSetupTimeoutError(KafkaConnectionError):
    """The connection was not set up within `socket_connection_setup_timeout_ms`."""


class NameResolutionError(KafkaConnectionError):
    """No address was found for a broker's name."""


class ProxyError(KafkaConnectionError, advice="proxy-failed"):
    """The proxy cannot be reached, or does not lead to the broker."""


class ProxyAuthenticationError(AuthenticationError, advice="proxy-credentials-refused"):
    """The proxy wants other credentials than those in `proxy_url`."""


class BootstrapError(KafkaConnectionError, advice="no-cluster"):
    """None of the bootstrap servers led to a cluster."""


class NotConnectedError(KafkaConnectionError, advice="not-connected"):
    """The producer was started without waiting for the cluster, and has not reached it yet."""


class ProtocolError(KafkaError):
    """A peer sent bytes that are not Kafka's protocol."""


class UnsupportedCodecError(KafkaError):
    """The library of a compression codec cannot be imported."""
