"""Exponential backoff with jitter (KIP-144, KIP-580).

Invariant: a delay is never above `maximum_s`; a maximum below the initial delay makes the maximum a
constant delay, as `retry.backoff.max.ms` is documented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_LARGEST_EXPONENT = 64
"""Growth stops here, long after any maximum is reached: larger powers of 2 overflow a float."""


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """`initial_s * 2 ** attempt`, spread by ±`jitter`, at most `maximum_s`."""

    initial_s: float
    maximum_s: float
    jitter: float = 0.2

    def delay(self, attempt: int, rng: Random) -> float:
        """Return the seconds to wait after failure number `attempt`, counted from 0."""
        exponent = min(max(attempt, 0), _LARGEST_EXPONENT)
        plain = min(self.initial_s * 2.0**exponent, self.maximum_s)
        if not self.jitter:
            return plain
        return min(plain * rng.uniform(1 - self.jitter, 1 + self.jitter), self.maximum_s)
