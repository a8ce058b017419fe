"""The errors both builders raise when a record cannot be encoded, and the rare conversions.

Nothing here runs for a record made of plain `bytes`.

Invariant: an object counts by its type, not by its `__class__`, which proxies such as Django's lazy
objects take from what they hold: native code reads the memory of what passes here as `bytes`.
"""

from __future__ import annotations

from aioproducer._util.arguments import is_of_type

MAX_TIMESTAMP_MS = 2**63 - 1

Payload = bytes | bytearray | memoryview
"""What a key or a value may be; it is copied when it is appended."""


def payload_bytes(name: str, payload: object) -> bytes:
    """Copy a key or value that is not `bytes` into `bytes`, or say why it cannot be sent."""
    if is_of_type(payload, bytes):
        return payload
    if is_of_type(payload, bytearray) or is_of_type(payload, memoryview):
        return bytes(payload)
    advice = (
        f"encode it first ({name}.encode()) or give the producer a {name}_serializer"
        if is_of_type(payload, str)
        else f"serialize it first or give the producer a {name}_serializer"
    )
    raise TypeError(
        f"{name} must be bytes, bytearray, memoryview or None, not {_type(payload)}; {advice}"
    )


def headers_error(headers: object) -> TypeError:
    """Explain what is wrong with headers that are not a tuple of (str, bytes or None) tuples."""
    if not is_of_type(headers, tuple):
        return TypeError(f"headers must be a tuple of (name, value) pairs, not {_type(headers)}")
    for header in headers:
        if not is_of_type(header, tuple) or len(header) != 2:
            return TypeError(f"a header must be a (name, value) tuple, not {_type(header)}")
        name, value = header
        if not is_of_type(name, str):
            return TypeError(f"a header's name must be str, not {_type(name)}")
        if value is not None and not is_of_type(value, bytes):
            return TypeError(
                f"the value of header {name!r} must be bytes or None, not {_type(value)}"
            )
    return TypeError("headers cannot be encoded")


def header_name_error(name: str) -> ValueError:
    """Explain a header's name that has no form in UTF-8."""
    return ValueError(
        f"the name of header {name!r} has no form in UTF-8: half of a pair of surrogates"
    )


def timestamp_error(timestamp_ms: object) -> TypeError | ValueError:
    """Explain a timestamp that is not an int, or that Kafka cannot store."""
    if not isinstance(timestamp_ms, int):
        return TypeError(
            f"timestamp_ms must be an int (milliseconds since the epoch), not {_type(timestamp_ms)}"
        )
    return ValueError(f"timestamp_ms must be within 0..2**63-1, not {timestamp_ms}")


def buffer_error(buffer: object) -> TypeError:
    """Explain a builder's buffer of the wrong type."""
    return TypeError(f"the buffer must be a bytearray, not {_type(buffer)}")


def released_error() -> ValueError:
    """Explain that the records of a builder are gone."""
    return ValueError("the builder has let go of its buffer")


def moving_error() -> ValueError:
    """Explain a move that a builder cannot make."""
    return ValueError("only an open builder can go on, and only in a buffer that is no smaller")


def _type(value: object) -> str:
    return type(value).__name__
