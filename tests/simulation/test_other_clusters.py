"""The rule for metadata without topic ids finds leaders of another cluster, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.types import PartitionMetadata, TopicMetadata
from simulation.other_clusters import EpochsWithoutIds, leaders_of_another_cluster


@pytest.mark.parametrize(
    ("known_cluster", "topic_id", "epoch", "deleted_in", "found"),
    [
        ("new", ZERO_ID, 4, 0, 1),
        ("new", ZERO_ID, 3, 0, 0),
        ("old", ZERO_ID, 4, 0, 0),
        ("new", UUID(int=1), 4, 0, 0),
        ("new", ZERO_ID, 4, 1, 0),
    ],
)
def test_a_leader_epoch_of_another_cluster_is_found_out(
    known_cluster: str, topic_id: UUID, epoch: int, deleted_in: int, found: int
) -> None:
    topic = TopicMetadata("t", topic_id, (PartitionMetadata(0, 1, epoch),))
    engine: Any = SimpleNamespace(
        metadata=SimpleNamespace(
            cluster=SimpleNamespace(cluster_id=known_cluster, topics={"t": topic})
        )
    )
    deleted = SimpleNamespace(name="t", partitions=[SimpleNamespace(cluster_number=deleted_in)])
    cluster: Any = SimpleNamespace(
        settings=SimpleNamespace(cluster_id="new"),
        number=1,
        deleted=[deleted],
        partition=lambda name, number: SimpleNamespace(leader_epoch=3),
    )
    assert len(list(leaders_of_another_cluster(engine, cluster))) == found


@pytest.mark.parametrize(
    ("topic_id", "epoch", "answers", "older", "deleted", "found"),
    [
        (ZERO_ID, 3, 1, 0, False, 1),
        (ZERO_ID, 3, 2, 2, False, 1),
        (ZERO_ID, 3, 1, 4, False, 0),
        (ZERO_ID, 3, 5, 0, False, 0),
        (ZERO_ID, -1, 1, 0, False, 0),
        (ZERO_ID, 5, 1, 0, False, 0),
        (ZERO_ID, 3, 1, 0, True, 0),
        (UUID(int=1), 3, 1, 0, False, 0),
    ],
)
def test_an_epoch_that_goes_back_after_too_few_older_answers_is_found_out(
    topic_id: UUID, epoch: int, answers: int, older: int, deleted: bool, found: int
) -> None:
    live = SimpleNamespace(older_answers=older)
    metadata = SimpleNamespace(
        version=1,
        cluster=SimpleNamespace(topics={"t": _topic(topic_id, 4)}),
        _topics={"t": live},
    )
    engine: Any = SimpleNamespace(metadata=metadata)
    cluster: Any = SimpleNamespace(deleted=[SimpleNamespace(name="t")] * deleted)
    rule = EpochsWithoutIds()
    assert list(rule.check(engine, cluster)) == []
    metadata.version += answers
    metadata.cluster.topics["t"] = _topic(topic_id, epoch)
    live.older_answers = 0
    assert len(list(rule.check(engine, cluster))) == found
    assert list(rule.check(engine, cluster)) == []


def _topic(topic_id: UUID, epoch: int) -> TopicMetadata:
    return TopicMetadata("t", topic_id, (PartitionMetadata(0, 1, epoch),))
