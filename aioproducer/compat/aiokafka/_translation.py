"""From this producer's errors and answers to aiokafka's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aioproducer import errors as ours
from aioproducer.compat._translation import Translation
from aioproducer.compat.aiokafka import _errors as errors
from aioproducer.compat.aiokafka._error_base import shared_class
from aioproducer.compat.aiokafka._structs import RecordMetadata, TopicPartition, shared_struct
from aioproducer.runtime.delivery import Delivery

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch

_ROWS: Final[tuple[tuple[type[Exception], type[Exception]], ...]] = (
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
_TRANSLATION: Final = Translation(
    _ROWS, errors.for_code, errors.AuthenticationFailedError, errors.KafkaError, shared_class
)

_new_tuple: Final = tuple.__new__
"""What a NamedTuple's own `__new__` does, without that call."""

translated: Final = _TRANSLATION.translated
translating: Final = _TRANSLATION.translating


def acknowledgement(batch: ProducerBatch) -> BatchOutcome | None:
    """Return the one answer that acknowledges all records of a batch, if there is one."""
    outcome = batch.outcome
    return None if outcome is None or outcome.error is not None or batch.parts else outcome


def acknowledged_metadata(
    batch: ProducerBatch, outcome: BatchOutcome, deliveries: Iterable[Delivery]
) -> list[RecordMetadata]:
    """Return the acknowledgements of records of one batch in aiokafka's shape."""
    struct, (topic, partition) = shared_struct(RecordMetadata), batch.topic_partition
    place = _new_tuple(shared_struct(TopicPartition), (topic, partition))
    base, stamped = outcome.base_offset, outcome.log_append_time_ms
    kind = 0 if stamped is None else 1  # a `TimestampType` without the cost of its `value`
    start = outcome.log_start_offset
    found = []
    for delivery in deliveries:
        offset = -1 if base is None else base + delivery._index
        time_ms = delivery._timestamp_ms if stamped is None else stamped
        fields = (topic, partition, place, offset, time_ms, kind, start)
        found.append(_new_tuple(struct, fields))
    return found


def record_metadata(delivery: Delivery) -> RecordMetadata:
    """Return the acknowledgement of a record as aiokafka's `RecordMetadata`."""
    batch, index = delivery._batch, delivery._index
    outcome = acknowledgement(batch)
    if outcome is not None:
        return acknowledged_metadata(batch, outcome, (delivery,))[0]
    metadata = delivery.result()
    found = batch.outcome_of(index)
    return shared_struct(RecordMetadata)(
        metadata.topic,
        metadata.partition,
        shared_struct(TopicPartition)(metadata.topic, metadata.partition),
        -1 if metadata.offset is None else metadata.offset,
        metadata.timestamp_ms,
        metadata.timestamp_type.value,
        None if found is None else found[0].log_start_offset,
    )
