"""The protocol of serializers.

Invariants
- A serializer returns bytes at once, or an awaitable of them when it has to wait; it may do one for
  this record and the other for the next. The producer waits at most `max_block_ms`. Several calls
  of a serializer may be unfinished at once; records keep the order of the calls.
- A record that a serializer refused was not accepted: nothing of it is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from aioproducer.errors import SerializationError
from aioproducer.types import Persistence

Part = Literal["key", "value"]
"""Which part of a record a serializer is asked for."""


@dataclass(slots=True)
class SerializationContext:
    """The context of a record, for serializers.

    Attributes:
        topic: the record's topic.
        part: whether it is the record's key or its value.
        headers: the record's headers; what a serializer adds is sent.
    """

    topic: str
    part: Part
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


@runtime_checkable
class Serializer(Protocol):
    """Turns keys or values into bytes; give one as `key_serializer` or `value_serializer`.

    It must not block the event loop: what takes long goes into a thread (`in_thread`).

    It may have a `close()`, asynchronous or not. A producer that was started calls it once when it
    is closed, after the last record, so two producers should not share such an object. What it
    raises is logged; an asynchronous one is awaited for at most `request_timeout_ms`.
    """

    def serialize(
        self, data: Any, context: SerializationContext, /
    ) -> bytes | Awaitable[bytes | None] | None:
        """Return the bytes of a key or value; None is null.

        Raises:
            SerializationError: it cannot be done; any other exception is wrapped into one.
        """
        ...


def serialization_error(
    context: SerializationContext, reason: str, *, path: str | None = None
) -> SerializationError:
    """Return the error of a refusal: it names topic, part and field, and no content."""
    where = f"{context.part}, field {path}" if path else context.part
    return SerializationError(
        f"{where}: {reason}",
        part=context.part,
        path=path,
        topic=context.topic,
        persistence=Persistence.NOT_PERSISTED,
    )


def wrong_type_error(
    context: SerializationContext, wanted: str, data: object
) -> SerializationError:
    """Return the error for data of a wrong type."""
    return serialization_error(context, f"must be {wanted} or None, not {type(data).__name__}")
