"""Tests of the hand-written Produce encoder, and of the answer seen at a glance."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing.framing import encode_response
from aioproducer.wire.acknowledgement import (
    ACKNOWLEDGEMENT_SUFFIX,
    POSITION,
    decode_acknowledgement,
)
from aioproducer.wire.framing import decode_response, encode_request, frame_size
from aioproducer.wire.messages.common import LeaderIdAndEpoch
from aioproducer.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aioproducer.wire.primitives import Buffer
from aioproducer.wire.produce import (
    JOIN_BELOW_BYTES,
    ProducePartition,
    ProduceRequestTemplate,
    ProduceTopic,
    encode_produce_request,
)

PIECES = st.binary(max_size=40) | st.sampled_from([b"x" * 255, b"x" * 256, b"x" * 5000])
PARTITIONS = st.builds(
    ProducePartition,
    partition=st.integers(0, 2**31 - 1),
    records=st.lists(PIECES | PIECES.map(memoryview), max_size=4),
)
TOPICS = st.builds(
    ProduceTopic,
    name=st.text(max_size=20),
    topic_id=st.builds(UUID, int=st.integers(0, 2**128 - 1)),
    partitions=st.lists(PARTITIONS, max_size=3),
)


def encode(version: int, topics: list[ProduceTopic], **changes: object) -> list[Buffer]:
    arguments: dict[str, Any] = {
        "correlation_id": 3,
        "client_id": "me",
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 30_000,
        **changes,
    }
    return encode_produce_request(version=version, topics=topics, **arguments)


HEADS = st.fixed_dictionaries(
    {
        "correlation_id": st.integers(0, 2**31 - 1),
        "client_id": st.none() | st.text(max_size=10),
        "transactional_id": st.none() | st.text(max_size=200),
        "acks": st.sampled_from([-1, 0, 1]),
        "timeout_ms": st.integers(0, 2**31 - 1),
    }
)


@given(version=st.integers(0, 13), head=HEADS, topics=st.lists(TOPICS, max_size=3))
def test_the_buffers_joined_equal_the_compiled_encoding(
    version: int, head: dict[str, Any], topics: list[ProduceTopic]
) -> None:
    if version < 3:
        head["transactional_id"] = None
    buffers = encode_produce_request(version=version, topics=topics, **head)
    request = ProduceRequest(
        transactional_id=head["transactional_id"],
        acks=head["acks"],
        timeout_ms=head["timeout_ms"],
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[
                    PartitionProduceData(index=part.partition, records=b"".join(part.records))
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
    compiled = encode_request(request, version, head["correlation_id"], head["client_id"])
    assert b"".join(buffers) == compiled


@pytest.mark.parametrize("version", range(14))
def test_record_data_is_handed_on_without_a_copy(version: int) -> None:
    big, view = b"b" * 16_384, memoryview(b"v" * 16_384)
    header = b"h" * 61
    parts = [ProducePartition(0, [header, big]), ProducePartition(1, [header, view])]
    buffers = encode(version, [ProduceTopic("t", UUID(int=1), parts)])
    assert any(buffer is big for buffer in buffers)
    assert any(buffer is view for buffer in buffers)
    assert len(buffers) <= 5
    assert frame_size(b"".join(buffers)[:4]) == sum(map(len, buffers)) - 4


def test_small_pieces_are_joined_with_the_fields_around_them() -> None:
    parts = [ProducePartition(i, [b"h" * 61, b"b" * (JOIN_BELOW_BYTES - 1)]) for i in range(5)]
    assert len(encode(9, [ProduceTopic("t", UUID(int=1), parts)])) == 1


def test_a_piece_that_is_changed_later_changes_nothing_that_was_joined() -> None:
    piece = bytearray(b"small")
    topic = ProduceTopic("t", UUID(int=1), [ProducePartition(0, [memoryview(piece)])])
    buffers = encode(9, [topic])
    before = b"".join(buffers)
    piece[:] = b"SMALL"
    assert b"".join(buffers) == before


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_produce_never_had_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="versions 0 to 13"):
        encode(version, [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_needs_version_three(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match="transactional_id"):
        encode(version, [], transactional_id="tx")
    assert encode(3, [], transactional_id="tx")


@pytest.mark.parametrize("changes", [{"acks": 2**15}, {"timeout_ms": 2**31}])
@pytest.mark.parametrize("version", [3, 12])
def test_a_value_that_does_not_fit_is_a_value_error(
    version: int, changes: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="does not fit ProduceRequest"):
        encode(version, [], **changes)


@given(
    version=st.integers(0, 13),
    head=HEADS,
    place=st.tuples(st.text(max_size=20), st.integers(0, 2**128 - 1), st.integers(0, 2**31 - 1)),
    batches=st.lists(st.tuples(PIECES, PIECES | PIECES.map(memoryview)), max_size=3),
)
def test_a_form_that_is_filled_equals_a_request_made_at_once(
    version: int,
    head: dict[str, Any],
    place: tuple[str, int, int],
    batches: list[tuple[bytes, Buffer]],
) -> None:
    head["transactional_id"] = None
    correlation_id = head.pop("correlation_id")
    name, topic_id, partition = place[0], UUID(int=place[1]), place[2]
    known = {name: value for name, value in head.items() if name != "transactional_id"}
    form = ProduceRequestTemplate(
        version, topic=name, topic_id=topic_id, partition=partition, **known
    )
    for number, records in enumerate(batches):
        topics = [ProduceTopic(name, topic_id, [ProducePartition(partition, records)])]
        id_ = (correlation_id + number) % 2**31
        expected = encode_produce_request(version, id_, topics=topics, **head)
        assert form.render(id_, records) == expected


@pytest.mark.parametrize("version", [3, 12])
def test_a_topic_name_that_is_no_text_is_a_value_error(version: int) -> None:
    with pytest.raises(ValueError, match="does not fit ProduceRequest"):
        encode(version, [ProduceTopic("\ud800", UUID(int=1), [])])


def answers() -> st.SearchStrategy[ProduceResponse]:
    """Those to one batch for the most part, acknowledged or refused."""
    number = st.integers(-1, 2**40)
    partition = st.builds(
        PartitionProduceResponse,
        index=st.integers(0, 9),
        error_code=st.sampled_from([0, 0, 0, 6]),
        base_offset=number,
        log_append_time_ms=number,
        log_start_offset=number,
        error_message=st.sampled_from([None, None, None, "no"]),
        record_errors=st.sampled_from([[], [], [BatchIndexAndErrorMessage(1, "bad")]]),
        current_leader=st.sampled_from([LeaderIdAndEpoch(), LeaderIdAndEpoch(1, 2)]),
    )
    topic = st.builds(
        TopicProduceResponse,
        name=st.one_of(st.text(max_size=3), st.sampled_from(["x" * 126, "x" * 127])),
        topic_id=st.just(UUID(int=2**100 + 5)),
        partition_responses=st.lists(partition, min_size=1, max_size=2),
    )
    return st.builds(
        ProduceResponse,
        responses=st.lists(topic, min_size=1, max_size=2),
        throttle_time_ms=st.integers(0, 1000),
    )


@given(
    answer=answers(), version=st.integers(10, 13), cut=st.integers(-60, 3), flip=st.integers(0, 99)
)
def test_an_answer_at_a_glance_is_what_the_decoder_says_or_nothing(
    answer: ProduceResponse, version: int, cut: int, flip: int
) -> None:
    for topic in answer.responses:
        topic.name = topic.name if version < 13 else ""
        topic.topic_id = topic.topic_id if version >= 13 else UUID(int=0)
    frame = encode_response(answer, version, 7)[4:]
    if cut:
        frame = frame[:cut] if cut < 0 else frame + bytes(cut)
    elif flip < len(frame) - 4:
        frame = frame[: flip + 4] + bytes((frame[flip + 4] ^ 1,)) + frame[flip + 5 :]
    seen = decode_acknowledgement(frame, version, 7)
    assert seen is None or seen.whole() == decode_response(ProduceRequest, version, frame)[1]


@pytest.mark.parametrize("count", [1, 2, 126])
@pytest.mark.parametrize("version", range(9, 14))
def test_a_plain_acknowledgement_is_recognized_by_comparison(version: int, count: int) -> None:
    partitions = [PartitionProduceResponse(3 + i, 0, 2**40, -1, 5) for i in range(count)]
    topic = TopicProduceResponse("orders", partition_responses=partitions)
    if version >= 13:
        topic = TopicProduceResponse(topic_id=UUID(int=9), partition_responses=partitions)
    answer = ProduceResponse([topic], 4)
    frame = encode_response(answer, version, 7)[4:]
    seen = decode_acknowledgement(frame, version, 7)
    assert seen is not None
    assert seen.whole() == answer
    assert decode_acknowledgement(frame, version, 8) is None


@pytest.mark.parametrize("version", range(9, 14))
def test_a_plain_acknowledgement_has_the_prefix_and_the_suffix_of_its_request(version: int) -> None:
    template = ProduceRequestTemplate(
        version,
        "me",
        acks=-1,
        timeout_ms=1000,
        topic="orders",
        topic_id=UUID(int=9),
        partition=3,
    )
    written = [PartitionProduceResponse(3, 0, 2**40, -1, 5)]
    topic = TopicProduceResponse("orders", partition_responses=written)
    if version >= 13:
        topic = TopicProduceResponse(topic_id=UUID(int=9), partition_responses=written)
    position = POSITION.pack(2**40, -1, 5)
    expected = template.acknowledgement(7) + position + ACKNOWLEDGEMENT_SUFFIX
    assert encode_response(ProduceResponse([topic]), version, 7) == expected


@pytest.mark.parametrize(
    "partitions",
    [
        [PartitionProduceResponse(3, 0, 7), PartitionProduceResponse(3, 0, 8)],
        [PartitionProduceResponse(3, 0, 7), PartitionProduceResponse(4, 6, -1)],
        [PartitionProduceResponse(3, 0, 7), PartitionProduceResponse(4, 0, -1)],
        [],
        [PartitionProduceResponse(index, 0, 7) for index in range(127)],
    ],
    ids=["one twice", "an error", "no offset", "none", "too many"],
)
def test_any_other_answer_is_left_to_the_decoder(
    partitions: list[PartitionProduceResponse],
) -> None:
    topic = TopicProduceResponse("orders", partition_responses=partitions)
    frame = encode_response(ProduceResponse([topic]), 9, 7)[4:]
    assert decode_acknowledgement(frame, 9, 7) is None
