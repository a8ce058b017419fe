"""Outcomes of requests."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import KafkaError, NodeDisconnectedError, ProducerFailedError
from aioproducer.net.connection import InFlightRequest, outcome_of
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.schema import Message
from net.virtual import virtual_time


def new_future() -> asyncio.Future[Message | None]:
    return asyncio.get_running_loop().create_future()


@virtual_time
async def test_the_outcome_of_a_request_is_its_error_or_its_answer() -> None:
    answered, unanswered = new_future(), new_future()
    answer = MetadataResponse()
    answered.set_result(answer)
    unanswered.set_result(None)
    assert outcome_of(answered) == (None, answer)
    assert outcome_of(unanswered) == (None, None)
    failed = new_future()
    failure = NodeDisconnectedError("gone")
    failed.set_exception(failure)
    assert outcome_of(failed) == (failure, None)


@virtual_time
async def test_a_cancelled_request_fails_as_with_its_connection() -> None:
    cancelled = new_future()
    cancelled.cancel()
    error, answer = outcome_of(cancelled)
    assert isinstance(error, NodeDisconnectedError)
    assert "the request was cancelled" in str(error)
    assert answer is None


@virtual_time
async def test_an_error_that_is_none_of_kafka_is_named_in_one_that_is() -> None:
    failed = new_future()
    failed.set_exception(ZeroDivisionError("a bug"))
    error, answer = outcome_of(failed)
    assert isinstance(error, ProducerFailedError)
    assert "ZeroDivisionError('a bug')" in str(error)
    assert answer is None


@virtual_time
async def test_a_request_ends_once() -> None:
    ends: list[tuple[Message | None, KafkaError | None]] = []
    loop = asyncio.get_running_loop()
    failure = NodeDisconnectedError("gone")
    for is_answered in (True, False):
        ends.clear()
        request = InFlightRequest(
            MetadataRequest,
            9,
            1,
            [],
            0.0,
            on_end=lambda answer, error: ends.append((answer, error)),
        )
        if is_answered:
            request.finish(MetadataResponse())
            assert len(ends) == 1, "at once"
        for _ in range(2):
            request.finish_soon(loop, failure)
        await asyncio.sleep(0)
        assert ends == [(MetadataResponse(), None) if is_answered else (None, failure)]


@virtual_time
async def test_a_request_whose_callback_raises_fails_with_its_connection() -> None:
    ends: list[tuple[Message | None, KafkaError | None]] = []

    def end(answer: Message | None, error: KafkaError | None) -> None:
        ends.append((answer, error))
        if error is None:
            raise ZeroDivisionError

    request = InFlightRequest(MetadataRequest, 9, 1, [], 0.0, on_end=end)
    with pytest.raises(ZeroDivisionError):
        request.finish(MetadataResponse())
    failure = NodeDisconnectedError("gone")
    request.finish_soon(asyncio.get_running_loop(), failure)
    await asyncio.sleep(0)
    assert ends == [(MetadataResponse(), None), (None, failure)]


@virtual_time
async def test_a_request_whose_caller_has_gone_ends_without_an_error() -> None:
    for answer in (MetadataResponse(), None):
        future = new_future()
        request = InFlightRequest(MetadataRequest, 9, 1, [], 0.0, future=future)
        future.cancel()
        if answer is None:
            request.finish_soon(asyncio.get_running_loop(), NodeDisconnectedError("gone"))
        else:
            request.finish(answer)
        assert future.cancelled()
