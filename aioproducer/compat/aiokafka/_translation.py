"""From this producer's errors and answers to aiokafka's.

Owns: which error becomes which, and the shape of a record's metadata. Must not know: who asks.

Invariants: the original error is the `__cause__` of what is raised; a failed transaction or batch
is told by the error that made it fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aioproducer import errors as ours
from aioproducer.compat.aiokafka import errors
from aioproducer.compat.aiokafka._error_base import kin
from aioproducer.compat.aiokafka.structs import RecordMetadata, TopicPartition, kin_struct
from aioproducer.runtime.delivery import Delivery

_WRAPPERS: Final = (
    ours.BatchRefusedError,
    ours.FatalTransactionError,
    ours.TransactionAbortableError,
)

# The first row that fits counts.
_CLIENT_ERRORS: Final[tuple[tuple[type[ours.KafkaError], type[Exception]], ...]] = (
    (ours.ProducerFencedError, errors.ProducerFenced),
    (ours.InvalidProducerEpochError, errors.ProducerFenced),
    (ours.ProducerClosedError, errors.ProducerClosed),
    (ours.WrongLoopError, errors.IllegalStateError),
    (ours.ForkedError, errors.IllegalStateError),
    (ours.IllegalStateError, errors.IllegalOperation),
    (ours.MetadataTimeoutError, errors.UnknownTopicOrPartitionError),
    (ours.RequestTimeoutError, errors.RequestTimedOutError),
    (ours.KafkaTimeoutError, errors.KafkaTimeoutError),
    (ours.TlsError, errors.KafkaConnectionError),
    (ours.KafkaConnectionError, errors.KafkaConnectionError),
    (ours.ProtocolError, errors.KafkaProtocolError),
    (ours.UnsupportedCodecError, errors.UnsupportedCodecError),
    (ours.InvalidPartitionError, AssertionError),
    (ours.SerializationError, TypeError),
)


def translated(error: ours.KafkaError) -> Exception:
    """The error aiokafka has for this, with `error` as its cause."""
    result = kin(_class_for(error))(str(error))
    result.__cause__ = error
    return result


@contextmanager
def translating() -> Iterator[None]:
    """Raises what the block raises in aiokafka's terms."""
    try:
        yield
    except ours.KafkaError as error:
        raise translated(error) from error


def record_metadata(delivery: Delivery) -> RecordMetadata:
    """The acknowledgement of a record in aiokafka's shape."""
    metadata = delivery.result()
    batch, index = delivery.batch_and_index()
    found = batch.outcome_of(index)
    return kin_struct(RecordMetadata)(
        metadata.topic,
        metadata.partition,
        kin_struct(TopicPartition)(metadata.topic, metadata.partition),
        -1 if metadata.offset is None else metadata.offset,
        metadata.timestamp_ms,
        metadata.timestamp_type.value,
        None if found is None else found[0].log_start_offset,
    )


def _class_for(error: ours.KafkaError) -> type[Exception]:
    if isinstance(error, _WRAPPERS):
        cause = error.__cause__
        return _class_for(cause) if isinstance(cause, ours.KafkaError) else errors.KafkaError
    for known, theirs in _CLIENT_ERRORS:
        if isinstance(error, known):
            return theirs
    if isinstance(error, ours.BrokerError):
        return errors.for_code(error.code)
    if isinstance(error, ours.AuthenticationError):
        return errors.AuthenticationFailedError
    return errors.KafkaError
