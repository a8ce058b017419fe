"""The disturbances of the network that are in force now, and how often each was felt.

Invariant: a condition counts a hit only when it changed what would have happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Direction(Enum):
    """The direction of bytes."""

    TO_BROKER = "to broker"
    TO_CLIENT = "to client"


class Effect(Enum):
    """The effect of a condition."""

    HELD = "held"
    SLOW = "slow"
    REFUSING = "refusing"
    SLOW_ACCEPT = "slow accept"
    NO_NAME = "no name"
    NARROW = "narrow"


@dataclass(slots=True, eq=False)
class Condition:
    """A disturbance around one broker.

    Attributes:
        effect: What it does.
        node_id: The broker; None for every broker.
        until: When it ends.
        seconds: How much, for what is measured in time.
        bytes_per_s: How much passes, for what narrows the link.
        direction: The direction it affects; None for both.
        hits: How often it was felt.
    """

    effect: Effect
    node_id: int | None
    until: float
    seconds: float = 0.0
    direction: Direction | None = None
    bytes_per_s: float = 0.0
    hits: int = field(default=0, init=False)


class Weather:
    """All conditions in force."""

    def __init__(self) -> None:
        self.fragmented = 0
        self._conditions: list[Condition] = []

    def add(self, condition: Condition) -> Condition:
        """Put a condition into force."""
        self._conditions.append(condition)
        return condition

    def clear(self) -> None:
        """End everything."""
        self._conditions.clear()

    def is_held(self, node_id: int, direction: Direction, now: float) -> bool:
        """Return whether bytes are held back for now."""
        return self._feel(Effect.HELD, node_id, now, direction) is not None

    def extra_latency(self, node_id: int, now: float) -> float:
        """Return seconds that bytes take longer than usual."""
        return self._seconds(Effect.SLOW, node_id, now)

    def accept_delay(self, node_id: int, now: float) -> float:
        """Return seconds until a connection is accepted."""
        return self._seconds(Effect.SLOW_ACCEPT, node_id, now)

    def bytes_per_s(self, node_id: int, now: float) -> float | None:
        """Return how many bytes pass to the broker; None for no limit."""
        found = self._feel(Effect.NARROW, node_id, now)
        return None if found is None else found.bytes_per_s

    def refuses(self, node_id: int, now: float) -> bool:
        """Return whether connections are refused."""
        return self._feel(Effect.REFUSING, node_id, now) is not None

    def name_is_unknown(self, node_id: int, now: float) -> bool:
        """Return whether the broker's name does not resolve."""
        return self._feel(Effect.NO_NAME, node_id, now) is not None

    def _seconds(self, effect: Effect, node_id: int, now: float) -> float:
        found = self._feel(effect, node_id, now)
        return 0.0 if found is None else found.seconds

    def _feel(
        self, effect: Effect, node_id: int, now: float, direction: Direction | None = None
    ) -> Condition | None:
        for condition in self._conditions:
            if (
                condition.effect is effect
                and condition.node_id in {None, node_id}
                and condition.direction in {None, direction}
                and now < condition.until
            ):
                condition.hits += 1
                return condition
        return None
