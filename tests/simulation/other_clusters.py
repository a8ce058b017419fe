"""Rules for metadata without topic ids that are compared with the brokers of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aioproducer.core.metadata.cluster import ZERO_ID

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.testing.world.cluster import SimCluster


def leaders_of_another_cluster(engine: ProducerEngine, cluster: SimCluster) -> Iterator[str]:
    """Yield partitions with a leader epoch that they have not reached in this cluster.

    It is that of the cluster before, if the topic was not created anew in this one.
    """
    known = engine.metadata.cluster
    if known.cluster_id != cluster.settings.cluster_id:
        return
    anew = {
        topic.name
        for topic in cluster.deleted
        if any(getattr(each, "cluster_number", None) == cluster.number for each in topic.partitions)
    }
    for name, topic in known.topics.items():
        for each in topic.partitions if topic.topic_id == ZERO_ID and name not in anew else ():
            found = cluster.partition(name, each.partition)
            if found is not None and each.leader_epoch > found.leader_epoch:
                yield (
                    f"{name}-{each.partition} has epoch {found.leader_epoch}, "
                    f"metadata say {each.leader_epoch}"
                )
