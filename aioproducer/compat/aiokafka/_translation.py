"""From this producer's errors and answers to aiokafka's."""

from __future__ import annotations

from typing import Final

from aioproducer import errors as ours
from aioproducer.compat._translation import Translation
from aioproducer.compat.aiokafka import errors
from aioproducer.compat.aiokafka._error_base import kin
from aioproducer.compat.aiokafka.structs import RecordMetadata, TopicPartition, kin_struct
from aioproducer.runtime.delivery import Delivery

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
    _ROWS, errors.for_code, errors.AuthenticationFailedError, errors.KafkaError, kin
)

translated: Final = _TRANSLATION.translated
translating: Final = _TRANSLATION.translating


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
