"""Serializers of plain values, byte for byte those of `org.apache.kafka.common.serialization`."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a function's name
from typing import Any, ClassVar
from uuid import UUID

from aioproducer.serializers.protocol import (
    SerializationContext,
    serialization_error,
    wrong_type_error,
)


class BytesSerializer:
    """Bytes, bytearray and memoryview as they are; costs as much as no serializer."""

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        if data is None or data.__class__ is bytes:
            return data
        if not isinstance(data, bytes | bytearray | memoryview):
            raise wrong_type_error(context, "bytes", data)
        return bytes(data)


class StringSerializer:
    """Text in an encoding (Java: `StringSerializer`).

    Args:
        encoding: one that `str.encode` supports.

    Raises:
        LookupError: there is no such encoding.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self._encoding = encoding

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        if data is None:
            return None
        if not isinstance(data, str):
            raise wrong_type_error(context, "str", data)
        try:
            return data.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise serialization_error(
                context, f"character {error.start} cannot be encoded as {self._encoding}"
            ) from None


class UuidSerializer:
    """The 36 characters of a UUID (Java: `UUIDSerializer`)."""

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        if data is None:
            return None
        if not isinstance(data, UUID):
            raise wrong_type_error(context, "a UUID", data)
        return str(data).encode("ascii")


class BooleanSerializer:
    """One byte, 0 or 1 (Java: `BooleanSerializer`)."""

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        if data is None:
            return None
        if not isinstance(data, bool):
            raise wrong_type_error(context, "a bool", data)
        return b"\x01" if data else b"\x00"


class _NumberSerializer:
    """A number of fixed width, big-endian."""

    _layout: ClassVar[Struct]
    _takes: ClassVar[tuple[type, ...]] = (int,)

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        if data is None:
            return None
        if not isinstance(data, self._takes) or isinstance(data, bool):
            raise wrong_type_error(
                context, " or ".join(kind.__name__ for kind in self._takes), data
            )
        try:
            return self._layout.pack(data)
        except (StructError, OverflowError):
            raise serialization_error(
                context, f"out of the range of {self._layout.size} bytes"
            ) from None


class ShortSerializer(_NumberSerializer):
    """A signed integer of 2 bytes (Java: `ShortSerializer`)."""

    _layout = Struct(">h")


class IntegerSerializer(_NumberSerializer):
    """A signed integer of 4 bytes (Java: `IntegerSerializer`)."""

    _layout = Struct(">i")


class LongSerializer(_NumberSerializer):
    """A signed integer of 8 bytes (Java: `LongSerializer`)."""

    _layout = Struct(">q")


class FloatSerializer(_NumberSerializer):
    """IEEE 754 single precision, 4 bytes (Java: `FloatSerializer`)."""

    _layout = Struct(">f")
    _takes = (float, int)


class DoubleSerializer(_NumberSerializer):
    """IEEE 754 double precision, 8 bytes (Java: `DoubleSerializer`)."""

    _layout = Struct(">d")
    _takes = (float, int)
