"""What some of the runs have much of, besides their schedule.

Owns: faults that do harm at rare moments only, how much of them makes such a moment likely, and the
options under which it is one. Must not know: what the faults do.

Invariant: a theme is drawn from a source of chance of its own; a run without one is not changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aioproducer.testing.sim.faults import Fault, Shape
from aioproducer.testing.sim.faults.answers import MixedErrors
from aioproducer.testing.sim.faults.brokers import DeposedLeader

_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Theme:
    """One subject.

    Attributes:
        draw: Draws one of its faults.
        count: How many there are.
        options: Options of the producer in place of those drawn.
    """

    draw: Callable[[random.Random, float, Shape], Fault]
    count: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def faults(self, rng: random.Random, shape: Shape, start: float, end: float) -> list[Fault]:
        """Its faults, at any time between two."""
        return [self.draw(rng, round(rng.uniform(start, end), 3), shape) for _ in range(self.count)]


_ONE_AT_A_TIME = {
    "enable_idempotence": False,
    "max_in_flight_requests_per_connection": 1,
    "metadata_max_age_ms": 300,
}
"""The order depends on nothing but waiting, and a new leader is known before the old one's fate."""

DOUBTS = Theme(MixedErrors.draw_doubt, 16)
DEPOSITIONS = Theme(DeposedLeader.draw, 6, _ONE_AT_A_TIME)


def draw_theme(rng: random.Random) -> Theme | None:
    """A theme, or None for a run like most."""
    return rng.choice((DOUBTS, DEPOSITIONS)) if rng.random() < _SHARE else None
