"""Logging: one logger per layer, and a limit for lines that a broken cluster repeats.

Without any configuration Python writes warnings and errors to standard error.

Invariants: no record's key, value or headers reaches a logger; nothing is logged per record; a line
is printable and bounded, whatever names a broker has sent; an exception of a filter or handler does
not reach the caller. The clock is the caller's.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from aioproducer._util.printable import printable
from aioproducer._util.tasks import HOOK_ERRORS

Layer = Literal["net", "core", "runtime", "producer", "loader", "spark", "starlette", "testing"]
"""The layers that have a logger, `aioproducer.<layer>` each."""

FIRST_INTERVAL_S: Final = 1.0
LONGEST_INTERVAL_S: Final = 60.0
_MAX_CAUSES: Final = 10_000
"""As many as a cluster may have brokers: with more causes than this, no line is left out."""
_LONGEST_LINE: Final = 4000
_LEFT_OUT: Final = "%d line(s) like this were not logged, the last one %.0f s ago{}: "


def get(layer: Layer) -> logging.Logger:
    """Return the logger of one layer."""
    logger = logging.getLogger(f"aioproducer.{layer}")
    logger.addFilter(_make_printable)  # adding it again changes nothing
    logger.handle = partial(_handle, logger)  # type: ignore[method-assign]
    return logger


_here: Final = threading.local()


def never_wait_for_handlers() -> None:
    """Let this thread's lines not wait for a handler of another thread, which may wait for it."""
    _here.never_waits = True


def _handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Call filters and handlers; an exception of one, which would end a task here, is printed."""
    try:
        with ExitStack() as held:
            if getattr(_here, "never_waits", False) and not _hold_handlers(logger, held):
                threading.Thread(target=_handle, args=(logger, record), daemon=True).start()
            else:
                type(logger).handle(logger, record)
    except HOOK_ERRORS:
        with suppress(Exception):  # standard error may be closed
            logging.Handler().handleError(record)


def _hold_handlers(logger: logging.Logger | None, held: ExitStack) -> bool:
    """Take the locks of a logger's handlers; return whether none is another thread's now."""
    while logger is not None:
        for handler in logger.handlers:
            if handler.lock is not None:
                if not handler.lock.acquire(False):  # by place: locks name it differently
                    return False
                held.callback(handler.lock.release)
        logger = logger.parent if logger.propagate else None
    return True


def _make_printable(record: logging.LogRecord) -> bool:
    """Escape what is not printable in a record's message, and shorten what is too long."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            printable(each) if isinstance(each, str) else each for each in record.args
        )
    text = record.getMessage()
    shown = printable(text, _LONGEST_LINE)
    if shown != text:
        record.msg, record.args = shown, ()
    return True


@dataclass(slots=True, eq=False)
class _Repeated:
    """A node and a cause about which there was a line."""

    began_at: float
    """When the trouble began that the last line is about."""
    written_at: float
    """When the last line was written."""
    seen_at: float
    """When the last one was written or left out."""
    interval_s: float = FIRST_INTERVAL_S
    """For how long after the last line others are left out."""
    recovered_at: float | None = None
    """When the trouble ended; None while it lasts."""
    is_reported: bool = True
    """Whether there is a line about the trouble since it began."""
    left_out: int = 0
    """How many lines were, since the last one."""
    line: tuple[str, tuple[object, ...]] = ("", ())
    """The last one that was left out, with its arguments."""

    def is_over(self, now: float) -> bool:
        """Return whether to log the next one: none was seen, or all was well, for long enough."""
        if self.recovered_at is not None and now - self.recovered_at >= 2 * self.interval_s:
            return True
        return now - self.seen_at >= 2 * LONGEST_INTERVAL_S


class RateLimitedLog:
    """Warnings, or lines of another level, of which few with the same node and cause are written.

    After a line the next one about the same node and cause follows a second later at the earliest,
    then two seconds later, and so on up to a minute. It says how many were left out. The interval
    is a second again when nothing was seen for two minutes, or when what failed has worked for
    twice the interval.
    """

    __slots__ = ("_level", "_logger", "_recent")

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        # By node and cause; the one whose line is oldest is first.
        self._recent: dict[tuple[int | str | None, str], _Repeated] = {}

    def warning(
        self, now: float, node: int | str | None, cause: str, msg: str, *args: object
    ) -> bool:
        """Write a warning unless one with the same node and cause came a short time ago.

        Return whether it was written. `now` is in seconds of any monotonic clock, the same one for
        every call.
        """
        key = (node, cause)
        entry = self._recent.pop(key, None)
        if entry is None or entry.is_over(now):
            if entry is not None:
                self._log_left_out(entry, now)
            elif len(self._recent) >= _MAX_CAUSES:
                self._log_left_out(self._recent.pop(next(iter(self._recent))), now)
            self._recent[key] = _Repeated(now, now, now)
            self._logger.log(self._level, msg, *args)
            return True
        entry.seen_at = now
        if entry.recovered_at is not None:
            entry.recovered_at, entry.began_at, entry.is_reported = None, now, False
        if now - entry.written_at < entry.interval_s:
            entry.left_out += 1
            entry.line = (msg, args)
            self._recent[key] = entry
            return False
        entry.interval_s = min(entry.interval_s * 2, LONGEST_INTERVAL_S)
        entry.written_at = now
        entry.is_reported = True
        self._recent[key] = entry
        entry.line = (msg, args)
        self._write(entry, entry.left_out)
        return True

    def recovered(self, now: float, node: int | str | None, what: str) -> None:
        """Write for how long something failed, if there was a warning about this node."""
        over = [
            entry
            for key, entry in self._recent.items()
            if key[0] == node and entry.recovered_at is None
        ]
        for entry in over:
            entry.recovered_at = now
        # Trouble without a line has none about its end either; what was left out is written later.
        if not any(entry.is_reported for entry in over):
            return
        left_out = sum(entry.left_out for entry in over)
        self._logger.log(
            self._level,
            "%s after %.1f s%s",
            what,
            now - min(entry.began_at for entry in over),
            f" ({left_out} more warning(s) were not logged)" if left_out else "",
        )
        for entry in over:
            entry.left_out = 0

    def flush(self, now: float) -> None:
        """Write how many lines were left out since the last one of their kind."""
        for entry in self._recent.values():
            self._log_left_out(entry, now)
        self._recent.clear()

    def _log_left_out(self, entry: _Repeated, now: float) -> None:
        """Write the last line that was left out, and when it was: it may not be true any more."""
        if entry.left_out:
            msg, args = entry.line
            when = (entry.left_out, now - entry.seen_at)
            over = "" if entry.recovered_at is None else ", and it has worked since"
            entry.line = (_LEFT_OUT.format(over) + msg, (*when, *args))
            self._write(entry, 0)

    def _write(self, entry: _Repeated, left_out: int) -> None:
        msg, args = entry.line
        if left_out:
            msg, args = msg + " (%d more like this were not logged)", (*args, left_out)
        entry.left_out = 0
        entry.line = ("", ())
        self._logger.log(self._level, msg, *args)
