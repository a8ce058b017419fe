"""`stats_cb`: a JSON text, at most every `statistics.interval.ms`, from a call of the producer."""

from __future__ import annotations

import json
import time

from aioproducer.compat.confluent._loop_side import LoopSide
from aioproducer.compat.confluent._reports import Reports
from aioproducer.compat.confluent._settings import Settings


class Clock:
    """Makes the text when it is due."""

    def __init__(self, settings: Settings, reports: Reports) -> None:
        self._settings = settings
        self._reports = reports
        self._begun = time.monotonic()
        self.is_on: bool = settings.stats_cb is not None and settings.statistics_s > 0
        self._due = self._begun + settings.statistics_s

    def left(self) -> float:
        """Return the seconds until they are due."""
        return max(0.0, self._due - time.monotonic())

    def report_if_due(self, loop_side: LoopSide) -> None:
        """Report statistics if they are due."""
        now = time.monotonic()
        if not self.is_on or now < self._due:
            return
        self._due = now + self._settings.statistics_s
        callback, text = self._settings.stats_cb, self._text(now, loop_side)
        self._reports.add(lambda: callback(text))

    def _text(self, now: float, loop_side: LoopSide) -> str:
        reports, settings = self._reports, self._settings
        client_id = settings.config.client_id
        return json.dumps(
            {
                "name": f"{client_id}#producer",
                "client_id": client_id,
                "type": "producer",
                "ts": int(now * 1_000_000),
                "time": int(time.time()),
                "age": int((now - self._begun) * 1_000_000),
                "msg_cnt": reports.count,
                "msg_size": reports.bytes,
                "msg_max": settings.max_records,
                "msg_size_max": settings.max_bytes,
                "connected": loop_side.producer is not None,
                "brokers": {
                    f"{node.host}:{node.port}/{node.id}": {"nodeid": node.id}
                    for node in loop_side.brokers()
                },
            }
        )
