"""The rule for metadata without topic ids finds leaders of another cluster, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.types import PartitionMetadata, TopicMetadata
from simulation.other_clusters import leaders_of_another_cluster


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
