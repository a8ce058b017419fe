"""The plain acknowledgement of a single record: it is read as the decoder does, or not."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.testing.framing import encode_response
from aioproducer.wire.acknowledgement import Position, position_after
from aioproducer.wire.framing import decode_response, frame_size
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from aioproducer.wire.produce import ProduceRequestTemplate

TOPIC_ID = UUID(int=9)
POSITION = (2**40, -1, 5)


def see(form: ProduceRequestTemplate, data: bytes, id_: int) -> Position | None:
    """Return what is read in some bytes, as the response to a correlation id."""
    return position_after(form.acknowledgement(id_), data)


def partitions() -> st.SearchStrategy[PartitionProduceResponse]:
    number = st.integers(-1, 2**63 - 1)
    return st.builds(
        PartitionProduceResponse,
        index=st.integers(0, 9),
        error_code=st.sampled_from([0, 0, 0, 6]),
        base_offset=number,
        log_append_time_ms=number,
        log_start_offset=number,
        error_message=st.sampled_from([None, None, None, "no"]),
    )


@given(
    partitions=st.lists(partitions(), min_size=1, max_size=2),
    topics=st.sampled_from([1, 1, 1, 2]),
    throttle_ms=st.sampled_from([0, 0, 0, 9]),
    version=st.integers(3, 13),
    cut=st.sampled_from([0, 0, 0, -1, -24, 1]),
    flip=st.none() | st.integers(0, 99),
)
def test_sees_what_the_decoder_says_or_nothing(
    partitions: list[PartitionProduceResponse],
    topics: int,
    throttle_ms: int,
    version: int,
    cut: int,
    flip: int | None,
) -> None:
    usual = answer(version, *partitions, throttle_ms=throttle_ms, topics=topics)
    data = usual[:cut] if cut < 0 else usual + bytes(cut)
    if flip is not None and flip < len(data):
        data = data[:flip] + bytes((data[flip] ^ 1,)) + data[flip + 1 :]
    seen = see(form(version, partitions[0].index), data, 7)
    is_usual = version >= 9 and data == usual and len(partitions) == topics == 1 and not throttle_ms
    first = partitions[0]
    if is_usual and not first.error_code and not first.error_message and first.base_offset >= 0:
        assert seen is not None
    if seen is not None:
        assert frame_size(data[:4]) == len(data) - 4
        whole = decode_response(ProduceRequest, version, data[4:])[1]
        assert isinstance(whole, ProduceResponse)
        ((one,),) = (topic.partition_responses for topic in whole.responses)
        assert not whole.throttle_time_ms
        assert not one.error_code
        assert seen == (one.base_offset, one.log_append_time_ms, one.log_start_offset)


def test_sees_no_answer_but_its_own() -> None:
    data = answer(13, stands())
    assert see(form(13, 3), data, 7) == POSITION
    assert see(form(13, 3), data, 8) is None
    assert see(form(13, 4), data, 7) is None
    assert see(form(13, 3, topic_id=UUID(int=10)), data, 7) is None
    assert see(form(12, 3), data, 7) is None
    assert see(form(8, 3), data, 7) is None


@pytest.mark.parametrize("number", [-1, 0, 5])
def test_has_the_fields_of_the_broker(number: int) -> None:
    data = answer(13, PartitionProduceResponse(3, 0, 0, number, number))
    assert see(form(13, 3), data, 7) == (0, number, number)


@pytest.mark.parametrize("version", range(9, 13))
def test_sees_the_answer_of_a_broker_that_names_the_topic(version: int) -> None:
    data = answer(version, stands())
    assert see(form(version, 3), data, 7) == POSITION
    assert see(form(version, 3, topic="u"), data, 7) is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda: answer(13, stands(offset=-1)), id="of a duplicate"),
        pytest.param(lambda: answer(13, stands(error_code=1)), id="an error"),
        pytest.param(lambda: answer(13, stands(), throttle_ms=1), id="to be obeyed"),
        pytest.param(lambda: answer(13, stands())[:-1], id="cut"),
        pytest.param(lambda: 2 * answer(13, stands()), id="two"),
        pytest.param(lambda: b"", id="nothing"),
    ],
)
def test_other_responses_are_left_to_the_decoder(data: Callable[[], bytes]) -> None:
    assert see(form(13, 3), data(), 7) is None


def stands(*, offset: int = 2**40, error_code: int = 0) -> PartitionProduceResponse:
    return PartitionProduceResponse(3, error_code, offset, -1, 5)


def answer(
    version: int, *partitions: PartitionProduceResponse, throttle_ms: int = 0, topics: int = 1
) -> bytes:
    """As it comes, size included."""
    parts = list(partitions)
    topic = TopicProduceResponse("t", partition_responses=parts)
    if version >= 13:
        topic = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=parts)
    return encode_response(ProduceResponse([topic] * topics, throttle_ms), version, 7)


def form(
    version: int, partition: int, *, topic: str = "t", topic_id: UUID = TOPIC_ID
) -> ProduceRequestTemplate:
    return ProduceRequestTemplate(
        version,
        None,
        acks=-1,
        timeout_ms=1,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
    )
