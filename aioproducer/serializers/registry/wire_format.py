"""The bytes in front of a payload.

    0 | schema id, 4 bytes big-endian | payload                       Avro, JSON Schema
    0 | schema id | message indexes   | payload                       Protobuf

The indexes lead to the message's type inside of its file: how many, then each, as zigzag varints;
the most usual path, `[0]`, is a single 0.

With the id in a header, the payload has nothing in front, and `__key_schema_id` or
`__value_schema_id` is

    1 | the schema's GUID, 16 bytes | message indexes, for Protobuf only
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from uuid import UUID

from aioproducer._util.varints import varint, zigzag

_FRAME = Struct(">bI")
_MAGIC = 0
_MAGIC_OF_GUID = b"\x01"


def prefix(schema_id: int) -> bytes:
    """Return the bytes before every payload of a schema: magic byte and id."""
    return _FRAME.pack(_MAGIC, schema_id)


def header_content(guid: UUID) -> bytes:
    """Return the content of the header with a schema's GUID, which replaces the prefix."""
    return _MAGIC_OF_GUID + guid.bytes


def message_indexes(path: Sequence[int]) -> bytes:
    """Encode the index path of a Protobuf message's type."""
    if list(path) == [0]:
        return b"\x00"
    return b"".join(varint(zigzag(number)) for number in (len(path), *path))
