"""Counters of one producer, incremented where things happen and read by `Producer.metrics()`.

Owns: plain integers and seconds. Must not know: exporters, names of other clients' metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class ProducerStats:
    """Totals since `start()`; times in seconds, sizes in bytes.

    `count_appended` is asked for `records_appended`: that is counted where no attribute of ours is.
    """

    count_appended: Callable[[], int] = field(default=lambda: 0, repr=False)
    records_acknowledged: int = 0
    records_failed: int = 0
    records_retried: int = 0
    records_sent: int = 0
    batches_sent: int = 0
    requests_sent: int = 0
    bytes_sent: int = 0
    buffer_waits: int = 0
    buffer_wait_time: float = 0.0
    unretrieved_failures: int = 0

    @property
    def records_appended(self) -> int:
        """Records accepted by `send()` and its kin."""
        return self.count_appended()
