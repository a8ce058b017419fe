"""Declarations of messages: version ranges, wire types, fields and structs.

A struct is a slotted dataclass with fields that have, next to their Python type, their wire type
and their versions:

    @struct
    class MetadataResponseBroker(Struct):
        node_id: int = f("int32", "0+")
        rack: str | None = f("string", "1+", nullable="1+", default=None, ignorable=True)

Invariants: fields are in wire order; every field has the default Kafka's own schema gives it, so
every struct can be made from nothing; declarations are immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from aioproducer.wire.primitives import ZERO_UUID


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of message versions; `Versions.parse` reads Kafka's notation."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """`"3+"`, `"3-5"`, `"3"` or `"none"`."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), 0x7FFF)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts; `code` is its `struct` format where its size is fixed."""

    name: str
    default: object
    code: str = ""


@dataclass(frozen=True, slots=True)
class Array:
    """A list of one type; elements are never null."""

    element: Primitive | type[Struct]


uuid: Primitive = Primitive("uuid", ZERO_UUID, "16s")
string: Primitive = Primitive("string", "")
record_set: Primitive = Primitive("records", None)
"""Record batches; decoded into a view of the received buffer, never copied."""
_PRIMITIVES = {
    "bool": Primitive("bool", False, "?"),
    "int8": Primitive("int8", 0, "b"),
    "int16": Primitive("int16", 0, "h"),
    "int32": Primitive("int32", 0, "i"),
    "int64": Primitive("int64", 0, "q"),
    "uuid": uuid,
    "string": string,
    "bytes": Primitive("bytes", b""),
    "records": record_set,
}


class Struct:
    """Base of everything declared with `@struct`."""

    __slots__ = ()

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    """The declaration of each field, in wire order."""


WireType = Primitive | Array | type[Struct]


@dataclass(frozen=True, slots=True)
class Field:
    """One field's wire format.

    `ignorable` fields are dropped silently by versions that lack them; any other field refuses
    such a version when it holds more than its default.
    """

    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    make_default: Callable[[], Any]
    name: str = ""


_KEY = "wire"
_IMPLIED = object()


def array(element: str | type[Struct]) -> Array:
    """Return the array type of `element`, a primitive type's name or a struct class."""
    return Array(_PRIMITIVES[element] if isinstance(element, str) else element)


def _default_factory(wire_type: WireType) -> Callable[[], Any]:
    if isinstance(wire_type, Array):
        return list
    if isinstance(wire_type, Primitive):
        implied = wire_type.default
        return lambda: implied
    return wire_type


def f(
    declared_type: str | Array | type[Struct],
    versions: str,
    *,
    nullable: str = "none",
    default: Any = _IMPLIED,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    Args:
        declared_type: Kafka's name of a primitive type (`"int32"`, `"string"` ...), `array(...)` or
            a struct class.
        versions: the versions that have the field, in Kafka's notation (`"3+"`, `"0-12"`).
        nullable: the versions in which it may be null.
        default: its value when not set; implied by the type unless given.
        tag: the tag, for a field in the tagged section (in all of its versions).
        ignorable: see `Field`.
    """
    wire_type = _PRIMITIVES[declared_type] if isinstance(declared_type, str) else declared_type
    make_default = _default_factory(wire_type) if default is _IMPLIED else lambda: default
    declared = Field(
        type=wire_type,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tag=tag,
        ignorable=ignorable,
        make_default=make_default,
    )
    metadata = {_KEY: declared}
    if default is _IMPLIED and not isinstance(wire_type, Primitive):
        return dataclasses.field(default_factory=make_default, metadata=metadata)
    return dataclasses.field(default=make_default(), metadata=metadata)


T = TypeVar("T", bound=Struct)


@dataclass_transform()
def struct(cls: type[T]) -> type[T]:
    """Make a declared class a slotted dataclass and collect its fields."""
    made = dataclass(slots=True)(cls)
    made.FIELDS = tuple(
        dataclasses.replace(field.metadata[_KEY], name=field.name)
        for field in dataclasses.fields(made)  # type: ignore[arg-type]
    )
    return made
