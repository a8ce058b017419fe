"""Avro's types without parts: primitive and logical types, enums, fixed; `SchemaMismatch`.

fastavro converts dates and times, and whatever logical types are registered with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Context, Decimal, InvalidOperation
from enum import Enum
from numbers import Integral, Real
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, Final
from uuid import UUID

from aioproducer._util.varints import varint, zigzag
from aioproducer.serializers.registry.avro_schema import ATTRIBUTES
from aioproducer.serializers.registry.avro_values import inner, is_wrapper

Write = Callable[[bytearray, Any], None]
"""Appends a value's encoding; raises `SchemaMismatch`."""

BYTES: Final = (bytes, bytearray, memoryview)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EXACT: Final = Context(prec=100_000)
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_RANGES: Final = {"int": 1 << 31, "long": 1 << 63}


class SchemaMismatch(Exception):  # noqa: N818 - it never leaves the serializers
    """A value that does not fit the schema.

    Attributes:
        steps: Where it is, from the inside out: `.name`, `[2]` or `['key']`.
        reason: What was expected and what was given.
        ambiguous: Whether it fits several branches of a union equally.
    """

    def __init__(self, reason: str, *steps: str, ambiguous: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = list(steps)
        self.ambiguous = ambiguous

    def copy(self) -> SchemaMismatch:
        """Return the same without the frames that it went through, to be raised again."""
        return SchemaMismatch(self.reason, *self.steps, ambiguous=self.ambiguous)

    @property
    def path(self) -> str:
        """The path from the top: `a.b[2]`."""
        return "".join(reversed(self.steps)).removeprefix(".")


def leaf(schema: Any) -> Write:
    """Return what writes a primitive type, an enum or a fixed."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    expected = words(schema)
    base = base_of(schema, kind, expected)
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        prepare = _decimal(schema, expected) if _is_decimal(schema) else None
    elif logical == "uuid" and (kind == "string" or (kind == "fixed" and schema["size"] == 16)):
        prepare = _uuid(kind, expected)
    else:
        prepare = None if logical is None else by_fastavro(schema, kind, expected)

    def write(out: bytearray, data: Any) -> None:
        if kind != "enum" and is_wrapper(data):
            data = inner(data)
        base(out, data if prepare is None else prepare(data))

    return write if prepare is not None else base


def base_of(schema: Any, kind: str, expected: str) -> Write:
    """Return what writes a type without its logical type."""
    if kind in _RANGES:
        return _integer(_RANGES[kind], expected)
    if kind in ("float", "double"):
        return _floating(_FLOAT if kind == "float" else _DOUBLE, expected)
    if kind == "enum":
        return _enum(schema["symbols"], expected)
    if kind == "fixed":
        return _bytes(expected, schema["size"])
    return {"null": _null, "boolean": _boolean, "bytes": _bytes, "string": _string}[kind](expected)


def _unwrapped(data: Any, kinds: type | tuple[type, ...], expected: str) -> Any:
    """Return a value of these types, which an enumeration's member or a `RootModel` may hold."""
    while not isinstance(data, kinds):
        if not is_wrapper(data):
            raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")
        data = inner(data)
    return data


def _null(expected: str) -> Write:
    def write(out: bytearray, data: Any) -> None:
        if data is not None and not (is_wrapper(data) and inner(data) is None):
            raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")

    return write


def _boolean(expected: str) -> Write:
    def write(out: bytearray, data: Any) -> None:
        if data is True or data is False:
            out.append(data)
        elif is_wrapper(data):
            write(out, inner(data))
        elif type(data).__module__ == "numpy" and type(data).__name__ in ("bool", "bool_"):
            out.append(bool(data))
        else:
            raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")

    return write


def _integer(limit: int, expected: str) -> Write:
    def write(out: bytearray, data: Any) -> None:
        if data.__class__ is not int:
            data = _unwrapped(data, Integral, expected)
            if isinstance(data, bool):
                raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")
            data = int(data)
        if not -limit <= data < limit:
            raise SchemaMismatch(f"must be {expected}, not {type_name(data)} out of its range")
        out += varint(zigzag(data))

    return write


def _floating(form: Struct, expected: str) -> Write:
    def write(out: bytearray, data: Any) -> None:
        if data.__class__ is not float:
            data = _unwrapped(data, (Real, Decimal), expected)
            if isinstance(data, bool):
                raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")
        try:
            out += form.pack(float(data))
        except (OverflowError, StructError, ValueError):
            raise SchemaMismatch(
                f"must be {expected}, not {type_name(data)} out of its range"
            ) from None

    return write


def _string(expected: str) -> Write:
    def write(out: bytearray, data: Any) -> None:
        if data.__class__ is not str:
            data = _unwrapped(data, str, expected)
        try:
            text = str.encode(data, "utf-8")
        except UnicodeEncodeError:
            raise SchemaMismatch(f"must be {expected}, not str with a lone surrogate") from None
        out += varint(zigzag(len(text)))
        out += text

    return write


def _bytes(expected: str, size: int | None = None) -> Write:
    def write(out: bytearray, data: Any) -> None:
        content = bytes(_unwrapped(data, BYTES, expected))
        if size is None:
            out += varint(zigzag(len(content)))
        elif len(content) != size:
            raise SchemaMismatch(f"must be {expected}, not {len(content)} bytes")
        out += content

    return write


def _enum(symbols: Sequence[str], expected: str) -> Write:
    places = {symbol: varint(zigzag(index)) for index, symbol in enumerate(symbols)}

    def write(out: bytearray, data: Any) -> None:
        if isinstance(data, Enum):
            for symbol in (data.value, data.name):
                if isinstance(symbol, str) and symbol in places:
                    out += places[symbol]
                    return
            raise SchemaMismatch(
                f"must be {expected}, not a member of {type_name(data)} that is none"
            )
        if not isinstance(data, str):
            if is_wrapper(data):
                write(out, inner(data))
                return
            raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")
        if data not in places:
            raise SchemaMismatch(f"must be {expected}, not a str that is none of them")
        out += places[data]

    return write


# -- logical types ---------------------------------------------------------------------------------


_MOST_DIGITS: Final = 1_000
"""Decimals with more are refused: a value costs time and memory by the schema's scale."""

_LARGEST_FIXED: Final = 64 * 1024
"""Decimals in a larger fixed are refused: each value has its size, whatever its digits."""


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether precision and scale are valid; if not, Avro ignores the logical type."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        isinstance(precision, int)
        and isinstance(scale, int)
        and precision > 0 <= scale <= precision
    )


def _decimal(schema: Mapping[str, Any], expected: str) -> Callable[[Any], bytes]:
    precision, scale, size = schema["precision"], schema.get("scale", 0), schema.get("size")

    def prepare(data: Any) -> bytes:
        if precision > _MOST_DIGITS:
            raise SchemaMismatch(
                f"cannot be written: decimals of up to {_MOST_DIGITS} digits are supported, "
                f"the schema has {precision}"
            )
        if size is not None and size > _LARGEST_FIXED:
            raise SchemaMismatch(
                f"cannot be written: decimals of up to {_LARGEST_FIXED} bytes are supported, "
                f"the schema has {size}"
            )
        if isinstance(data, BYTES):
            content = bytes(data)
            if not content or abs(int.from_bytes(content, "big", signed=True)) >= 10**precision:
                raise SchemaMismatch(f"must be {expected}, not bytes of more digits")
            return content
        if not isinstance(data, Decimal):
            raise SchemaMismatch(f"must be {expected}, not {type_name(data)}")
        if not data.is_finite():
            raise SchemaMismatch(f"must be {expected}, not a Decimal that is not a number")
        if data and data.adjusted() >= precision - scale:
            raise SchemaMismatch(
                f"must be {expected}, not a Decimal with more digits before the point"
            )
        try:
            scaled = _EXACT.scaleb(data, scale)
            whole = int(scaled)
            is_exact = scaled == whole
        except (InvalidOperation, OverflowError, ValueError):
            is_exact = False
        if not is_exact:
            raise SchemaMismatch(
                f"must be {expected}, not a Decimal with more digits after the point"
            )
        if size is None:
            return whole.to_bytes(((whole + (whole < 0)).bit_length() >> 3) + 1, "big", signed=True)
        try:
            return whole.to_bytes(size, "big", signed=True)
        except OverflowError:
            raise SchemaMismatch(f"must be {expected}, not a Decimal with more digits") from None

    return prepare


def _uuid(kind: str, expected: str) -> Callable[[Any], Any]:
    def prepare(data: Any) -> Any:
        if isinstance(data, UUID):
            return str(data) if kind == "string" else data.bytes
        if kind == "string" and isinstance(data, str) and not _UUID.fullmatch(data):
            raise SchemaMismatch(f"must be {expected}, not a str that is no UUID")
        return data

    return prepare


def by_fastavro(schema: Mapping[str, Any], kind: str, expected: str) -> Callable[[Any], Any]:
    """Return what converts a value of a logical type, if that is registered with fastavro."""
    from fastavro.write import LOGICAL_WRITERS

    name = f"{kind}-{schema['logicalType']}"
    full = {**schema.get(ATTRIBUTES, {}), **schema}

    def prepare(data: Any) -> Any:
        convert = LOGICAL_WRITERS.get(name)
        if convert is None and name in _NANOS and isinstance(data, datetime):
            convert = _nanoseconds
        if convert is None:
            return data
        try:
            return convert(data, full)
        except Exception:
            raise SchemaMismatch(
                f"must be {expected}, not {type_name(data)} of another form"
            ) from None

    return prepare


_NANOS: Final = frozenset({"long-timestamp-nanos", "long-local-timestamp-nanos"})


def _nanoseconds(data: datetime, schema: dict[str, Any]) -> int:
    """Convert a time, which fastavro does up to microseconds; pandas has those below."""
    from fastavro.write import LOGICAL_WRITERS

    coarser = f"long-{schema['logicalType'].replace('nanos', 'micros')}"
    micros: int = LOGICAL_WRITERS[coarser](data, schema)
    return micros * 1000 + int(getattr(data, "nanosecond", 0))


def words(schema: Any) -> str:
    """Return what a type is called in messages."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return " or ".join(map(words, schema))
    kind = str(schema["type"])
    if kind == "enum":
        return f"enum {schema['name']} ({', '.join(schema['symbols'])})"
    extra = f" {schema['name']}" if schema.get("name") else ""
    if kind == "fixed":
        extra += f" of {schema['size']} bytes"
    logical = schema.get("logicalType")
    if logical == "decimal":
        extra += f" (decimal({schema.get('precision')},{schema.get('scale', 0)}))"
    elif logical is not None:
        extra += f" ({logical})"
    return kind + extra


def type_name(data: Any) -> str:
    """Return the name of a value's type; of no value, `null`."""
    return "null" if data is None else type(data).__name__
