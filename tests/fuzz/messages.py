"""Every message in every version as fuzz input: which one an input means, and samples of it.

Owns: the two-byte selector (API key, version) in front of an encoded message, sample values made
from the declarations. Not here: frames, targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TypeVar
from uuid import UUID

from aioproducer.testing.framing import REQUEST_TYPES
from aioproducer.wire.fields import Array, Field, Primitive, Struct, WireType
from aioproducer.wire.schema import Message
from fuzz.source import Source

_KEYS = list(REQUEST_TYPES)

S = TypeVar("S", bound=Struct)


def every_version() -> Iterator[tuple[type[Message], int]]:
    """Each request class with each of its versions."""
    for request_type in REQUEST_TYPES.values():
        lowest, highest = request_type.VALID_VERSIONS
        for version in range(lowest, highest + 1):
            yield request_type, version


def selector(request_type: type[Message], version: int) -> bytes:
    """The two bytes `selected` reads."""
    return bytes([int(request_type.API_KEY or 0), version])


def selected(source: Source) -> tuple[type[Message], int]:
    """A request class and a version; numbers that name none are bent to some that do."""
    number, version = source.number(1), source.number(1)
    request_type = REQUEST_TYPES.get(number)  # type: ignore[call-overload]
    if request_type is None:
        request_type = REQUEST_TYPES[_KEYS[number % len(_KEYS)]]
    lowest, highest = request_type.VALID_VERSIONS
    if not lowest <= version <= highest:
        version = lowest + version % (highest - lowest + 1)
    return request_type, version


def samples(cls: type[S], version: int) -> Iterator[S]:
    """A full instance and one with nulls and empty arrays wherever the version allows them."""
    rng = Random(f"{cls.__name__} {version}")
    yield _instance(cls, version, rng, full=True)
    yield _instance(cls, version, rng, full=False)


def _instance(cls: type[S], version: int, rng: Random, *, full: bool) -> S:
    return cls(
        **{
            field.name: _field(field, version, rng, full=full)
            for field in cls.FIELDS
            if version in field.versions
        }
    )


def _field(field: Field, version: int, rng: Random, *, full: bool) -> object:
    if not full and version in field.nullable:
        return None
    return _value(field.type, version, rng, full=full)


def _value(wire_type: WireType, version: int, rng: Random, *, full: bool) -> object:
    if isinstance(wire_type, Array):
        count = rng.randint(1, 2) if full else 0
        return [_value(wire_type.element, version, rng, full=full) for _ in range(count)]
    if not isinstance(wire_type, Primitive):
        return _instance(wire_type, version, rng, full=full)
    match wire_type.name:
        case "bool":
            return rng.random() < 0.5
        case "uuid":
            return UUID(int=rng.getrandbits(128))
        case "string":
            return rng.choice(("a", "orders", "größer", "x" * 130)) if full else ""
        case "bytes" | "records":
            return rng.randbytes(rng.choice((1, 7, 130))) if full else b""
        case name:
            bits = int(name.removeprefix("int"))
            return rng.choice((0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))))
