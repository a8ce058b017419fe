"""`SerializingProducer`, and what its serializers get: confluent-kafka's calling convention.

A serializer is called as `serializer(object, context)` and returns bytes, text or None, as those of
`confluent_kafka.schema_registry` do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aioproducer._util import log
from aioproducer._util.secrets import hides_arguments
from aioproducer.compat._forwarding import forwarded
from aioproducer.compat._shared_classes import counterpart
from aioproducer.compat.confluent import _errors, errors
from aioproducer.compat.confluent.producer import Producer

if TYPE_CHECKING:
    from aioproducer.compat.confluent.errors import (
        KeySerializationError,
        ProduceError,
        SerializationError,
        ValueSerializationError,
    )

__all__ = [
    "KeySerializationError",
    "MessageField",
    "ProduceError",
    "SerializationContext",
    "SerializationError",
    "SerializingProducer",
    "ValueSerializationError",
]
__path__: list[str] = []  # a package there: its modules come from confluent-kafka

_log = log.get("producer")
_MODULE = "confluent_kafka.serialization"
_PARTS: Final = ("key.serializer", "value.serializer")
_CLUSTER_ID_TIMEOUT_S: Final = 60.0

K = TypeVar("K")
V = TypeVar("V")


class MessageField(StrEnum):
    """The part of a record."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The context of a serialization.

    Attributes:
        topic: The record's topic.
        field: The part of the record.
        headers: The record's headers, as they were given.
    """

    def __init__(self, topic: str, field: Any, headers: Any = None) -> None:
        self.topic: str = topic
        self.field: Any = field
        self.headers: Any = headers


class SerializingProducer(Producer, Generic[K, V]):
    """A `Producer` with `key.serializer` and `value.serializer` in its configuration.

    Instead of a serializer, `key.serializer.builder` and `value.serializer.builder` take objects
    with `build(configuration, is_key)`, which return a serializer and what they leave of the
    configuration. These serializers are closed with the producer.

    `produce()` takes the key before the value, as there.

    Raises:
        ValueError: A serializer and its builder are given, or a builder returns something else.
        TypeError: A serializer is not callable.
    """

    _key_serializer: Any = None  # programs replace these two
    _value_serializer: Any = None
    _own_built: Iterable[Any] = ()

    @hides_arguments
    def __init__(self, conf: Mapping[str, Any]) -> None:
        rest = dict(conf)
        given = [(rest.pop(name, None), rest.pop(f"{name}.builder", None)) for name in _PARTS]
        for name, (serializer, builder) in zip(_PARTS, given, strict=True):
            if serializer is not None and builder is not None:
                raise ValueError(
                    f"Cannot configure both {name} and {name}.builder; use one or the other"
                )
        owned = self._own_built = list[Any]()
        found, lefts = [], []
        try:
            for name, (serializer, builder) in zip(_PARTS, given, strict=True):
                made = serializer
                if builder is not None:
                    made, left = _built(builder, dict(rest), name)
                    owned.append(made)
                    lefts.append(left)
                if made is not None and not callable(made):
                    raise TypeError(f"a serializer is callable, unlike {made!r}")
                found.append(made)
            for left in lefts:  # a property that one of them takes is not the producer's
                rest = {name: left[name] for name in left if name in rest}
            self._key_serializer, self._value_serializer = found
            super().__init__(rest)
            resolver = partial(_cluster_id, weakref.ref(self))
            for serializer in found:
                offer = getattr(serializer, "set_cluster_id_resolver", None)
                if callable(offer):
                    offer(resolver)
        except BaseException:
            self._own_built = ()
            with suppress(Exception):
                _close_each(owned)
            raise

    def close(self) -> bool:
        """Close the producer, then the serializers that were built for it; safe to call again."""
        result = super().close()
        owned, self._own_built = self._own_built, ()
        _close_each(owned)
        return result

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], object] | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None = None,
    ) -> None:
        """Serialize a record and hand it over, as `Producer.produce`.

        Raises:
            KeySerializationError: The key's serializer failed; `exception` says how.
            ValueSerializationError: The value's serializer failed.
        """
        self._own_check_open()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        fields = counterpart(_MODULE, "MessageField") or MessageField
        shape = counterpart(_MODULE, "SerializationContext") or SerializationContext
        serialize_key, serialize_value = self._key_serializer, self._value_serializer
        context = shape(topic, fields.KEY, headers)
        key_made: Any = key
        value_made: Any = value
        if serialize_key is not None:
            try:
                key_made = serialize_key(key, context)
            except Exception as error:
                raise _errors.shared_class(_errors.KeySerializationError)(error) from error
        context.field = fields.VALUE
        if serialize_value is not None:
            try:
                value_made = serialize_value(value, context)
            except Exception as error:
                raise _errors.shared_class(_errors.ValueSerializationError)(error) from error
        super().produce(
            topic,
            value_made,
            key_made,
            partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=context.headers,
        )


def _built(builder: Any, configuration: dict[str, Any], name: str) -> tuple[Any, dict[str, Any]]:
    made = builder.build(configuration, name == _PARTS[0])
    try:
        serializer, left = made
    except (TypeError, ValueError):
        kind = type(made).__name__
        raise ValueError(
            f"{name}.builder must return a (serde, configuration) tuple from build(), got {kind}"
        ) from None
    if not isinstance(left, dict):
        raise ValueError(
            f"{name}.builder returned {type(left).__name__} as the leftover configuration from "
            "build(), expected a dict"
        )
    return serializer, left


def _close_each(serializers: Iterable[Any]) -> None:
    """Close all; then raise the first error."""
    first: BaseException | None = None
    for serializer in serializers:
        close = getattr(serializer, "close", None)
        if callable(close):
            try:
                close()
            except BaseException as error:
                if first is not None:
                    _log.warning("closing a serializer failed", exc_info=True)
                first = first or error
    if first is not None:
        raise first


def _cluster_id(reference: weakref.ref[SerializingProducer[Any, Any]]) -> str:
    """Return the cluster's id to a serializer, which does not keep the producer alive."""
    producer = reference()
    if producer is None:
        raise RuntimeError("Producer has been closed")
    return producer.cluster_id(_CLUSTER_ID_TIMEOUT_S)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(errors, name)
    return forwarded(name, __name__, _MODULE, "confluent-kafka")
