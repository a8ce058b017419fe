"""Calls of metrics reporters, which get changes of the set of metrics every second.

Start with `MetricsReporting`; it is made only if there are reporters.

Invariants
- An exception of a reporter is logged and not raised.
- A metric is reported once until it is removed or replaced.
- After `close()` there is no timer, and no reporter is called.
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
        reporters: in the order of calls; see `aioproducer.metrics.reporters`.
        live: returns all metrics; an unchanged metric is equal to that of the call before.
        loop: the loop in which reporters are called.
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
        """Call `configure` and `init`, and start the timer."""
        self._told = self._found()
        self._tell("configure", config)
        self._tell("init", tuple(self._told.values()))
        self._look_later()

    def close(self) -> None:
        """Report remaining changes, then call `close` of the reporters."""
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
