"""From this producer's errors to librdkafka's codes.

A failed transaction or batch is reported by the error that made it fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aioproducer import errors as ours
from aioproducer.compat._translation import root_of
from aioproducer.compat.confluent import _errors as errors
from aioproducer.compat.confluent._errors import KafkaError
from aioproducer.types import Persistence

# The first row that fits counts.
_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (ours.ConfigError, KafkaError._INVALID_ARG),
    (ours.ProducerClosedError, KafkaError._DESTROY),
    (ours.IllegalStateError, KafkaError._STATE),
    (ours.ProducerFailedError, KafkaError._FATAL),
    (ours.ProducerFencedError, KafkaError._FENCED),
    (ours.InvalidProducerEpochError, KafkaError._FENCED),
    (ours.TransactionAbortedError, KafkaError._PURGE_QUEUE),
    (ours.InvalidPartitionError, KafkaError._UNKNOWN_PARTITION),
    (ours.WouldBlockError, KafkaError._QUEUE_FULL),
    (ours.BufferExhaustedError, KafkaError._QUEUE_FULL),
    (ours.DeliveryTimeoutError, KafkaError._MSG_TIMED_OUT),
    (ours.KafkaTimeoutError, KafkaError._TIMED_OUT),
    (ours.CommitOutcomeUnknownError, KafkaError._TIMED_OUT),
    (ours.BootstrapError, KafkaError._ALL_BROKERS_DOWN),
    (ours.NotConnectedError, KafkaError._ALL_BROKERS_DOWN),
    (ours.NameResolutionError, KafkaError._RESOLVE),
    (ours.KafkaConnectionError, KafkaError._TRANSPORT),
    (ours.TlsError, KafkaError._SSL),
    (ours.AuthenticationError, KafkaError._AUTHENTICATION),
    (ours.ProtocolError, KafkaError._BAD_MSG),
    (ours.UnsupportedCodecError, KafkaError._NOT_IMPLEMENTED),
    (ours.SerializationError, KafkaError._INVALID_ARG),
)
_FATAL: Final = (
    ours.FatalTransactionError,
    ours.ProducerFailedError,
    ours.ProducerFencedError,
    ours.InvalidProducerEpochError,
)


def translated(error: ours.KafkaError) -> KafkaError:
    """Return what confluent-kafka says of this error."""
    root = root_of(error)
    code = _code_for(root)
    is_fatal = isinstance(error, _FATAL) or isinstance(root, _FATAL)
    return KafkaError(
        code,
        f"{errors.text_of(code)}: {error}",
        fatal=is_fatal,
        retriable=error.retriable,
        txn_requires_abort=isinstance(error, ours.TransactionAbortableError) and not is_fatal,
    )


def reported(error: ours.KafkaError) -> KafkaError:
    """Return what callbacks get of this error.

    As with librdkafka, only errors of calls are `retriable()` or `txn_requires_abort()`. Programs
    take a retriable error in a callback for one that is not final.
    """
    made = translated(error)
    return KafkaError(made.code(), made.str(), fatal=made.fatal())


@contextmanager
def translating() -> Iterator[None]:
    """Raise what the block raises in confluent-kafka's terms."""
    try:
        yield
    except ours.KafkaError as error:
        raise errors.shared_class(errors.KafkaException)(translated(error)) from error


def _code_for(error: ours.KafkaError) -> int:
    if isinstance(error, ours.RecordsPurgedError):
        sent = error.persistence is Persistence.POSSIBLY_PERSISTED
        return KafkaError._PURGE_INFLIGHT if sent else KafkaError._PURGE_QUEUE
    if isinstance(error, ours.MetadataTimeoutError):  # while brokers answer
        no_topic = error.partition is None
        return KafkaError._UNKNOWN_TOPIC if no_topic else KafkaError._UNKNOWN_PARTITION
    for known, code in _CODES:
        if isinstance(error, known):
            return code
    if isinstance(error, ours.BrokerError):
        return error.code
    return KafkaError._FAIL
