"""Without a linger: the batches that a bulk call is filling, which are not sent in between.

Owns: which batches these are, and when they are due although they have room. Must not know: rows.

A record that is sent while nothing is under way leaves at once. Of a call with many records that
would be the first one alone; so the batches that it opens are due when they are full, or when the
call waits for something or ends. Its pauses for the turns of others are no waits.
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
        self._goes_on = False
        self._is_watched = False

    def add(self, batch: ProducerBatch) -> None:
        """A batch was opened for a record of the call; the one before it is full."""
        self._open[batch.topic_partition] = batch

    def resume(self) -> None:
        """The call has records at hand."""
        self._goes_on = True

    def pause(self) -> None:
        """The call may wait from now on: if it still does in the next turn, its batches are due."""
        self._goes_on = False
        loop = self._engine.loop
        if self._open and not self._is_watched and not loop.is_closed():
            self._is_watched = True
            loop.call_soon(self._on_turn)

    def end(self) -> None:
        """The call adds nothing more to what it has opened."""
        if self._open:
            batches, self._open = self._open, {}
            self._engine.accumulator.end_gathering(batches.values())
            self._engine.sender_task.wake()

    def _on_turn(self) -> None:
        self._is_watched = False
        if not self._goes_on:
            self.end()
