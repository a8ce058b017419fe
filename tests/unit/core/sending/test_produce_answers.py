"""A plain response acknowledges the batches whose partitions it names."""

from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.core.sending.produce_answers import acknowledges
from aioproducer.wire.produce import Acknowledgement

from ..support import Core


@pytest.mark.parametrize(
    ("topic", "partition", "is_acknowledged"),
    [("t", 0, True), ("other", 0, False), ("t", 1, False)],
)
def test_response_acknowledges_batches_of_its_topic_and_partitions(
    topic: str, partition: int, is_acknowledged: bool
) -> None:
    core = Core((1,))
    core.append()
    (dispatch,) = core.poll()
    response = Acknowledgement(
        name=topic, topic_id=UUID(int=9), places={partition: (0, -1, 0)}, throttle_time_ms=0
    )
    assert acknowledges(response, dispatch.batches) is is_acknowledged
