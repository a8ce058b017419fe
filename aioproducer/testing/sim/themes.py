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

from aioproducer.testing.sim.faults.answers import MixedErrors
from aioproducer.testing.sim.faults.brokers import DeposedLeader
from aioproducer.testing.sim.faults.moments import HeldEnd, OvertakenRenewal, PositionsRefused
from aioproducer.testing.sim.transactions.plan import Plan
from aioproducer.testing.world.faults import Fault, Shape

_SHARE = 0.3
_SHARE_OF_TRANSACTIONAL = 0.25
_SHARE_OF_READERS = 0.4
"""Of the themes of runs in which somebody reads, so many are about positions."""


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

_IMPATIENT = {"max_block_ms": 1500}
"""A user who waits no longer for positions ends the transaction, which has to wait for them."""

LATE_ENDS = Theme(HeldEnd.draw, 8)
OVERTAKINGS = Theme(OvertakenRenewal.draw, 8)
POSITIONS = Theme(PositionsRefused.draw, 8, _IMPATIENT)


def draw_theme(rng: random.Random) -> Theme | None:
    """A theme of a run without transactions, or None for a run like most."""
    return rng.choice((DOUBTS, DEPOSITIONS)) if rng.random() < _SHARE else None


def draw_transactional_theme(rng: random.Random, plan: Plan) -> Theme | None:
    """A theme of a transactional run, or None for a run like most."""
    if rng.random() >= _SHARE_OF_TRANSACTIONAL:
        return None
    reads = any(seat.reads is not None for seat in plan.seats)
    if reads and rng.random() < _SHARE_OF_READERS:
        return POSITIONS
    return rng.choice((LATE_ENDS, OVERTAKINGS))
