"""Logging: one logger per layer, and a brake for warnings that a broken cluster repeats.

Owns: the loggers' names and the rate limit. Must not know: what is logged, levels, handlers; an
application configures those through the standard `logging` module.

Invariants: no record's key, value or headers reaches a logger; nothing is logged per record;
`RateLimitedLog` writes at most one line per node and cause per second, says in the next one how
many it left out, and remembers a bounded number of causes. The clock is the caller's.
"""

from __future__ import annotations

import logging
from typing import Final, Literal

Layer = Literal["net", "core", "runtime", "producer", "loader", "spark", "starlette", "testing"]
"""The layers that have a logger, `aioproducer.<layer>` each."""

_INTERVAL_S: Final = 1.0
_MAX_CAUSES: Final = 256

# A library is silent until the application asks for its logs.
logging.getLogger("aioproducer").addHandler(logging.NullHandler())


def get(layer: Layer) -> logging.Logger:
    """Return the logger of one layer."""
    return logging.getLogger(f"aioproducer.{layer}")


class RateLimitedLog:
    """Warnings of which at most one per node and cause and second are written."""

    __slots__ = ("_logger", "_recent")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        # (node, cause) -> (time of the last line, lines left out since); the oldest entry is first.
        self._recent: dict[tuple[int | str | None, str], tuple[float, int]] = {}

    def warning(
        self, now: float, node: int | str | None, cause: str, msg: str, *args: object
    ) -> bool:
        """Write a warning unless one with the same node and cause came less than a second ago.

        Args:
            now: Seconds of any monotonic clock, the same one for every call.
            node: The broker concerned, None for none.
            cause: What makes two warnings the same, such as the error's class name.
            msg: The message in `logging`'s %-style.
            args: Its arguments.

        Returns:
            Whether the line was written.
        """
        key = (node, cause)
        written_at, suppressed = self._recent.get(key, (None, 0))
        if written_at is not None and now - written_at < _INTERVAL_S:
            self._recent[key] = (written_at, suppressed + 1)
            return False
        self._recent.pop(key, None)
        if len(self._recent) >= _MAX_CAUSES:
            del self._recent[next(iter(self._recent))]
        self._recent[key] = (now, 0)
        if suppressed:
            msg, args = msg + " (%d more like this were not logged)", (*args, suppressed)
        self._logger.warning(msg, *args)
        return True
