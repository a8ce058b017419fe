"""Calls of metrics reporters, which get changes of the set of metrics every second.

Start with `MetricsReporting`; it is made only if there are reporters.

Invariants
- An exception of a reporter is logged and not raised.
- A metric is reported once until it is removed or replaced.
- After `close()` there is no timer, and no reporter is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aioproducer._util import log
from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import HOOK_ERRORS

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.metrics import LiveMetric
    from aioproducer.runtime.observability.registry import Source

_CHECK_S = 1.0
_log = log.get("runtime")


class MetricsReporting:
    """The metrics reporters of one producer.

    `sources` returns what has metrics, with an equal subject while its metrics are the same:
    thousands of topics are compared each second without an object for each of their metrics.
    """

    def __init__(
        self,
        reporters: Sequence[object],
        sources: Callable[[], Iterable[Source]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._reporters = reporters
        self._sources = sources
        self._loop = loop
        self._reported: dict[object, Source] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)

    def start(self, config: ProducerConfig) -> None:
        """Call `configure` and `init`, and start the timer."""
        self._reported = self._found()
        self._report("configure", config)
        self._report("init", tuple(_metrics_of(self._reported.values())))
        self._timer = self._loop.call_later(_CHECK_S, self._check_again)

    def close(self) -> None:
        """Report remaining changes, then call `close` of the reporters."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._check()
        self._report("close")

    def _check_again(self) -> None:
        self._timer = self._loop.call_later(_CHECK_S, self._check_again)
        self._check()

    def _check(self) -> None:
        before, self._reported = self._reported, self._found()
        removed = [source for identity, source in before.items() if identity not in self._reported]
        for metric in _metrics_of(removed):
            self._report("metric_removal", metric)
        changed = [
            source
            for identity, source in self._reported.items()
            if identity not in before or before[identity].subject != source.subject
        ]
        for metric in _metrics_of(changed):
            self._report("metric_change", metric)

    def _found(self) -> dict[object, Source]:
        return {source.identity: source for source in self._sources()}

    def _report(self, name: str, *arguments: object) -> None:
        for reporter in self._reporters:
            method = getattr(reporter, name, None)
            if method is None:
                continue
            try:
                method(*arguments)
            except HOOK_ERRORS as error:
                kind, text = type(reporter).__qualname__, repr_of(error)
                self.warnings.warning(
                    self._loop.time(), kind, name, "reporter %s.%s raised %s", kind, name, text
                )


def _metrics_of(sources: Iterable[Source]) -> Iterator[LiveMetric]:
    for source in sources:
        yield from source.live()
