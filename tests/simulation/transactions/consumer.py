"""A simulated consumer: reads what is committed, begins where its group's positions say.

Owns: positions in memory, the group's generation it believes in. Not here: producers, the
network; it reads the cluster's logs directly, as a leader would serve them.

Positions are read only when no open transaction may change them (KIP-447), and not beyond the last
stable offset.
"""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer.records.batch import parse_header
from aioproducer.testing.broker.topics import Partition
from aioproducer.testing.broker.transactions.groups import Group
from aioproducer.testing.world.cluster import SimCluster
from aioproducer.types import ConsumerGroupMetadata, TopicPartition
from simulation.evidence import name_of
from simulation.ledger import Source

_READ_BYTES = 100_000


class SimConsumer:
    """Reads one topic for one incarnation.

    Args:
        cluster: Where.
        topic: What.
        group_id: Whose positions.
        member_id: Its member id, where the group has generations; else None.
    """

    def __init__(
        self, cluster: SimCluster, topic: str, group_id: str, member_id: str | None
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group_id = group_id
        self._member_id = member_id
        self._generation = -1
        self._positions: dict[TopicPartition, int] | None = None
        if member_id is not None:
            groups = cluster.groups
            known = groups.groups.get(group_id)
            generation = 1 if known is None else max(1, known.generation + 1)
            groups.set_members(group_id, generation, {member_id: None})
            self._generation = generation

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The group, generation and member that it names in requests."""
        if self._member_id is None:
            return ConsumerGroupMetadata(self._group_id)
        return ConsumerGroupMetadata(self._group_id, self._generation, self._member_id)

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to read, of each partition that was read."""
        return dict(self._positions or {})

    def rejoin(self) -> None:
        """Learns the group's generation, if it still is its member."""
        group = self._group()
        if self._member_id in group.members:
            self._generation = group.generation

    def rewind(self) -> None:
        """Goes back to the group's positions with the next `poll`."""
        self._positions = None

    def poll(self, most: int) -> list[Source] | None:
        """Return the next records; None while the positions are not available."""
        if self._positions is None and not self._fetch_positions():
            return None
        found: list[Source] = []
        for partition in self._partitions():
            found += self._read(partition, most - len(found))
        return found

    def has_unread_records(self) -> bool:
        """Return whether there is more in the logs than it has read, decided or not."""
        return any(
            self._position(partition) < partition.log.end_offset for partition in self._partitions()
        )

    def _group(self) -> Group:
        return self._cluster.groups.groups.get(self._group_id) or Group()

    def _partitions(self) -> list[Partition]:
        return self._cluster.topics[self._topic].partitions

    def _fetch_positions(self) -> bool:
        group = self._group()
        places = [TopicPartition(self._topic, each.index) for each in self._partitions()]
        if any(group.is_unstable(where) for where in places):
            return False
        self._positions = {
            where: found.offset
            for where, found in group.offsets.items()
            if where.topic == self._topic
        }
        return True

    def _position(self, partition: Partition) -> int:
        return (self._positions or {}).get(TopicPartition(self._topic, partition.index), 0)

    def _read(self, partition: Partition, most: int) -> list[Source]:
        where = TopicPartition(self._topic, partition.index)
        position, end = self._position(partition), partition.last_stable_offset
        found: list[Source] = []
        aborted = partition.transactions.aborted_within(position, end)
        for stored in partition.log.read(position, _READ_BYTES, at_least_one=True, end=end):
            batch = parse_header(stored.data)
            skipped = batch.is_control or any(
                each.producer_id == batch.producer_id
                and each.first_offset <= stored.base_offset <= each.last_offset
                for each in aborted
            )
            for record in [] if skipped else batch.records():
                if record.offset < position:
                    continue
                if len(found) >= most:
                    return found
                found.append(Source(where, record.offset, name_of(record)))
                position = self._advance(where, record.offset + 1)
            if len(found) < most:
                position = self._advance(where, stored.last_offset + 1)
        return found

    def _advance(self, where: TopicPartition, position: int) -> int:
        if self._positions is not None:
            self._positions[where] = position
        return position
