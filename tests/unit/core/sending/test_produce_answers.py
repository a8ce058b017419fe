"""Readers of the responses to Produce requests."""

from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.core.sending.produce_answers import (
    acknowledges,
    leader_hints,
    match_answers,
    named_record_errors,
    position_of,
)
from aioproducer.core.sending.produce_rules import ProduceAction
from aioproducer.errors import KafkaError
from aioproducer.types import TopicPartition
from aioproducer.wire.acknowledgement import Acknowledgement
from aioproducer.wire.messages.common import LeaderIdAndEpoch
from aioproducer.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

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
        name=topic, topic_id=UUID(int=9), positions={partition: (0, -1, 0)}, throttle_time_ms=0
    )
    assert acknowledges(response, dispatch.batches) is is_acknowledged


@pytest.mark.parametrize(
    ("code", "offset", "expected"), [(0, 0, (0, 1, 2)), (0, -1, None), (46, 5, None)]
)
def test_an_accepted_batch_has_its_offset_unless_it_is_a_duplicate(
    code: int, offset: int, expected: tuple[int, int, int] | None
) -> None:
    assert position_of(PartitionProduceResponse(0, code, offset, 1, 2)) == expected


def test_the_first_entry_of_a_partition_counts() -> None:
    parts = [PartitionProduceResponse(0, base_offset=1), PartitionProduceResponse(0, base_offset=2)]
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=parts)]
    )
    assert match_answers(response, {}) == {TopicPartition("t", 0): parts[0]}


def test_answers_of_a_topic_id_are_those_of_the_topic_asked_for() -> None:
    part = PartitionProduceResponse(0)
    topic = TopicProduceResponse(name="", topic_id=UUID(int=9), partition_responses=[part])
    response = ProduceResponse(responses=[topic])
    assert match_answers(response, {UUID(int=9): "t"}) == {TopicPartition("t", 0): part}
    assert match_answers(response, {}) == {TopicPartition("", 0): part}


def test_only_errors_hint_at_another_leader() -> None:
    def answered(code: int, leader: int) -> PartitionProduceResponse:
        part = PartitionProduceResponse(0, code)
        part.current_leader = LeaderIdAndEpoch(leader, 4)
        return part

    where = TopicPartition("t", 0)
    assert leader_hints({where: answered(6, 0)}) == {where: (0, 4)}
    assert leader_hints({where: answered(6, -1)}) == {}
    assert leader_hints({where: answered(0, 3)}) == {}


def test_records_that_are_named_must_be_in_the_batch() -> None:
    part = PartitionProduceResponse(0, 87, error_message="bad batch")
    part.record_errors = [
        BatchIndexAndErrorMessage(index, text)
        for index, text in ((2, "two"), (3, "three"), (-1, "none"), (0, None))
    ]
    found = named_record_errors(part, 3, ProduceAction.FAIL)
    assert found is not None
    assert {index: error.message for index, error in found.items()} == {0: "bad batch", 2: "two"}
    assert list(found) == [0, 2]
    assert named_record_errors(part, 3, ProduceAction.RETRY) is None


@pytest.mark.parametrize(
    ("action", "count", "expected"),
    [
        (ProduceAction.SPLIT, 2, {}),
        (ProduceAction.SPLIT, 1, None),
        (ProduceAction.FAIL, 2, None),
    ],
)
def test_an_error_that_names_no_record(
    action: ProduceAction, count: int, expected: dict[int, KafkaError] | None
) -> None:
    assert named_record_errors(PartitionProduceResponse(0, 87), count, action) == expected
