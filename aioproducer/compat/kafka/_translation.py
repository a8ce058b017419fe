"""From this producer's errors to kafka-python's. The original is the `__cause__` of what is raised.

A failed transaction or batch is told by the error that made it fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aioproducer import errors as ours
from aioproducer.compat.kafka import errors

_WRAPPERS: Final = (
    ours.BatchRefusedError,
    ours.FatalTransactionError,
    ours.TransactionAbortableError,
)

# The first row that fits counts.
_CLIENT_ERRORS: Final[tuple[tuple[type[Exception], type[Exception]], ...]] = (
    (ours.ConfigError, errors.KafkaConfigurationError),
    (ours.IllegalStateError, errors.IllegalStateError),
    (ours.TransactionAbortedError, errors.TransactionAbortedError),
    (ours.BootstrapError, errors.KafkaTimeoutError),
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


def translated(error: ours.KafkaError) -> Exception:
    """Return the error that kafka-python has for this one."""
    result = errors.kin(_class_for(error))(str(error))
    result.__cause__ = error
    return result


@contextmanager
def translating() -> Iterator[None]:
    """Raise what the block raises in kafka-python's terms."""
    try:
        yield
    except ours.KafkaError as error:
        raise translated(error) from error
    except TimeoutError as error:
        raise errors.kin(errors.KafkaTimeoutError)(str(error)) from error


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
        return errors.for_code(_SASL_AUTHENTICATION_FAILED)
    return errors.KafkaError
