"""The response to a client of an application when Kafka cannot take its record.

| error | status | |
|---|---|---|
| a time limit, a full buffer, a lost broker, or what else may pass; closing | 503 | Retry-After |
| the cluster has not been reached yet | 503 | Retry-After |
| larger than a record may be | 413 | |
| a serializer refused it: `SerializationError`, or `ValueError` and the like | 422 | |
| a time limit that ended because a topic does not exist, or another lasting mistake | 500 | |
| the cluster cannot be reached: credentials, TLS, another service than Kafka | 500 | |

Any other error is for the application or the operator. So is a `SerializationError` for a mistake
of the application: a value that is not bytes and has no serializer, invalid headers, a
serializer that raises something else (`TypeError`, `KeyError`) or does not return bytes.

Invariant: a refusal names neither brokers nor topics; it says whether the record may have been
written all the same, so that a client can decide whether to repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from aioproducer._util.causes import causes_of
from aioproducer.errors import (
    AuthenticationError,
    AuthorizationError,
    BootstrapError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    NotConnectedError,
    NotKafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    SchemaRegistryError,
    SerializationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    WouldBlockError,
)
from aioproducer.types import Persistence

__all__ = ["Refusal"]

_UNAVAILABLE = "The event could not be stored; try again later."
_MISCONFIGURED = "The event could not be stored."

_LASTING = (
    AuthenticationError,
    AuthorizationError,
    InvalidPartitionError,
    InvalidTopicError,
    NotKafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
"""Errors that waiting does not change: the application or the cluster has to be corrected."""

_OF_VALUES = (ValueError, ArithmeticError, RecursionError)
"""Errors of a serializer for a value that it cannot write."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The form of an error for a client.

    `persistence` says whether the record may have been written; `retry_after_s` is None where a
    retry is useless.
    """

    status: int
    detail: str
    persistence: Persistence = Persistence.NOT_PERSISTED
    retry_after_s: int | None = None

    @classmethod
    def of(cls, error: KafkaError, retry_after_s: int = 1) -> Self | None:
        """Return the refusal for an error of `send` or a delivery; None if no client can act on it.

        Args:
            error: what was raised.
            retry_after_s: seconds a client shall wait where another try may help.
        """
        # An error of `send` itself carries no persistence: the record never got anywhere.
        persistence = error.persistence or Persistence.NOT_PERSISTED
        if isinstance(error, RecordTooLargeError):
            return cls(413, "The event is too large.", persistence)
        if _is_misconfiguration(error):
            return cls(500, _MISCONFIGURED, persistence)
        if error.retriable or isinstance(error, ProducerClosedError):
            return cls(503, _UNAVAILABLE, persistence, retry_after_s)
        if isinstance(error, SerializationError) and not _is_operators(error):
            return cls(422, "The event does not have the expected form.", persistence)
        return None

    def headers(self) -> Mapping[str, str]:
        """Return the headers of the HTTP response."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}

    def body(self) -> dict[str, str]:
        """Return the body for a client, over HTTP or a WebSocket."""
        return {"detail": self.detail, "persistence": self.persistence.value}


def _is_operators(error: SerializationError) -> bool:
    """Return whether the cause is not the event: schemas, credentials, use of the serializer.

    Python has some exceptions for values that do not fit; any other one of a serializer is a defect
    of it, or of what the application gave it.
    """
    if isinstance(error, SchemaRegistryError):
        return True
    cause = error.__cause__
    if isinstance(cause, KafkaError):
        return True
    return cause is not None and not isinstance(cause, _OF_VALUES)


def _is_misconfiguration(error: KafkaError) -> bool:
    """Return whether a wait reached its bound, or the cluster is out of reach, for a lasting cause.

    The same without a wait is `None` as before: an error of the application.
    """
    waits = (KafkaTimeoutError, WouldBlockError, NotConnectedError, BootstrapError)
    cause = next((each for each in causes_of(error) if not isinstance(each, waits)), None)
    return cause is not error and isinstance(cause, _LASTING)
