"""One direction of a connection: an ordered queue of what is under way.

Invariant: everything arrives in the order it was sent, later than it was sent, unless it is cut.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aioproducer.testing.world.weather import Direction

_PIECE_GAP_S = 0.0005
_RECHECK_S = 0.25


class Signal(Enum):
    """The events that a pipe carries besides bytes."""

    END = "end"
    RESET = "reset"


class Quiet(NamedTuple):
    """Goes with a response that throttles the producer for so many seconds."""

    seconds: float


Content = bytes | Signal | Quiet


class Route(Protocol):
    """The network between the producer and its brokers."""

    loop: asyncio.AbstractEventLoop

    def is_held(self, node_id: int, direction: Direction) -> bool:
        """Return whether bytes stay under way for now."""

    def latency(self, node_id: int, direction: Direction) -> float:
        """Return the delay of the next bytes."""

    def transmission_s(self, node_id: int, direction: Direction, size: int) -> float:
        """Return the time until so many bytes are on their way."""

    def pieces(self, data: bytes) -> Sequence[Content]:
        """Return the data as it will arrive."""


class Pipe:
    """One direction of a connection: an ordered line of what is under way."""

    def __init__(
        self,
        network: Route,
        node_id: int,
        direction: Direction,
        arrive: Callable[[Content], None],
    ) -> None:
        self.under_way: int = 0
        self._network = network
        self._node_id = node_id
        self._direction = direction
        self._arrive = arrive
        self._line: deque[tuple[float, Content]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._last_due = 0.0

    def send(self, content: Content) -> None:
        """Put something into the line, bytes maybe in several pieces."""
        now = self._network.loop.time()
        due = self._last_due
        if not isinstance(content, Quiet):  # which comes with the bytes before it
            due = max(due, now + self._network.latency(self._node_id, self._direction))
        if isinstance(content, bytes):
            due += self._network.transmission_s(self._node_id, self._direction, len(content))
        pieces = self._network.pieces(content) if isinstance(content, bytes) else [content]
        for piece in pieces:
            self._line.append((due, piece))
            self.under_way += len(piece) if isinstance(piece, bytes) else 0
            self._last_due = due
            due += _PIECE_GAP_S
        self._plan()

    def cut(self) -> None:
        """Drop what is under way."""
        self._line.clear()
        self.under_way = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reset(self) -> None:
        """Drop what is under way and signal that to the other end, as soon as it can receive."""
        self.cut()
        self.send(Signal.RESET)

    def pause(self) -> None:
        """Hold back what arrives: the receiver takes no more for now."""
        self._paused = True

    def resume(self) -> None:
        """Deliver again."""
        self._paused = False
        self._plan()

    def _plan(self) -> None:
        if self._timer is None and self._line and not self._paused:
            self._timer = self._network.loop.call_at(self._line[0][0], self._pump)

    def _pump(self) -> None:
        self._timer = None
        network = self._network
        now = network.loop.time()
        if network.is_held(self._node_id, self._direction):
            self._timer = network.loop.call_later(_RECHECK_S, self._pump)
            return
        while self._line and self._line[0][0] <= now and not self._paused:
            _, piece = self._line.popleft()
            self.under_way -= len(piece) if isinstance(piece, bytes) else 0
            self._arrive(piece)
        self._plan()
