"""Recording of a producer's history for the live page, from the application's start to its end.

A recording adds one point per second to a `History`, with or without viewers. A point is read from
a few counters and takes microseconds, however many records are pending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioproducer.starlette.live_stats import History

if TYPE_CHECKING:
    from aioproducer.client.producer import Producer

EVERY_S = 1.0


class Recording:
    """The history of one producer; it uses a timer of the running loop."""

    def __init__(self) -> None:
        self.history: History = History()
        self._producer: Producer | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, producer: Producer) -> None:
        """Record this producer until `stop` or its end; no effect if that is already so."""
        if producer is self._producer:
            return
        self.stop()
        self._producer, self.history = producer, History()
        self._record(producer)

    def stop(self) -> None:
        """End the recording; the history is kept until the next start."""
        self._producer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _record(self, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        if (engine := producer._engine) is not None:
            stats, pool = engine.stats, engine.pool
            used = (pool.total - pool.available) / pool.total if pool.total else 0.0
            times = stats.delivery_times.snapshot()
            self.history.add(loop.time(), stats.records_acknowledged, times, used)
        if producer._state_name == "closed":
            self.stop()
        else:
            self._timer = loop.call_later(EVERY_S, self._record, producer)


@contextmanager
def recorded(app: Any, producer: Producer) -> Iterator[None]:
    """Record the producer for the live pages mounted in an application, within the block."""
    found = list(_recordings(getattr(app, "routes", ())))
    for each in found:
        each.start(producer)
    try:
        yield
    finally:
        for each in found:
            each.stop()


def _recordings(routes: Iterable[Any]) -> Iterator[Recording]:
    for route in routes:
        recording = getattr(getattr(route, "app", None), "_recording", None)
        if isinstance(recording, Recording):
            yield recording
        yield from _recordings(getattr(route, "routes", None) or ())
