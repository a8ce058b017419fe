"""The progress of a load: a bar on a terminal, a line now and then elsewhere.

A display whose stream was closed goes silent; the load continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar

from rich.live import Live
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from aioproducer.cli.console import err, say
from aioproducer.loader import Progress

_LINE_EVERY_S = 1.0
_Moment = TypeVar("_Moment")


class Display(Generic[_Moment]):
    """Base of the displays: shows nothing. Use it as a context, and call `show` within."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return

    def show(self, moment: _Moment, /) -> None:
        """Show the progress made so far."""


class LineDisplay(Display[Progress]):
    """One line per second, for logs."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._next_at = _LINE_EVERY_S

    def show(self, progress: Progress, /) -> None:
        """See `Display`."""
        if progress.elapsed_s < self._next_at:
            return
        self._next_at = progress.elapsed_s + _LINE_EVERY_S
        done = "" if progress.fraction is None else f"{progress.fraction:4.0%} read, "
        say(f"{self._title}: {done}{_counts(progress)}, ETA {eta(progress)}")


class Drawing:
    """Something that rich draws; nothing more is drawn once standard error is closed.

    It is drawn when figures are shown, never from another thread.
    """

    def __init__(self, drawn: Bar | Live) -> None:
        self._drawn = drawn
        self._is_read = True

    def __enter__(self) -> Self:
        self._guarded(self._drawn.start)
        return self

    def __exit__(self, *exc: object) -> None:
        self._guarded(self._drawn.stop)

    def _guarded(self, draw: Callable[[], None]) -> None:
        if self._is_read:
            try:
                draw()
            except OSError:
                self._is_read = False


_ROOM_FOR_THE_NAME = 100
"""Columns of a terminal that has room for the name of the input beside the figures."""


class BarDisplay(Drawing, Display[Progress]):
    """A bar with rate, ETA and counts."""

    def __init__(self, title: str) -> None:
        console = err()
        name = TextColumn("{task.description}", markup=False)
        self._bar = Bar(
            *([name] if console.width >= _ROOM_FOR_THE_NAME else []),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[counts]}", markup=False),
            TextColumn("ETA {task.fields[eta]}", markup=False),
            console=console,
            auto_refresh=False,
        )
        super().__init__(self._bar)
        self._task = self._bar.add_task(title, total=None, counts="", eta="-")

    def show(self, progress: Progress, /) -> None:
        """See `Display`."""
        self._bar.update(
            self._task,
            total=1.0 if progress.fraction is not None else None,
            completed=progress.fraction or 0.0,
            counts=_counts(progress),
            eta=eta(progress),
        )
        self._guarded(self._bar.refresh)


def display_for(title: str, *, quiet: bool) -> Display[Progress]:
    """Return the display that fits standard error."""
    if quiet:
        return Display()
    return BarDisplay(title) if err().is_terminal else LineDisplay(title)


def eta(progress: Progress) -> str:
    """Return the remaining time, at the rate so far."""
    fraction = progress.fraction
    if not fraction or progress.elapsed_s <= 0:
        return "-"
    left_s = round(progress.elapsed_s / fraction - progress.elapsed_s)
    minutes, seconds = divmod(max(0, left_s), 60)
    return f"{minutes}:{seconds:02d}"


def _counts(progress: Progress) -> str:
    parts = [
        f"{progress.acknowledged:,} acknowledged",
        f"{progress.failed:,} failed",
        f"{progress.rejected:,} rejected" if progress.rejected else "",
        f"{progress.rows_per_second:,.0f} rows/s",
    ]
    return ", ".join(filter(None, parts))
