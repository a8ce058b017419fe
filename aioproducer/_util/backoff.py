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
"""Growth stops here, long after any maximum is reached; without it, floats overflow."""


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """`initial_s * multiplier ** attempt`, spread by ±`jitter`, at most `maximum_s`."""

    initial_s: float
    maximum_s: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.initial_s < 0 or self.maximum_s < 0:
            raise ValueError("backoff delays must not be negative")
        if self.multiplier < 1:
            raise ValueError("the backoff multiplier must be at least 1")
        if not 0 <= self.jitter < 1:
            raise ValueError("the backoff jitter must be in [0, 1)")

    def delay(self, attempt: int, rng: Random) -> float:
        """Return the seconds to wait after failure number `attempt`, counted from 0."""
        exponent = min(max(attempt, 0), _LARGEST_EXPONENT)
        plain = min(self.initial_s * self.multiplier**exponent, self.maximum_s)
        if not self.jitter:
            return plain
        return min(plain * rng.uniform(1 - self.jitter, 1 + self.jitter), self.maximum_s)
