"""Checks of arguments that many calls share: timeouts in seconds, whole numbers, texts."""

from __future__ import annotations

from collections.abc import AsyncIterable
from math import inf
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # of `typing` from 3.13 on

T = TypeVar("T")

_LONGEST_TEXT: Final = 32_767
"""Bytes of a string in Kafka's protocol."""


def timeout_of(timeout: float | None, name: str = "timeout") -> float | None:
    """Return the seconds a call may wait, or None for no bound; infinity means None."""
    if timeout is None:
        return None
    if not _number(timeout, name) >= 0:
        raise ValueError(
            f"{name} must be a number of seconds from 0, not {timeout!r}; pass None for no bound"
        )
    return None if timeout == inf else timeout


def seconds_of(seconds: float, name: str) -> float:
    """Return the seconds of a wait that always has a bound."""
    if not 0 <= _number(seconds, name) < inf:
        raise ValueError(f"{name} must be a finite number of seconds from 0, not {seconds!r}")
    return seconds


def index_of(number: SupportsIndex) -> int:
    """Return a whole number, as `operator.index` has it, but not a bool."""
    if isinstance(number, bool):
        raise TypeError(f"a bool is no number, got {number!r}")
    return index(number)


def is_of_type(value: object, kind: type[T]) -> TypeIs[T]:
    """Return whether an object's type is this one or a subclass.

    `isinstance` also takes a proxy for what it holds: it has only the `__class__` of that.
    """
    return issubclass(type(value), kind)


def is_asynchronous(items: object) -> TypeIs[AsyncIterable[Any]]:
    """Return whether `async for` reads these items."""
    # A proxy has every method, so the class of the proxied object decides.
    return issubclass(items.__class__, AsyncIterable)


def utf8_size(text: str) -> int:
    """Return how many bytes a text takes in UTF-8; -1 if half of a surrogate pair is in it."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return -1


def check_text(name: str, text: str) -> None:
    """Raise unless a text fits a string of Kafka's protocol."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    if not 0 <= utf8_size(text) <= _LONGEST_TEXT:
        raise ValueError(f"{name} must be text of at most {_LONGEST_TEXT:,} bytes in UTF-8")


def check_integer(name: str, number: int, bits: int) -> None:
    """Raise unless a number fits a signed integer of so many bits."""
    if not -1 << (bits - 1) <= index_of(number) < 1 << (bits - 1):
        raise ValueError(f"{name} must be a {bits}-bit integer")


def _number(value: float, name: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    return value
