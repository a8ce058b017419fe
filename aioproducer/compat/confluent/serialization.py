"""`SerializingProducer`, and what its serializers get: confluent-kafka's calling convention.

A serializer is called as `serializer(object, context)` and returns bytes, text or None, as those of
`confluent_kafka.schema_registry` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from aioproducer._util.secrets import hides_arguments
from aioproducer.compat._forwarding import forwarded
from aioproducer.compat._shared_classes import counterpart
from aioproducer.compat.confluent import errors
from aioproducer.compat.confluent.errors import (
    KeySerializationError,
    ProduceError,
    SerializationError,
    ValueSerializationError,
)
from aioproducer.compat.confluent.producer import Producer

__all__ = [
    "KeySerializationError",
    "MessageField",
    "ProduceError",
    "SerializationContext",
    "SerializationError",
    "SerializingProducer",
    "ValueSerializationError",
]

_MODULE = "confluent_kafka.serialization"


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


class SerializingProducer(Producer):
    """A `Producer` with `key.serializer` and `value.serializer` in its configuration.

    `produce()` takes the key before the value, as there.
    """

    @hides_arguments
    def __init__(self, conf: Mapping[str, Any], /) -> None:
        rest = dict(conf)
        self._serializers = rest.pop("key.serializer", None), rest.pop("value.serializer", None)
        for each in self._serializers:
            if each is not None and not callable(each):
                raise TypeError(f"a serializer is callable, unlike {each!r}")
        super().__init__(rest)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
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
        self._check_open()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        fields = counterpart(_MODULE, "MessageField") or MessageField
        shape = counterpart(_MODULE, "SerializationContext") or SerializationContext
        serialize_key, serialize_value = self._serializers
        context = shape(topic, fields.KEY, headers)
        if serialize_key is not None:
            try:
                key = serialize_key(key, context)
            except Exception as error:
                raise errors.shared_error_class(KeySerializationError)(error) from error
        context.field = fields.VALUE
        if serialize_value is not None:
            try:
                value = serialize_value(value, context)
            except Exception as error:
                raise errors.shared_error_class(ValueSerializationError)(error) from error
        super().produce(
            topic,
            value,
            key,
            partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=context.headers,
        )


def __getattr__(name: str) -> Any:
    return forwarded(name, __name__, _MODULE, "confluent-kafka")
