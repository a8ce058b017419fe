"""From this producer's errors to kafka-python's."""

from __future__ import annotations

from typing import Final

from aioproducer import errors as ours
from aioproducer.compat._translation import Translation
from aioproducer.compat.kafka import _errors as errors

_ROWS: Final[tuple[tuple[type[Exception], type[Exception]], ...]] = (
    (ours.ConfigError, errors.KafkaConfigurationError),
    (ours.IllegalStateError, errors.IllegalStateError),
    (ours.TransactionAbortedError, errors.TransactionAbortedError),
    (ours.BootstrapError, errors.NoBrokersAvailable),
    (ours.KafkaTimeoutError, errors.KafkaTimeoutError),
    (ours.WouldBlockError, errors.KafkaTimeoutError),
    (ours.TlsError, errors.KafkaConnectionError),
    (ours.KafkaConnectionError, errors.KafkaConnectionError),
    (ours.ProtocolError, errors.KafkaProtocolError),
    (ours.UnsupportedCodecError, errors.UnsupportedCodecError),
    (ours.InvalidPartitionError, ValueError),
    (ours.SerializationError, TypeError),
)
_SASL_AUTHENTICATION_FAILED: Final = 58
_TRANSLATION: Final = Translation(
    _ROWS,
    errors.for_code,
    errors.for_code(_SASL_AUTHENTICATION_FAILED),
    errors.KafkaError,
    errors.shared_class,
    errors.KafkaTimeoutError,
)

translated: Final = _TRANSLATION.translated
translating: Final = _TRANSLATION.translating
