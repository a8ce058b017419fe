"""The events of a run, line by line, and its fingerprint.

Two runs are the same if their digests are equal; nothing that depends on addresses, hashes or the
real clock may enter a line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    """Lines with virtual times."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        """Note one event."""
        self.lines.append(f"{self._now():10.4f} {line}")

    def times_of(self, text: str) -> list[float]:
        """Return the times of the lines with this text."""
        return [float(line.split(maxsplit=1)[0]) for line in self.lines if text in line]

    def digest(self) -> str:
        """Return a fingerprint of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
