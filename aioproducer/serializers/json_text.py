"""JSON, by the quickest library at hand.

Invariant: msgspec, orjson and the standard library write equivalent JSON of None, bool, int, float,
str, mappings of text or numbers, list, tuple, set, dataclasses, enumerations, UUIDs, dates and
times (RFC 3339, UTC as `Z`), `Decimal` (as text), bytes (base64), pandas' `NaT` (as `null`) and
Pydantic's models. They differ in what else they take: NaN and infinity are `null` with msgspec and
orjson, and refused by the standard library; a key True is `"1"` with msgspec, `"true"` with others.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from aioproducer._util.times import is_no_time
from aioproducer.errors import ConfigError
from aioproducer.serializers.protocol import SerializationContext, serialization_error

JsonLibrary = Literal["msgspec", "orjson", "json"]
"""What writes JSON; `json` is the standard library's."""

_Hook = Callable[[Any], Any]
_BASES: Final[dict[type, _Hook]] = {str: str.__str__, int: int.__int__, float: float.__float__}
_LIBRARIES: tuple[JsonLibrary, ...] = ("msgspec", "orjson", "json")


class JsonSerializer:
    """Any JSON value as compact UTF-8; None stays null.

    Args:
        library: which to use; the first that is installed of msgspec, orjson and json when left
            out.

    Raises:
        ConfigError: the library asked for is not installed, or there is none of that name.
    """

    def __init__(self, library: JsonLibrary | None = None) -> None:
        self._encode = _encoder(library, _plain)

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        """See `Serializer`."""
        return None if data is None else self.encode(data, context)

    def encode(self, data: Any, context: SerializationContext) -> bytes:
        """Return the JSON of anything, None included (`null`)."""
        try:
            return self._encode(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise serialization_error(
                context, f"is no JSON: {type(error).__name__}: {error}"
            ) from error


def json_by_alias(library: JsonLibrary | None) -> JsonSerializer:
    """Return a serializer that writes the fields of Pydantic's models by their aliases."""
    made = JsonSerializer(library)
    made._encode = _encoder(library, partial(_plain, by_alias=True))
    return made


def _encoder(library: JsonLibrary | None, plain: _Hook) -> Callable[[Any], bytes]:
    makers = {"msgspec": _with_msgspec, "orjson": _with_orjson, "json": _with_json}
    if library is not None and library not in makers:
        raise ConfigError(f"there is no JSON library {library!r}; known are {', '.join(makers)}")
    for name in _LIBRARIES if library is None else (library,):
        try:
            return makers[name](plain)
        except ImportError as error:
            if library is not None:
                raise ConfigError(
                    f"the package {library} is needed to write JSON with it",
                    advice=f"pip install {library}",
                ) from error
    raise AssertionError("the standard library is always there")  # pragma: no cover


def _with_msgspec(plain: _Hook) -> Callable[[Any], bytes]:
    import msgspec

    return msgspec.json.Encoder(enc_hook=plain).encode


_ORJSON_VALUES: Final = ("Integer exceeds", "str is not valid", "Recursion limit")
_ORJSON_ZONES: Final = (
    "datetime.time must not have tzinfo",
    "datetime's timezone library is not supported",  # in older versions
)


def _with_orjson(plain: _Hook) -> Callable[[Any], bytes]:
    import orjson

    # Of a dataclass, orjson writes attributes that are no fields, and no fields such as `_id`.
    options = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS

    def encode(data: Any) -> bytes:
        try:
            return orjson.dumps(data, default=plain, option=options)
        except TypeError as error:  # its only one, for values that do not fit as well
            if str(error).startswith(_ORJSON_ZONES):
                slower = options | orjson.OPT_PASSTHROUGH_DATETIME
                return orjson.dumps(data, default=plain, option=slower)
            if str(error).startswith(_ORJSON_VALUES):
                raise ValueError(str(error)) from None
            raise

    return encode


def _with_json(plain: _Hook) -> Callable[[Any], bytes]:
    encoder = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=plain
    )

    def encode(data: Any) -> bytes:
        return encoder.encode(data).encode("utf-8")

    return encode


def _plain(data: Any, *, by_alias: bool = False) -> Any:
    """Convert something that a library does not support into types of JSON."""
    if isinstance(data, UUID | Decimal):
        return str(data)
    if is_no_time(data):
        return None
    if isinstance(data, datetime.datetime | datetime.time):
        text = data.isoformat()
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    if isinstance(data, datetime.date):
        return data.isoformat()
    if isinstance(data, Enum):
        return data.value
    if isinstance(data, set | frozenset | tuple):
        return list(data)
    if isinstance(data, Mapping):
        return dict(data)
    for kind in (str, int, float):
        if isinstance(data, kind):  # of a subclass, which not every library takes
            return _BASES[kind](data)
    if isinstance(data, bytes | bytearray | memoryview):
        return base64.b64encode(data).decode("ascii")
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    dump = getattr(data, "model_dump", None)
    if callable(dump):  # Pydantic's
        return dump(mode="json", by_alias=True) if by_alias else dump(mode="json")
    raise TypeError(f"{type(data).__name__} has no form in JSON")
