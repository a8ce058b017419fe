"""The display of a performance run.

A display whose stream was closed goes silent; the run continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from rich.live import Live
from rich.table import Table

from aioproducer.cli.console import err, megabytes, say
from aioproducer.cli.display import Display, Drawing
from aioproducer.cli.perf.run import Interval, PerfPlan

_ROWS = 10
_COLUMNS = ("p50", "p95", "p99", "p99.9", "max")
TABLE_COLUMNS = ("seconds", "records/s", "data/s", *_COLUMNS, "failed")
_LEAST_IMPORTANT = ("data/s", "p99.9", "p95", "failed", "p50")
"""Columns that a narrow terminal is not shown, the first ones first."""
_WIDEST = 1000
"""More than the columns of a table take."""


class PerfDisplay(Display[Interval]):
    """Base of the displays of a run: shows nothing. `every_s` is the time between two calls."""

    every_s: float = float("inf")

    def __init__(self, plan: PerfPlan) -> None:
        self._plan = plan


class PerfLines(PerfDisplay):
    """A line now and then, for logs."""

    every_s: float = 5.0

    def show(self, interval: Interval, /) -> None:
        """See `Display`."""
        latencies = ", ".join(
            f"{name} {interval.latencies_ms[name]:,.1f} ms"
            for name in _COLUMNS
            if name in interval.latencies_ms
        )
        say(
            f"{interval.until_s:,.0f} s: {interval.rate:,.0f} records/s "
            f"({megabytes(interval.rate * self._plan.size)}/s), {interval.failed:,} failed, "
            f"{latencies or 'nothing acknowledged'}"
        )


class PerfTable(Drawing, PerfDisplay):
    """The last seconds as a table, on a terminal."""

    every_s: float = 1.0

    def __init__(self, plan: PerfPlan) -> None:
        self._live = Live(console=err(), auto_refresh=False, transient=True)
        super().__init__(self._live)
        self._plan = plan
        self._intervals: deque[Interval] = deque(maxlen=_ROWS)

    def show(self, interval: Interval, /) -> None:
        """See `Display`."""
        self._intervals.append(interval)
        self._guarded(lambda: self._live.update(self.table(), refresh=True))

    def table(self) -> Table:
        """Return the latest seconds, a row each, in the columns that the terminal has room for."""
        console = self._live.console
        table, options = self._table(()), console.options.update_width(_WIDEST)
        for count in range(1, len(_LEAST_IMPORTANT) + 1):
            if console.measure(table, options=options).maximum <= console.width:
                break
            table = self._table(_LEAST_IMPORTANT[:count])
        return table

    def _table(self, hidden: Sequence[str]) -> Table:
        title = f"{self._plan.size} byte records -> {self._plan.topic}; latencies in ms"
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        shown = [each for each in TABLE_COLUMNS if each not in hidden]
        for column in shown:
            table.add_column(column, justify="right")
        for row in map(self._row, self._intervals):
            table.add_row(*(row[column] for column in shown))
        return table

    def _row(self, interval: Interval) -> dict[str, str]:
        return {
            "seconds": f"{interval.until_s:,.0f}",
            "records/s": f"{interval.rate:,.0f}",
            "data/s": f"{megabytes(interval.rate * self._plan.size)}/s",
            **{name: _ms(interval.latencies_ms, name) for name in _COLUMNS},
            "failed": f"{interval.failed:,}",
        }


def perf_display_for(plan: PerfPlan, *, quiet: bool) -> PerfDisplay:
    """Return the display that fits standard error."""
    if quiet:
        return PerfDisplay(plan)
    return PerfTable(plan) if err().is_terminal else PerfLines(plan)


def _ms(latencies: Mapping[str, float], name: str) -> str:
    return f"{latencies[name]:,.1f}" if name in latencies else "-"
