"""Structured values out of arbitrary bytes, for targets whose input is more than one blob.

Owns: `Source`. Invariant: any bytes will do; a source that has run dry gives zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Source:
    """Takes values off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, count: int) -> bytes:
        """At most so many bytes."""
        start = self._position
        self._position = min(start + count, len(self._data))
        return self._data[start : self._position]

    def rest(self) -> bytes:
        return self.take(self.left)

    def number(self, size: int, *, signed: bool = False) -> int:
        """A big-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size).ljust(size, b"\0"), "big", signed=signed)

    def blob(self, size_bytes: int = 1) -> bytes:
        """Bytes after their length."""
        return self.take(self.number(size_bytes))

    def one_of(self, choices: Sequence[_T]) -> _T:
        return choices[self.number(1) % len(choices)]


def blob(data: bytes, size_bytes: int = 1) -> bytes:
    """The input that `Source.blob` reads."""
    return len(data).to_bytes(size_bytes, "big") + data
