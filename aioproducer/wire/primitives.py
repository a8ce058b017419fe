"""Kafka's primitive encodings, as functions over a buffer and a position.

Conventions:
- A reader takes `(data, pos)` and returns `(value, next position)`; `data` is `bytes` or a
  byte-shaped `memoryview` and is never copied as a whole. A writer appends to a `bytearray`.
- A length is compared with the bytes that are left BEFORE anything is allocated for it.
- Reading past the end raises `ProtocolError`, or `IndexError`/`struct.error`, which the callers
  from outside (`Message.decode`, `framing`) turn into `ProtocolError`; see `MALFORMED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from uuid import UUID

from aioproducer.errors import ProtocolError

Buffer = bytes | memoryview

MAX_ARRAY_ELEMENTS = 1_000_000
MAX_MESSAGE_ELEMENTS = 4_000_000
"""Elements of all arrays of one message, nested ones included, and its tagged fields: each costs
memory and time far above its bytes on the wire. Metadata of 180,000 partitions with three replicas
is within it."""
STRUCT_WEIGHT = 16
"""How many numbers an element with fields counts for: 125,000 of them take about a second."""
OBJECT_WEIGHT = 4
"""How many numbers a string, bytes or a UUID counts for."""
TAG_WEIGHT = 4
"""How many numbers a tagged field counts for, known or not: each struct may have its own."""
MAX_TAGS = 10_000
MAX_STRING_BYTES = 0x7FFF
"""Kafka strings are at most 32,767 bytes of UTF-8, compact ones too (`MessageDataGenerator`)."""

ZERO_UUID = UUID(int=0)
"""The value for "no id" wherever Kafka sends a UUID."""

MALFORMED = (IndexError, struct_error, UnicodeDecodeError)
"""What decoding broken bytes may raise besides `ProtocolError`, before it is translated."""

UNENCODABLE = (struct_error, UnicodeEncodeError, TypeError, AttributeError)
"""What encoding a value that does not fit its field may raise, before it is translated."""

_INT16 = Struct(">h")
_INT32 = Struct(">i")


# --- errors -------------------------------------------------------------------------------------


def overrun(pos: int, wanted: int, size: int) -> ProtocolError:
    """Return the error of a length that reaches past the end of the data."""
    return ProtocolError(f"{wanted} bytes announced at offset {pos}, {size - pos} left")


def unexpected_null(field: str, pos: int) -> ProtocolError:
    """Return the error of a null where the field may not be null in this version."""
    return ProtocolError(f"{field} before offset {pos} is null, which this version forbids")


def tag_size_mismatch(tag: int, stop: int, pos: int) -> ProtocolError:
    """Return the error of a tagged field whose content differs from its announced size."""
    return ProtocolError(f"tagged field {tag} should end at offset {stop}, it ends at {pos}")


@dataclass(slots=True)
class ElementBudget:
    """The number of array elements and tagged fields that the message being decoded may still have.

    They count by weight.
    """

    left: int = MAX_MESSAGE_ELEMENTS


def too_many_elements(pos: int) -> ProtocolError:
    """Return the error of a message whose arrays exceed `MAX_MESSAGE_ELEMENTS` in total."""
    return ProtocolError(
        f"more than {MAX_MESSAGE_ELEMENTS} array elements before offset {pos}, of which those with "
        f"fields count {STRUCT_WEIGHT} times, and tagged fields {TAG_WEIGHT} times"
    )


# --- variable-length integers -------------------------------------------------------------------


def read_uvarint(data: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned 32-bit varint (KIP-482): seven bits a byte, low ones first, up to 5."""
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return byte, pos
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise ProtocolError(f"varint before offset {pos} does not fit 32 bits")
            return value, pos
    raise ProtocolError(f"varint before offset {pos} is longer than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned 32-bit varint."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise struct_error(f"{value} does not fit an unsigned 32-bit varint")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- lengths: -1 is null, any other value is known to fit the data ------------------------------


def _bounded(length: int, pos: int, data: Buffer) -> tuple[int, int]:
    if length < -1:
        raise ProtocolError(f"negative length {length} before offset {pos}")
    if length > len(data) - pos:
        raise overrun(pos, length, len(data))
    return length, pos


def read_length16(data: Buffer, pos: int) -> tuple[int, int]:
    """Return the classic length of a string: int16."""
    return _bounded(_INT16.unpack_from(data, pos)[0], pos + 2, data)


def read_length32(data: Buffer, pos: int) -> tuple[int, int]:
    """Return the classic length of bytes or records: int32."""
    return _bounded(_INT32.unpack_from(data, pos)[0], pos + 4, data)


def read_compact_length(data: Buffer, pos: int) -> tuple[int, int]:
    """Return the compact length of bytes and records: length + 1 as an unsigned varint."""
    length, pos = read_uvarint(data, pos)
    length -= 1
    if length > len(data) - pos:
        raise overrun(pos, length, len(data))
    return length, pos


def read_compact_string_length(data: Buffer, pos: int) -> tuple[int, int]:
    """Return the compact length of a string, which is bounded as the classic one is."""
    length, pos = read_compact_length(data, pos)
    if length > MAX_STRING_BYTES:
        raise ProtocolError(f"a string of {length} bytes is longer than {MAX_STRING_BYTES}")
    return length, pos


def _bounded_count(count: int, element_size: int, pos: int, data: Buffer) -> tuple[int, int]:
    if count < -1:
        raise ProtocolError(f"negative array length {count} before offset {pos}")
    if count > MAX_ARRAY_ELEMENTS:
        raise ProtocolError(f"array of {count} elements at offset {pos} is over the limit")
    if count * element_size > len(data) - pos:
        raise overrun(pos, count * element_size, len(data))
    return count, pos


def read_count(data: Buffer, pos: int, element_size: int) -> tuple[int, int]:
    """Read the classic length of an array with elements of at least `element_size` bytes each."""
    return _bounded_count(_INT32.unpack_from(data, pos)[0], element_size, pos + 4, data)


def read_compact_count(data: Buffer, pos: int, element_size: int) -> tuple[int, int]:
    """Read the compact length of an array with elements of at least `element_size` bytes each."""
    count, pos = read_uvarint(data, pos)
    return _bounded_count(count - 1, element_size, pos, data)


def write_length32(out: bytearray, length: int) -> None:
    """Append a classic length of bytes, records or an array; -1 is null."""
    out += _INT32.pack(length)


def write_compact_length(out: bytearray, length: int) -> None:
    """Append a compact length; -1 is null."""
    write_uvarint(out, length + 1)


# --- strings and bytes --------------------------------------------------------------------------


def read_nullable_string(data: Buffer, pos: int) -> tuple[str | None, int]:
    """Return a classic string that may be null."""
    length, pos = read_length16(data, pos)
    if length < 0:
        return None, pos
    stop = pos + length
    return str(data[pos:stop], "utf-8"), stop


def write_string(out: bytearray, value: str) -> None:
    """Append a classic string."""
    raw = value.encode()
    out += _INT16.pack(len(raw))
    out += raw


def write_compact_string(out: bytearray, value: str) -> None:
    """Append a compact string."""
    raw = value.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise struct_error(f"a string of {len(raw)} bytes is longer than {MAX_STRING_BYTES}")
    write_uvarint(out, len(raw) + 1)
    out += raw


def write_nullable_string(out: bytearray, value: str | None) -> None:
    """Append a classic string or null."""
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_nullable_compact_string(out: bytearray, value: str | None) -> None:
    """Append a compact string or null."""
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


# --- tagged fields ------------------------------------------------------------------------------


def read_tag_count(data: Buffer, pos: int, budget: ElementBudget) -> tuple[int, int]:
    """Return the number of tagged fields that follow (KIP-482)."""
    count, pos = read_uvarint(data, pos)
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields at offset {pos} are over the limit")
    budget.left -= count * TAG_WEIGHT
    if budget.left < 0:
        raise too_many_elements(pos)
    return count, pos


def read_tag(data: Buffer, pos: int) -> tuple[int, int, int]:
    """Return one tagged field's head: `(tag, where its content ends, where its content starts)`."""
    tag, pos = read_uvarint(data, pos)
    length, pos = read_uvarint(data, pos)
    if length > len(data) - pos:
        raise overrun(pos, length, len(data))
    return tag, pos + length, pos


def skip_tags(data: Buffer, pos: int, budget: ElementBudget) -> int:
    """Pass over a whole section of tagged fields, none of which is known."""
    count, pos = read_tag_count(data, pos, budget)
    for _ in range(count):
        _, pos, _ = read_tag(data, pos)
    return pos


def write_tag(out: bytearray, tag: int, content: bytes | bytearray) -> None:
    """Append one tagged field."""
    write_uvarint(out, tag)
    write_uvarint(out, len(content))
    out += content
