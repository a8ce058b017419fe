"""Detection of lost records: acknowledged offsets, and responses that contradict them.

`AcknowledgedOffsets` keeps the last offset per partition. A loss is proven when an acknowledged
offset is assigned again. A refused sequence proves nothing: a broker that has expired the state of
an idle producer, or deleted its records by retention, returns the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch


class LostRecords(NamedTuple):
    """An acknowledged offset was assigned again; with the last acknowledged one."""

    topic_partition: TopicPartition
    acknowledged: int
    assigned: int

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        return (
            f"{topic}-{partition}: acknowledged records are lost: offset {self.assigned} was "
            f"assigned although offset {self.acknowledged} had been acknowledged; the brokers have "
            "lost the end of the log, or the topic was deleted and created anew"
        )


class ExpiredProducer(NamedTuple):
    """A broker refused the next sequence although it had acknowledged the previous one.

    `acknowledged` is the last acknowledged offset, `log_start` the broker's; None if unknown.
    """

    topic_partition: TopicPartition
    acknowledged: int | None
    log_start: int | None

    @property
    def is_retention(self) -> bool:
        """Whether the log starts after the last acknowledged offset."""
        if self.acknowledged is None or self.log_start is None:
            return False
        return self.acknowledged < self.log_start

    def __str__(self) -> str:
        topic, partition = self.topic_partition
        end = "an unknown offset" if self.acknowledged is None else f"offset {self.acknowledged}"
        start = "an unknown offset" if self.log_start is None else f"offset {self.log_start}"
        cause = (
            "it has deleted the producer's records"
            if self.is_retention
            else "it has expired the producer's state, as after an idle time, or has lost records"
        )
        return (
            f"{topic}-{partition}: the broker does not have the last batch that it acknowledged, "
            f"up to {end}; its log begins at {start}: {cause}; the next batch is sent under a new "
            "epoch, and a loss is reported once an acknowledged offset is assigned again"
        )


class _Last(NamedTuple):
    topic_id: UUID
    offset: int
    ordinal: tuple[int, ...]


class AcknowledgedOffsets:
    """The last acknowledged offset of each partition of an idempotent producer."""

    def __init__(
        self,
        on_data_loss: Callable[[LostRecords], None],
        on_producer_expired: Callable[[ExpiredProducer], None],
    ) -> None:
        self._on_data_loss = on_data_loss
        self._on_producer_expired = on_producer_expired
        self._last: dict[TopicPartition, _Last] = {}

    def on_acknowledged(self, batch: ProducerBatch, base_offset: int | None) -> None:
        """Record the offset of an acknowledged batch; None if the broker reported none."""
        if base_offset is None:
            return
        place, last = batch.topic_partition, self._last.get(batch.topic_partition)
        if last is not None:
            if batch.ordinal < last.ordinal:
                return  # a late response: the batch is written before the last one
            if base_offset <= last.offset and batch.topic_id == last.topic_id:
                self._on_data_loss(LostRecords(place, last.offset, base_offset))
        self._last[place] = _Last(batch.topic_id, base_offset + batch.count - 1, batch.ordinal)

    def on_unknown_predecessor(self, place: TopicPartition, log_start: int) -> None:
        """Report that a broker does not have the last batch that it acknowledged.

        Its log start offset is negative if it reported none.
        """
        last = self._last.get(place)
        acknowledged = None if last is None else last.offset
        known_start = log_start if log_start >= 0 else None
        self._on_producer_expired(ExpiredProducer(place, acknowledged, known_start))

    def on_recreated(self, topic: str) -> None:
        """Drop the offsets of a recreated topic."""
        for place in [each for each in self._last if each.topic == topic]:
            del self._last[place]

    def on_other_cluster(self) -> None:
        """Drop all offsets."""
        self._last.clear()
