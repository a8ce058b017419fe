"""The producer's calls of serializers.

Invariants
- The key's serializer runs before the value's, as in Java's client, and both see the same headers.
- Nothing is awaited unless a serializer returns an awaitable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any

from aioproducer._util.printable import exception_without_data
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation
from aioproducer.errors import SerializationError
from aioproducer.serializers.primitives import BytesSerializer
from aioproducer.serializers.protocol import Part, SerializationContext, Serializer
from aioproducer.types import HeaderPairs, HeadersInput, Persistence

SerializerFunction = Callable[[Any], bytes | Awaitable[bytes | None] | None]
"""A serializer that needs nothing but the data."""

Prepared = tuple[bytes | None, bytes | None, HeaderPairs]
"""Key, value and headers of a record as they are sent."""

Call = Callable[[Any, SerializationContext], Any]
"""Either kind of serializer, as it is called."""


def is_plain(*serializers: Serializer | SerializerFunction | None) -> bool:
    """Return whether these serializers leave keys and values unchanged."""
    return all(each is None or type(each) is BytesSerializer for each in serializers)


class RecordSerializers:
    """The serializers of a producer's keys and values."""

    def __init__(
        self,
        key: Serializer | SerializerFunction | None,
        value: Serializer | SerializerFunction | None,
    ) -> None:
        self._key = None if key is None else call_of(key)
        self._value = None if value is None else call_of(value)

    def prepare(
        self, topic: str, key: Any, value: Any, headers: HeadersInput
    ) -> Prepared | PendingRecord:
        """Return the record's parts, or an awaitable for them."""
        if type(topic) is not str:  # a member of an enumeration is formatted otherwise
            topic = str.__str__(topic)
        pairs = list(header_pairs(topic, headers))
        if self._value is None:
            value = unchanging(topic, "value", value)
        if self._key is None:
            key = unchanging(topic, "key", key)
        else:
            made = _start(self._key, key, SerializationContext(topic, "key", pairs))
            if made.__class__ is not bytes and not _is_made(made):
                rest = partial(self._rest, topic, value, pairs)
                return PendingRecord(topic, "key", made, rest)
            key = made
        return self._rest(topic, value, pairs, key)

    def _rest(
        self, topic: str, value: Any, pairs: list[tuple[str, bytes | None]], key: Any
    ) -> Prepared | PendingRecord:
        if self._value is not None:
            made = _start(self._value, value, SerializationContext(topic, "value", pairs))
            if made.__class__ is not bytes and not _is_made(made):
                rest = partial(_finish, topic, key, pairs)
                return PendingRecord(topic, "value", made, rest)
            value = made
        return _finish(topic, key, pairs, value)


class PendingRecord:
    """A record one of whose serializers waits; await it once, or `close` it."""

    __slots__ = ("_made", "_rest", "_topic", "part")

    def __init__(
        self,
        topic: str,
        part: Part,
        made: Awaitable[Any],
        rest: Callable[[Any], Prepared | PendingRecord],
    ) -> None:
        if not isinstance(made, Awaitable):
            raise _no_bytes(topic, part, made)
        self._topic = topic
        self.part: Part = part
        """The part whose serializer waits."""
        self._made = made
        self._rest = rest

    def close(self) -> None:
        """Close the awaitable of the serializer, if it was not awaited."""
        give_up = getattr(self._made, "close", None) or getattr(self._made, "cancel", None)
        if give_up is not None:
            give_up()

    def __await__(self) -> Generator[Any, None, Prepared]:
        return self._finished().__await__()

    async def _finished(self) -> Prepared:
        try:
            made = await self._made
        except SerializationError as error:
            raise error.with_context(topic=self._topic) from error.__cause__
        except HOOK_ERRORS as error:
            if is_cancellation(error):
                raise
            raise _failure(error, self._topic, self.part) from error
        if not _is_made(made):
            raise _no_bytes(self._topic, self.part, made)
        rest = self._rest(made)
        return rest if isinstance(rest, tuple) else await rest


Prepare = Callable[[Any, Any, Any, HeadersInput], Prepared | PendingRecord]
"""Serialize topic, key, value and headers, as `RecordSerializers.prepare` does."""


def header_pairs(topic: str, headers: HeadersInput) -> HeaderPairs:
    """Return headers as a tuple of pairs, the form in which records keep them."""
    try:
        if not headers:  # raises for an array, and for pandas.NA
            return ()
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return tuple((name, content) for name, content in pairs)
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"headers must be pairs of name and bytes or None: {error}", topic=topic
        ) from TypeError(str(error))
    except HOOK_ERRORS as error:
        what = f"the headers raised {exception_without_data(error)} when they were read"
        raise SerializationError(what, topic=topic) from error


def unchanging(topic: str, part: Part, data: Any) -> Any:
    """Return a copy of a mutable buffer, which may change while a call waits."""
    if data.__class__ is bytes or data is None:
        return data
    if not isinstance(data, bytearray | memoryview):
        return data
    try:
        return bytes(data)
    except ValueError as error:  # a released memoryview
        raise SerializationError(f"the {part} cannot be read: {error}", topic=topic) from error


def call_of(serializer: Serializer | SerializerFunction) -> Call:
    """Return the function that calls a serializer."""
    if isinstance(serializer, Serializer):
        return serializer.serialize
    function = serializer
    return lambda data, context: function(data)


def _start(call: Call, data: Any, context: SerializationContext) -> Any:
    try:
        return call(data, context)
    except SerializationError as error:
        raise error.with_context(topic=context.topic) from error.__cause__
    except HOOK_ERRORS as error:
        advice = None
        if data is None:
            advice = f"it is called with None if a record has no {context.part}: return None"
        raise _failure(error, context.topic, context.part, advice) from error


def _is_made(made: Any) -> bool:
    return made is None or isinstance(made, bytes | bytearray | memoryview)


def _finish(topic: str, key: Any, pairs: list[tuple[str, bytes | None]], value: Any) -> Prepared:
    return unchanging(topic, "key", key), unchanging(topic, "value", value), tuple(pairs)


def _failure(
    error: BaseException, topic: str, part: Part, advice: str | None = None
) -> SerializationError:
    return SerializationError(
        f"the {part}_serializer raised {exception_without_data(error)}",
        part=part,
        topic=topic,
        persistence=Persistence.NOT_PERSISTED,
        advice=advice,
    )


def _no_bytes(topic: str, part: Part, made: object) -> SerializationError:
    what = f"the {part}_serializer returned {type(made).__name__}, not bytes or None"
    error = SerializationError(what, part=part, topic=topic, persistence=Persistence.NOT_PERSISTED)
    error.__cause__ = TypeError(what)
    return error
