"""Tests of the hand-written Produce encoder."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import UnsupportedVersionError
from aioproducer.wire.framing import encode_request, frame_size
from aioproducer.wire.messages import PartitionProduceData, ProduceRequest, TopicProduceData
from aioproducer.wire.primitives import Buffer
from aioproducer.wire.produce import (
    JOIN_BELOW_BYTES,
    ProducePartition,
    ProduceTopic,
    encode_produce_request,
)

PIECES = st.binary(max_size=40) | st.sampled_from([b"x" * 255, b"x" * 256, b"x" * 5000])
PARTITIONS = st.builds(
    ProducePartition,
    index=st.integers(0, 2**31 - 1),
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
                    PartitionProduceData(index=part.index, records=b"".join(part.records))
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


@pytest.mark.parametrize("version", [3, 12])
def test_a_topic_name_that_is_no_text_is_a_value_error(version: int) -> None:
    with pytest.raises(ValueError, match="does not fit ProduceRequest"):
        encode(version, [ProduceTopic("\ud800", UUID(int=1), [])])
