"""Rules for metadata without topic ids that are compared with the brokers of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.core.metadata.live_topic import _OLDER_ANSWERS_TO_BE_SURE
from aioproducer.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.metadata.live_topic import LiveTopic
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.testing.world.cluster import SimCluster


class _Seen(NamedTuple):
    """A leader epoch at the last check, with the answers that had lower ones, and their topic."""

    epoch: int
    older_answers: int
    live: LiveTopic


class EpochsWithoutIds:
    """Leader epochs in a producer's metadata without topic ids; `check` them at idle moments."""

    def __init__(self) -> None:
        self._version: int = 0
        self._seen: dict[TopicPartition, _Seen] = {}

    def check(self, engine: ProducerEngine, cluster: SimCluster) -> Iterator[str]:
        """Yield epochs that go back before enough answers in a row had lower ones.

        Not of a topic that was created anew.
        """
        metadata, before = engine.metadata, self._seen
        answers = metadata.version - self._version
        if not answers:
            return
        self._version, self._seen = metadata.version, {}
        deleted = {topic.name for topic in cluster.deleted}
        for name, topic in metadata.cluster.topics.items():
            live = metadata._topics.get(name)
            if topic.topic_id != ZERO_ID or live is None or name in deleted:
                continue
            for each in topic.partitions:
                where = TopicPartition(name, each.partition)
                now = self._seen[where] = _Seen(each.leader_epoch, live.older_answers, live)
                then = before.get(where, now)
                is_early = then.older_answers + answers < _OLDER_ANSWERS_TO_BE_SURE
                if NO_EPOCH < now.epoch < then.epoch and now.live is then.live and is_early:
                    yield f"epoch {then.epoch} of {where} is {now.epoch} again"


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
