"""Limits on Protobuf schemas in binary form, checked before native code reads them.

Start with `check_file`. Schemas come from registries and options: the package protobuf takes some
200 bytes for a message type of two bytes, and repeats a type's full name in every type inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aioproducer._util.varints import read_varint

LONGEST_NAME: Final = 500
"""Limit of a type's full name in bytes; Protobuf's parsers read types that are nested 100 deep."""
LONGEST_FILE_NAME: Final = 1_000
MOST_FILES: Final = 501
"""The limit of the registry's client: a schema and 500 references."""
MOST_BYTES: Final = 6 << 20
"""Limit of all files together: a response of a registry and 4 MB of references, decoded."""
_MOST_IN_FILE: Final = 100_000
_MOST_IN_FILES: Final = 200_000
"""Encoded fields at any depth. A message's field has some seven, a value of an enum three."""
_DEEPEST: Final = 100

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class SchemaLimitError(ValueError):
    """The schema is beyond a limit."""


class SchemaSize:
    """The sizes of the files of one schema together, against the limits."""

    def __init__(self) -> None:
        self.files: int = 0
        self.bytes: int = 0
        self.fields: int = 0

    def add(self, file: bytes) -> None:
        """Count a file, with the fields in it still to come."""
        self.files += 1
        self.bytes += len(file)
        if self.files > MOST_FILES:
            raise SchemaLimitError(f"the schema has more than {MOST_FILES} files")
        if self.bytes > MOST_BYTES:
            raise SchemaLimitError(f"the schema has more than {MOST_BYTES} bytes")


def check_file(file: bytes, size: SchemaSize) -> None:
    """Check a `FileDescriptorProto`, in linear time and without recursion."""
    size.add(file)
    last = min(size.fields + _MOST_IN_FILE, _MOST_IN_FILES)
    waiting = [(file, _FILE, 0, 1)]
    while waiting:
        message, kind, outer, depth = waiting.pop()
        if depth > _DEEPEST:
            raise SchemaLimitError(f"the schema is nested more than {_DEEPEST} deep")
        inside: list[tuple[bytes, _Kind]] = []
        name = 0
        for number, content in fields_in(message, last - size.fields):
            size.fields += 1
            if number == kind.name:
                name = max(name, len(content))
            elif (inner := kind.inside.get(number)) is not None:
                inside.append((content, inner))
            elif kind is _FILE and number == _FILE_NAME and len(content) > LONGEST_FILE_NAME:
                raise SchemaLimitError("the name of a file of the schema is too long")
        if outer + name > LONGEST_NAME:
            raise SchemaLimitError(f"a name in the schema is longer than {LONGEST_NAME} bytes")
        waiting += [(content, inner, outer + name + 1, depth + 1) for content, inner in inside]


def files_in_set(files: bytes) -> list[bytes]:
    """Return the files of a `FileDescriptorSet`."""
    return [each for number, each in fields_in(files, MOST_FILES) if number == _FILE_IN_SET]


def fields_in(message: bytes, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field of a message; nothing for a number."""
    place, end, left = 0, len(message), most
    try:
        while place < end:
            left -= 1
            if left < 0:
                raise SchemaLimitError("the schema has more fields than any real one")
            key, place = read_varint(message, place)
            kind, size = key & 7, 0
            if kind == _VARINT:
                _, place = read_varint(message, place)
            elif kind == _BYTES:
                size, place = read_varint(message, place)
            elif kind in (_FIXED32, _FIXED64):
                place += 4 if kind == _FIXED32 else 8
            else:
                raise ValueError("this is no Protobuf message")
            if place + size > end or not key >> 3:
                raise ValueError("this is no Protobuf message: a field has no end")
            yield key >> 3, message[place : place + size]
            place += size
    except IndexError:
        raise ValueError("this is no Protobuf message: it ends within a field") from None


# -- the messages of google/protobuf/descriptor.proto ----------------------------------------------


@dataclass(slots=True, eq=False)
class _Kind:
    """A message of a schema: the number of its name, and those of the messages in it."""

    name: int | None = None
    inside: Mapping[int, _Kind] = field(default_factory=dict)


_FILE_IN_SET: Final = 1
_FILE_NAME: Final = 1
_LEAF: Final = _Kind()
_OPTIONS: Final = _Kind(inside={999: _Kind(inside={2: _LEAF})})
_FIELD: Final = _Kind(1, {8: _OPTIONS})
_ENUM: Final = _Kind(1, {2: _Kind(1, {3: _OPTIONS}), 3: _OPTIONS, 4: _LEAF})
_MESSAGE: Final = _Kind(1)
_MESSAGE.inside = {
    2: _FIELD,
    3: _MESSAGE,
    4: _ENUM,
    5: _Kind(inside={2: _LEAF, 3: _OPTIONS}),
    6: _FIELD,
    7: _OPTIONS,
    8: _Kind(1, {2: _OPTIONS}),
    9: _LEAF,
}
_FILE: Final = _Kind(
    2,
    {
        4: _MESSAGE,
        5: _ENUM,
        6: _Kind(1, {2: _Kind(1, {4: _OPTIONS}), 3: _OPTIONS}),
        7: _FIELD,
        8: _OPTIONS,
        9: _Kind(inside={1: _LEAF}),
    },
)
"""The name of a file is its package, which begins the names of its types."""
