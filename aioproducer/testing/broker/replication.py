"""A partition whose followers lag: one log end per replica, a high watermark, truncation.

`log` is the log of the leader, or of the last one while there is none. Every other replica has a
prefix of it: replicas cut off what their leader lacks before they follow it (KIP-101), so no
replica's own tail has to be kept.

Invariants:
- `high_watermark` is at most the log end of every member of `isr`: what is below survives any
  election among them.
- A new leader's log is the log: what it lacks is moved to `lost`, and the memory of idempotent
  producers goes back with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer.records.batch import RecordBatch, parse_header
from aioproducer.testing.broker.log import StoredBatch
from aioproducer.testing.broker.markers import Marker, PartitionTransactions
from aioproducer.testing.broker.producers import ProducerStates
from aioproducer.testing.broker.settings import TopicConfig
from aioproducer.testing.broker.topics import NO_LEADER, Appended, Partition, producer_key


class ReplicatedPartition(Partition):
    """A partition replicated step by step.

    Attributes:
        lost: Batches a leader had and its successor did not, in the order of their loss.
    """

    __slots__ = ("_ends", "_high_watermark", "lost")

    def __init__(self, topic: str, index: int, replicas: Sequence[int], live: set[int]) -> None:
        super().__init__(topic, index, replicas, live)
        self._ends = dict.fromkeys(self.replicas, 0)
        self._high_watermark = 0
        self.lost: list[StoredBatch] = []

    @property
    def high_watermark(self) -> int:
        """The offset up to which all of `isr` has the log."""
        return self._high_watermark

    def append(
        self, data: bytes | memoryview, batch: RecordBatch, config: TopicConfig, now_ms: int
    ) -> Appended:
        """Write a validated batch to the leader's log; see `Partition.append`."""
        appended = super().append(data, batch, config, now_ms)
        self._ends[self.leader] = self.log.end_offset
        self._advance()
        return appended

    def append_marker(self, marker: Marker, now_ms: int) -> int:
        """Write a marker to the leader's log; see `Partition.append_marker`."""
        end_offset = super().append_marker(marker, now_ms)
        self._ends[self.leader] = end_offset
        self._advance()
        return end_offset

    def is_lagging(self, node_id: int) -> bool:
        """Return whether a replica lacks a part of the log."""
        return self._ends[node_id] < self.log.end_offset

    def fetch(self, node_id: int) -> bool:
        """Let a follower copy all it lacks; return whether the ISR grew or more is committed."""
        if self.leader in {NO_LEADER, node_id}:
            return False
        self._ends[node_id] = self.log.end_offset
        joins = node_id not in self.isr
        if joins:
            self.isr: tuple[int, ...] = tuple(
                node for node in self.replicas if node in {*self.isr, node_id}
            )
        return self._advance() or joins

    def shrink_isr(self, node_id: int) -> bool:
        """Remove a lagging follower from the ISR; return whether it was in sync."""
        if node_id == self.leader or node_id not in self.isr:
            return False
        self.isr = tuple(node for node in self.isr if node != node_id)
        self._advance()
        return True

    def lose_replica(self, node_id: int) -> bool:
        """Remove a broker; more may be committed without it. See `Partition.lose_replica`."""
        changed = super().lose_replica(node_id)
        self._advance()
        return changed

    def regain_replica(self, node_id: int, live: set[int]) -> bool:
        """Bring a broker back: it leads if it may and no other does, else it must `fetch` first."""
        if self.leader != NO_LEADER or node_id not in self.isr:
            return False
        self.lead_by(node_id)
        return True

    def elect_unclean(self, node_id: int) -> None:
        """Elect a replica that may lack committed batches, which are lost."""
        self.isr = (node_id,)
        self.lead_by(node_id)

    def cut_back(self, node_id: int, batches: int) -> None:
        """Let a replica lack the last batches, which may be committed."""
        kept = self.log.batches[: max(0, len(self.log.batches) - batches)]
        end = kept[-1].last_offset + 1 if kept else 0
        self._ends[node_id] = min(self._ends[node_id], end)

    def lead_by(self, node_id: int) -> None:
        """Change the leader; what the new one lacks is lost."""
        super().lead_by(node_id)
        if node_id != NO_LEADER:
            self._truncate_to(self._ends[node_id])

    def _advance(self) -> bool:
        """Recompute the high watermark; return whether it grew."""
        reached = min(self._ends[node] for node in self.isr)
        if self.leader == NO_LEADER or reached <= self._high_watermark:
            return False
        self._high_watermark = reached
        return True

    def _truncate_to(self, offset: int) -> None:
        if lost := self.log.truncate_to(offset):
            self.lost += lost
            self._remember_anew()
        self._ends = {node: min(end, offset) for node, end in self._ends.items()}
        self._high_watermark = min(self._high_watermark, offset)

    def _remember_anew(self) -> None:
        """Let the memory of producers and transactions be what the log says."""
        self.producers: ProducerStates = ProducerStates()
        self.transactions: PartitionTransactions = PartitionTransactions()
        for stored in self.log.batches:
            batch = parse_header(stored.data)
            if batch.is_control:
                marker = Marker.of(batch)
                self.producers.see_epoch(marker.producer_id, marker.epoch, stored.max_timestamp)
                self.transactions.note_marker(marker, stored.base_offset)
                continue
            if (key := producer_key(batch)) is not None:
                self.producers.remember(key, stored.base_offset, stored.max_timestamp)
            if batch.is_transactional:
                self.transactions.note_data(batch.producer_id, stored.base_offset)
