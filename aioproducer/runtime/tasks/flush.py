"""Flush: send all accepted records without linger, and wait for their results: `Flushing`.

Invariants
- A flush waits for the batches that exist when it begins, and for no later ones.
- When it has ended, for any reason, it has no listener at a batch, and linger is as before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from aioproducer._util import log
from aioproducer.core.batching.batch import ProducerBatch, name_of

if TYPE_CHECKING:
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.types import TopicPartition

_log = log.get("runtime")

_MOST_PARTITIONS_LISTED = 3


class Flushing:
    """The flushes of one producer."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        loop: asyncio.AbstractEventLoop,
        wake_sender: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._loop = loop
        self._wake_sender = wake_sender
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)

    async def flush(self, timeout: float | None) -> int:
        """Return the number of undelivered records: 0 unless `timeout` seconds have passed."""
        waiting = {object(): batch for batch in self._accumulator.incomplete()}
        if not waiting:
            return 0
        done = self._loop.create_future()

        def on_done(key: object) -> None:
            waiting.pop(key, None)
            if not waiting and not done.done():
                done.set_result(None)

        _listen(waiting, on_done)
        self._accumulator.begin_flush()
        self._wake_sender()
        left: Collection[ProducerBatch] = ()
        try:
            async with asyncio.timeout(timeout):
                await done
        except TimeoutError:
            left = list(waiting.values())
        finally:
            self._accumulator.end_flush()
            _unlisten(waiting)
        return self._report_left(left, timeout)

    def _report_left(self, batches: Collection[ProducerBatch], timeout: float | None) -> int:
        counts: Counter[TopicPartition] = Counter()
        oldest: dict[TopicPartition, ProducerBatch] = {}
        for batch in batches:
            counts[batch.topic_partition] += batch.count
            oldest.setdefault(batch.topic_partition, batch)
        left = counts.total()
        if left:
            lines = [
                f"{name_of(where)}: {count}, {self._cause(oldest[where])}"
                for where, count in counts.most_common(_MOST_PARTITIONS_LISTED)
            ]
            if len(counts) > len(lines):
                lines.append(f"{len(counts) - len(lines)} more partition(s)")
            self.warnings.warning(
                self._loop.time(),
                None,
                "flush",
                "flush(%s) ended with %d record(s) undelivered (%s)",
                timeout,
                left,
                "; ".join(lines),
            )
        return left

    def _cause(self, batch: ProducerBatch) -> object:
        return (
            batch.last_error
            or self._metadata.explain(*batch.topic_partition).text
            or ("no answer yet" if batch.on_wire else "not sent yet")
        )


# Separate functions: a task may keep the frame of a cancelled flush in its traceback. That frame
# must hold no batches, or unhandled failures of theirs would not be reported.


def _listen(waiting: dict[object, ProducerBatch], on_done: Callable[[object], None]) -> None:
    for key, batch in waiting.items():
        batch.add_listener(key, on_done)


def _unlisten(waiting: dict[object, ProducerBatch]) -> None:
    for key, batch in waiting.items():
        batch.remove_listener(key)
    waiting.clear()
