"""Batches that a bulk call fills without linger: start with `Gathering`.

Without linger, a record that is sent while nothing is in flight leaves at once. In a bulk call,
that would send the first record alone. So the batches of a bulk call are due when they are full, or
when the call waits for something or ends. Yielding to the event loop is not a wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.types import TopicPartition


class Gathering:
    """The batches of one call; `add` is an `OutgoingRecord.on_opened`."""

    def __init__(self, engine: ProducerEngine) -> None:
        self._engine = engine
        self._open: dict[TopicPartition, ProducerBatch] = {}
        self._goes_on: bool = False
        self._is_watched = False

    def add(self, batch: ProducerBatch) -> None:
        """Add a batch that was opened for a record of the call; the one before it is full."""
        self._open[batch.topic_partition] = batch

    def resume(self) -> None:
        """Keep the batches open: the call has more records."""
        self._goes_on = True

    def pause(self) -> None:
        """Make the batches due if the call still waits in the next turn of the loop."""
        self._goes_on = False
        loop = self._engine.loop
        if self._open and not self._is_watched and not loop.is_closed():
            self._is_watched = True
            loop.call_soon(self._on_turn)

    def end(self) -> None:
        """Make the batches due: the call adds nothing more to them."""
        if self._open:
            batches, self._open = self._open, {}
            self._engine.accumulator.end_gathering(batches.values())
            self._engine.sender_task.wake()

    def _on_turn(self) -> None:
        self._is_watched = False
        if not self._goes_on:
            self.end()
