"""A rule for leaders in metadata that are compared with the brokers of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aioproducer.types import NO_LEADER

if TYPE_CHECKING:
    from uuid import UUID

    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.testing.world.cluster import SimCluster


class Leaders:
    """The leaders that partitions have had, by epoch; `check` it at idle moments."""

    def __init__(self) -> None:
        self._by_epoch: dict[tuple[UUID, int, int], int] = {}

    def check(self, engine: ProducerEngine, cluster: SimCluster) -> Iterator[str]:
        """Yield partitions with a leader that had another epoch, but for hints by topic name.

        These may be of a deleted topic.
        """
        in_use = engine.metadata._topics
        for name, topic in cluster.topics.items():
            for led in topic.partitions:
                self._by_epoch[topic.topic_id, led.index, led.leader_epoch] = led.leader
            described, live = engine.metadata.topic(name), in_use.get(name)
            if described is None or described.topic_id != topic.topic_id:
                continue
            if live is None or live.before_hint:
                continue
            for known in described.partitions:
                key = topic.topic_id, known.partition, known.leader_epoch
                leader = self._by_epoch.get(key, known.leader)
                is_broker = leader != NO_LEADER and known.leader in engine.metadata.cluster.nodes
                if is_broker and leader != known.leader:
                    yield (
                        f"{name}-{known.partition} is led by {known.leader} in epoch "
                        f"{known.leader_epoch}, which is that of {leader}"
                    )
