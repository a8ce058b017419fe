"""The rule for leaders finds those of another epoch, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from aioproducer.types import PartitionMetadata, TopicMetadata
from simulation.leaders import Leaders

_ID = UUID(int=1)


@pytest.mark.parametrize(
    ("topic_id", "leader", "epoch", "by_name", "found"),
    [
        (_ID, 2, 4, False, 0),
        (_ID, 3, 5, False, 0),
        (_ID, 3, 4, False, 1),
        (_ID, 2, 5, False, 1),
        (_ID, 2, 5, True, 0),
        (_ID, -1, 5, False, 0),
        (_ID, 7, 5, False, 0),
        (_ID, 2, 6, False, 0),
        (UUID(int=2), 3, 4, False, 0),
    ],
)
def test_a_leader_with_the_epoch_of_another_one_is_found_out(
    topic_id: UUID, leader: int, epoch: int, by_name: bool, found: int
) -> None:
    led = SimpleNamespace(index=0, leader=2, leader_epoch=4)
    topic = SimpleNamespace(topic_id=_ID, partitions=[led])
    cluster: Any = SimpleNamespace(topics={"t": topic})
    described: dict[str, TopicMetadata] = {}
    in_use = {"t": SimpleNamespace(before_hint=by_name)}
    metadata = SimpleNamespace(
        topic=described.get, _topics=in_use, cluster=SimpleNamespace(nodes={2, 3})
    )
    engine: Any = SimpleNamespace(metadata=metadata)
    rule = Leaders()
    assert list(rule.check(engine, cluster)) == []
    led.leader, led.leader_epoch = 3, 5
    described["t"] = TopicMetadata("t", topic_id, (PartitionMetadata(0, leader, epoch),))
    assert len(list(rule.check(engine, cluster))) == found
