"""Single values as Kafka wants them: bytes, JSON, milliseconds, partition numbers.

Anything that has no such form raises `ValueError` with a reason fit for a dead-letter file.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal
from uuid import UUID

from aioproducer._util.times import is_no_time

TimestampUnit = Literal["s", "ms", "us", "ns"]
"""What a number in a timestamp column counts since 1970-01-01 UTC."""

_PER_SECOND: Final[Mapping[str, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MAX_PARTITION = 2**31 - 1
_MAX_MILLIS = 2**63 - 1
_SURE_DIGITS = 15
"""Of these a float keeps each."""
_MAX_EXPONENT = 30
"""Of decimals that become whole numbers: `1E+999999` would take a minute and megabytes."""


class WrittenNumber(float):
    """A number of JSON that no float equals, such as `1e400`; `text` is how it is written."""

    __slots__ = ("text",)
    text: str


def json_float(text: str) -> float:
    """Convert a number of JSON with a point or an exponent."""
    number = float(text)
    if len(text) <= _SURE_DIGITS and "e" not in text and "E" not in text:
        return number
    try:
        if Decimal(repr(number)) == Decimal(text):
            return number
    except InvalidOperation:  # an exponent that a decimal has not
        pass
    written = WrittenNumber(number)
    written.text = text
    return written


def to_bytes(value: Any) -> bytes | None:
    """Return one value as bytes: text as UTF-8, bytes and None unchanged, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, WrittenNumber):
        return value.text.encode()
    if isinstance(value, str):
        return encode_text(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value).encode()  # as Java and Spark write it; JSON's null is another key
    if is_no_time(value):
        return None
    return encode_text(_plain(value) if isinstance(value, _PLAIN) else to_json(value))


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        # A lone surrogate is how the CSV reader hands on a byte that is no text.
        raise ValueError("not valid UTF-8") from None


def to_json(value: Any) -> str:
    """Convert a value to compact JSON; NaN and infinities become null, keys become texts."""
    try:
        return _encode(value)
    except (TypeError, ValueError):
        return _encode(_with_json_parts(value))


def timestamp_ms(value: Any, unit: TimestampUnit) -> int | None:
    """Return milliseconds since 1970-01-01 UTC of a number, an ISO 8601 text or a date, or None.

    A time without an offset is UTC; a text of digits alone is a number.
    """
    if value is None or value == "" or is_no_time(value):
        return None
    if isinstance(value, str):
        value = _parsed_time(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        millis = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        millis = _scaled(value, unit)
    else:
        raise ValueError(f"{_shown(value)} is no timestamp")
    if millis < 0:
        raise ValueError(f"{_shown(value)} is before 1970, which Kafka cannot store")
    if millis > _MAX_MILLIS:
        raise ValueError(f"{_shown(value)} is later than Kafka can store")
    return millis


def partition_number(value: Any) -> int | None:
    """Return an explicit partition; None or empty for none."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, str):
            value = number_text(value)
        number = int(_bounded(value) if isinstance(value, Decimal) else value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{_shown(value)} is no partition number") from None
    is_whole = number == value or not isinstance(value, float | Decimal)
    if not 0 <= number <= _MAX_PARTITION or not is_whole:
        raise ValueError(f"{_shown(value)} is no partition number")
    return number


def number_text(text: str) -> str:
    """Return a text to be read as a number; refuse `1_000`, which only Python reads."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{_shown(text)} is no number")
    return text


def _parsed_time(text: str) -> datetime | Decimal:
    # Digits alone are a number: 20130101 would otherwise be a date and 1357034400 none.
    try:
        return Decimal(number_text(text))
    except (ArithmeticError, ValueError):
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is no timestamp") from None


def _scaled(value: int | float | Decimal, unit: TimestampUnit) -> int:
    try:
        # The digits that it is written with: the float 1.001 is a little less than 1.001.
        exact = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
        number = _bounded(exact)
    except ValueError:
        raise ValueError(f"{_shown(value)} is no timestamp") from None
    return math.floor(number * 1000 / _PER_SECOND[unit])


def _bounded(number: Decimal) -> Decimal:
    """Return a decimal that has a whole part of few digits; raise `ValueError` for others."""
    if not number.is_finite() or number.adjusted() > _MAX_EXPONENT:
        raise ValueError("it is no number, or too large")
    return number


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_PLAIN = (datetime, date, time, Decimal, UUID, timedelta)


def _plain(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return repr(value.total_seconds()) if isinstance(value, timedelta) else str(value)


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(data).decode("ascii")
    if isinstance(value, _PLAIN):
        return None if is_no_time(value) else _plain(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(f"a value of type {type(value).__name__} has no JSON form")


def _with_json_parts(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        if isinstance(value, WrittenNumber):
            raise ValueError(f"{_shown(value.text)} is too large a number")
        return None
    if isinstance(value, Mapping):
        return {_key(name): _with_json_parts(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_json_parts(inner) for inner in value]
    return value


def _key(name: Any) -> Any:
    """Return a key of a mapping as JSON's encoder takes it, such as the text of a date."""
    if isinstance(name, float) and not math.isfinite(name):
        return str(name)
    if isinstance(name, (bytes, *_PLAIN)):
        return _json_default(name)
    if name is None or isinstance(name, str | int | float):
        return name
    raise ValueError(f"a key of type {type(name).__name__} has no JSON form")


_encode: Final[Callable[[Any], str]] = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_default
).encode
