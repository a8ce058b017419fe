"""What a client of an application is told when Kafka cannot take its record.

Owns: which errors are answers to a request and with which status. Must not know: web frameworks,
what applications send.

| error | status | |
|---|---|---|
| a time limit, a full buffer, a lost broker, or what else may pass; closing | 503 | Retry-After |
| larger than a record may be | 413 | |
| a serializer refused it | 422 | |

Any other error is the application's or the operator's to look at.

Invariant: a refusal names neither brokers nor topics; it says whether the record may have been
written all the same, so that a client knows whether repeating it may double it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from aioproducer.errors import (
    KafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    SchemaRegistryError,
    SerializationError,
)
from aioproducer.types import Persistence

__all__ = ["Refusal"]

_UNAVAILABLE = "The event could not be stored; try again later."


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a client is told of it.

    `persistence` says whether the record may have been written; `retry_after_s` is None where a
    repetition is in vain.
    """

    status: int
    detail: str
    persistence: Persistence = Persistence.NOT_PERSISTED
    retry_after_s: int | None = None

    @classmethod
    def of(cls, error: KafkaError, retry_after_s: int = 1) -> Self | None:
        """The refusal for an error of `send` or a delivery; None where it is no client's business.

        Args:
            error: what was raised.
            retry_after_s: seconds a client shall wait where another try may help.
        """
        # An error of `send` itself carries no persistence: the record never got anywhere.
        persistence = error.persistence or Persistence.NOT_PERSISTED
        if isinstance(error, RecordTooLargeError):
            return cls(413, "The event is too large.", persistence)
        if error.retriable or isinstance(error, ProducerClosedError):
            return cls(503, _UNAVAILABLE, persistence, retry_after_s)
        if isinstance(error, SerializationError) and not _is_operators(error):
            return cls(422, "The event does not have the expected form.", persistence)
        return None

    def headers(self) -> Mapping[str, str]:
        """Those of the HTTP response."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}

    def body(self) -> dict[str, str]:
        """What a client reads, over HTTP or a WebSocket."""
        return {"detail": self.detail, "persistence": self.persistence.value}


def _is_operators(error: SerializationError) -> bool:
    """Whether the event is not to blame: schemas, credentials, how the serializer is used."""
    return isinstance(error, SchemaRegistryError) or isinstance(error.__cause__, KafkaError)
