"""Every message in every version, and strategies for their values derived from the declarations."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from hypothesis import strategies as st

from aioproducer.testing.framing import REQUEST_TYPES
from aioproducer.wire.fields import Array, Primitive, Struct, WireType
from aioproducer.wire.schema import Message

MESSAGES: list[type[Message]] = [
    message for request in REQUEST_TYPES.values() for message in (request, request.RESPONSE)
]
VERSIONS = [
    (message, version)
    for message in MESSAGES
    for version in range(message.VALID_VERSIONS[0], message.VALID_VERSIONS[1] + 1)
]
# Around 127 bytes a compact length takes its second byte.
LENGTHS = st.sampled_from([126, 127, 128, 300])
PRIMITIVES: dict[str, st.SearchStrategy[object]] = {
    "bool": st.booleans(),
    **{f"int{n}": st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)},
    "uuid": st.builds(UUID, int=st.integers(0, 2**128 - 1)),
    "string": st.text(max_size=12) | LENGTHS.map(lambda length: "x" * length),
    "bytes": st.binary(max_size=20) | LENGTHS.map(bytes),
    "records": st.binary(max_size=20) | LENGTHS.map(bytes),
}

S = TypeVar("S", bound=Struct)


def values(wire_type: WireType, version: int) -> st.SearchStrategy[object]:
    """Any value a type can hold in a version."""
    if isinstance(wire_type, Primitive):
        return PRIMITIVES[wire_type.name]
    if isinstance(wire_type, Array):
        return st.lists(values(wire_type.element, version), max_size=3)
    return instances(wire_type, version)


def instances(cls: type[S], version: int) -> st.SearchStrategy[S]:
    """Any instance whose fields a version can carry."""
    present: dict[str, st.SearchStrategy[object]] = {}
    for field in cls.FIELDS:
        if version in field.versions:
            value = values(field.type, version)
            present[field.name] = st.none() | value if version in field.nullable else value
    return st.builds(cls, **present)


def by_name(case: object) -> str:
    """The id of a test case."""
    return case.__name__ if isinstance(case, type) else f"v{case}"
