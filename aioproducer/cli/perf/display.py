"""The display of a performance run, and its latencies as a picture.

A display whose stream was closed goes silent; the run continues.
"""

from __future__ import annotations

import errno
import io
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.live import Live
from rich.table import Table

from aioproducer._util.paths import is_folder, replacing
from aioproducer.cli.console import FileError, err, megabytes, say
from aioproducer.cli.display import Display, Drawing
from aioproducer.cli.perf.run import Interval, PerfPlan
from aioproducer.errors import ConfigError

_PNG = b"\x89PNG\r\n\x1a\n"
_ROWS = 10
_BINS = 80
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
            **dict.fromkeys(_COLUMNS, "-"),
            **{name: f"{value:,.1f}" for name, value in interval.latencies_ms.items()},
            "failed": f"{interval.failed:,}",
        }


def perf_display_for(plan: PerfPlan, *, quiet: bool) -> PerfDisplay:
    """Return the display that fits standard error."""
    if quiet:
        return PerfDisplay(plan)
    return PerfTable(plan) if err().is_terminal else PerfLines(plan)


# -- the picture ----------------------------------------------------------------------------------


def check_picture(path: Path) -> None:
    """Find out before a run whether its histogram can be drawn."""
    if path.suffix.lower() != ".png":
        raise ConfigError(f"--histogram takes the name of a .png file, not {str(path)!r}")
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "--histogram needs the package 'matplotlib', which is not installed",
            advice="install it with: pip install matplotlib",
        )
    if not is_folder(path.parent):
        raise ConfigError(f"--histogram: there is no directory {path.parent}")
    if not _may_be_replaced(path):
        raise ConfigError(
            f"--histogram: {path} exists and is not a picture, or a link; it was left as it is",
            advice="name another file for the histogram",
        )


def _may_be_replaced(path: Path) -> bool:
    """Return whether there is no such file, or a picture that an earlier run has drawn."""
    try:
        # To open a named pipe would wait for its writer.
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            return file.read(len(_PNG)) in (b"", _PNG)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def draw_picture(
    path: Path, plan: PerfPlan, latencies_s: Sequence[float], percentiles: Mapping[str, float]
) -> None:
    """Draw how many records took how long, on a logarithmic scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(9, 5), layout="constrained"))
    axes = canvas.figure.subplots()
    latencies = [latency * 1000 for latency in latencies_s]
    axes.hist(latencies, bins=_edges(latencies), color="#4477aa")
    axes.set_xscale("log")
    axes.set_xlabel("from send() to the acknowledgement [ms]")
    axes.set_ylabel("records")
    axes.set_title(f"{len(latencies):,} latencies, {plan.size} byte records -> {plan.topic}")
    for name, latency in percentiles.items():
        axes.axvline(latency, color="#cc3311", linewidth=1, linestyle="--")
        axes.annotate(
            f"{name} {latency:,.1f}",
            (latency, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, -2),
            textcoords="offset points",
            rotation=90,
            verticalalignment="top",
        )
    picture = io.BytesIO()
    canvas.figure.savefig(picture, format="png", dpi=110)
    _replace(path, picture.getvalue())


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole, in place of a picture that may be there."""
    try:
        if not _may_be_replaced(path):
            raise FileExistsError(errno.EEXIST, "it exists and is not a picture")
        with replacing(path) as beside, beside.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise FileError(f"cannot write the histogram {path}: {error.strerror}") from error


def _edges(latencies: Sequence[float]) -> list[float]:
    """Return the edges of bins of equal width on the logarithmic scale."""
    lowest = max(min(latencies, default=1.0), 1e-3)
    highest = max(max(latencies, default=1.0), lowest * 1.1)
    step = (highest / lowest) ** (1 / _BINS)
    return [lowest * step**number for number in range(_BINS)] + [highest]
