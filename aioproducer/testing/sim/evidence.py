"""Facts about a run that nobody tells: what was logged, what is left on the loop, when it was calm.

Owns: how each is found out. Must not know: what they prove.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from aioproducer.testing.sim.loop import VirtualLoop
from aioproducer.testing.sim.network import SimNetwork


@dataclass
class LogWatch(logging.Handler):
    """Collects exceptions that the package logs."""

    reports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.ERROR)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what carries an exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.reports.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def leftovers(loop: VirtualLoop, network: SimNetwork) -> list[str]:
    """What the producer has on the loop; everything else there is known by its module."""
    current = asyncio.current_task()
    left = [f"task {task.get_name()}" for task in asyncio.all_tasks() if task is not current]
    for connection in network.connections:
        transport = connection.transport
        if transport is not None and not transport.is_lost:
            left.append(f"connection {connection}")
    for timer in loop.pending_timers():
        owner = _owner(timer)
        if owner is not None and not owner.startswith("aioproducer.testing."):
            left.append(f"timer of {owner} in {timer.when() - loop.time():.3f} s")
    return sorted(left)


def calm_times(
    disturbances: Sequence[tuple[float, float]], healed_at: float, ended_at: float
) -> list[tuple[float, float]]:
    """The times between the disturbances, and after the healing."""
    calm, quiet_since = [], 0.0
    for start, end in sorted(disturbances):
        if start > quiet_since:
            calm.append((quiet_since, start))
        quiet_since = max(quiet_since, min(end, healed_at))
    return [*calm, (quiet_since, ended_at)]


def _owner(timer: asyncio.TimerHandle) -> str | None:
    """The module a timer belongs to."""
    callback = timer._callback  # type: ignore[attr-defined]
    target = getattr(callback, "__self__", None)
    if target is not None and not isinstance(target, asyncio.Future):
        return type(target).__module__
    return getattr(callback, "__module__", None)
