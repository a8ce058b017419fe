"""Tells metrics reporters of the metrics there are, and looks every second what has changed.

Owns: what was told, the guard around each call, the timer. Must not know: how anything is counted;
who the reporters are.

Invariants: nothing a reporter raises reaches anybody: it is logged; a metric is told of once until
it goes or another takes its place; after `close()` there is no timer and nobody is called. Without
reporters nothing here is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from aioproducer._util import log

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.metrics import LiveMetric

_LOOK_S = 1.0
_log = log.get("runtime")


class MetricsReporting:
    """The metrics reporters of one producer.

    Args:
        reporters: in the order they are told; see `aioproducer.metrics.reporters`.
        live: every metric there is, comparable with what it was before.
        loop: where reporters are called.
    """

    def __init__(
        self,
        reporters: Sequence[object],
        live: Callable[[], Iterable[LiveMetric]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._reporters = reporters
        self._live = live
        self._loop = loop
        self._told: dict[object, LiveMetric] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)

    def start(self, config: ProducerConfig) -> None:
        """The producer starts, with these options."""
        self._told = self._found()
        self._tell("configure", config)
        self._tell("init", tuple(self._told.values()))
        self._look_later()

    def close(self) -> None:
        """The producer is closed: tells what is left to tell, then the end."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._look()
        self._tell("close")

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._look_later()
        self._look()

    def _look(self) -> None:
        before, self._told = self._told, self._found()
        for identity, metric in before.items():
            if identity not in self._told:
                self._tell("metric_removal", metric)
        for identity, metric in self._told.items():
            if before.get(identity) != metric:
                self._tell("metric_change", metric)

    def _found(self) -> dict[object, LiveMetric]:
        return {metric.identity: metric for metric in self._live()}

    def _tell(self, name: str, *arguments: object) -> None:
        for reporter in self._reporters:
            method = getattr(reporter, name, None)
            if method is None:
                continue
            try:
                method(*arguments)
            except Exception as error:
                kind = type(reporter).__qualname__
                self.warnings.warning(
                    self._loop.time(), kind, name, "reporter %s.%s raised %r", kind, name, error
                )
