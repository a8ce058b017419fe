"""kafka-python's serializers: `Serializer` to derive from, and two ready ones.

A subclass of kafka-python's own `Serializer`, a callable of the data, and an object with the older
`serialize(topic, data)` work as well.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from aioproducer.compat._forwarding import forwarded
from aioproducer.compat._shared_classes import counterpart

__all__ = ["DefaultSerializer", "JsonSerializer", "Serializer"]
__path__: list[str] = []  # a package there: its modules come from kafka-python

Headers = list[tuple[str, bytes]]


class Serializer(ABC):
    """Turns keys or values into bytes."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return the bytes of `data`; `headers` may be added to."""

    def close(self) -> None:  # noqa: B027 - nothing has to be done
        """Release what the serializer holds; called when the producer is closed."""


class DefaultSerializer(Serializer):
    """Text to bytes; bytes stay what they are. A consumer takes it for the way back."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding: str = encoding
        theirs = counterpart("kafka.serializer", "Deserializer")
        if theirs is not None:
            theirs.register(DefaultSerializer)

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return `data` encoded, or as it is."""
        if type(data) in (bytes, bytearray, memoryview, type(None)):
            return data
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return the text of `data`; None stays None."""
        return None if data is None else data.decode(self.encoding)

    def __call__(self, data: bytes | None) -> Any:
        """Deserialize: so a consumer calls one that was made before `kafka` was imported."""
        return self.deserialize("", [], data)


class JsonSerializer(DefaultSerializer):
    """JSON; None stays None."""

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Return what the JSON in `data` says."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Return `data` as JSON."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))


Function = Callable[[str, Headers, Any], Any]


def function_of(serializer: Any) -> Function | None:
    """Return the function that calls a serializer of any of the four kinds."""
    if serializer is None:
        return None
    serialize = getattr(serializer, "serialize", None)
    if serialize is None:
        if not callable(serializer):
            raise TypeError(f"a serializer is callable or has serialize(), unlike {serializer!r}")
        return lambda topic, headers, data: serializer(data)
    if _takes_headers(serialize):
        function: Function = serialize
        return function
    return lambda topic, headers, data: serialize(topic, data)


def _takes_headers(serialize: Callable[..., Any]) -> bool:
    from inspect import signature

    try:
        signature(serialize).bind("topic", [], None)
    except TypeError:
        return False
    except ValueError:  # a function without a signature
        return True
    return True


def __getattr__(name: str) -> Any:
    return forwarded(name, __name__, "kafka.serializer", "kafka-python")
