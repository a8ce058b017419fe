"""Ends of transactions in the narrow windows: the end before is not done, an answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from support.stage import Stage
from support.transactional_acts import committed, perform, settled, slow_markers

from aioproducer import Producer, TopicPartition
from aioproducer.wire.api_keys import ApiKey

LEVELS = pytest.mark.parametrize("level", [1, 2])
POSITION = {TopicPartition("u", 0): 1}
REQUESTED_S = 0.01
"""Enough for a request and its answer, and less than a backoff."""


async def sends(producer: Producer) -> None:
    await producer.send("t", b"aborted")


async def sends_offsets(producer: Producer) -> None:
    await producer.send_offsets_to_transaction(POSITION, "group")


WORK = pytest.mark.parametrize("work", [sends, sends_offsets])
Work = Callable[[Producer], Awaitable[None]]


async def abandoned(producer: Producer, work: Work) -> None:
    """Begins a transaction and aborts it after its first request."""
    await producer.begin_transaction()
    working = asyncio.create_task(work(producer))
    await asyncio.sleep(REQUESTED_S)
    await producer.abort_transaction()
    await asyncio.wait([working])
    working.exception()


async def one_more(stage: Stage, value: bytes) -> None:
    async with stage.producer.transaction() as tx:
        await stage.producer.send("t", value)
        await tx.send_offsets(POSITION, "group")


@LEVELS
@WORK
@pytest.mark.parametrize("delay_ms", [0, 20, 50, 500])
@pytest.mark.parametrize("before", ["commit", "abort"])
def test_a_transaction_is_aborted_while_the_markers_of_the_one_before_are_written(
    level: int, work: Work, delay_ms: int, before: str
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await one_more(stage, b"first")
        slow_markers(stage, delay_ms)
        await producer.begin_transaction()
        await producer.send_and_wait("t", before.encode())
        if before == "commit":
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
        await abandoned(producer, work)
        slow_markers(stage, 0)
        await one_more(stage, b"last")
        await settled(stage)
        middle = [b"commit"] if before == "commit" else []
        assert committed(stage) == [b"first", *middle, b"last"]

    perform(act, level)


@LEVELS
@WORK
@pytest.mark.parametrize("delay_ms", [20, 500])
def test_closing_aborts_while_the_markers_of_the_one_before_are_written(
    level: int, work: Work, delay_ms: int
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await one_more(stage, b"first")
        slow_markers(stage, delay_ms)
        await one_more(stage, b"second")
        await producer.begin_transaction()
        working = asyncio.create_task(work(producer))
        await asyncio.sleep(REQUESTED_S)
        await producer.close()
        await asyncio.wait([working])
        working.exception()
        assert stage.engine.failure is None
        assert stage.loop.time() < 10
        await settled(stage)
        await settled(stage)
        assert committed(stage) == [b"first", b"second"]
        assert not stage.world.cluster.transactions.transactions["tx"].is_pending

    perform(act, level)


ADDITIONS = pytest.mark.parametrize(
    ("api", "work"),
    [(ApiKey.ADD_PARTITIONS_TO_TXN, sends), (ApiKey.ADD_OFFSETS_TO_TXN, sends_offsets)],
)


@ADDITIONS
@pytest.mark.parametrize("apply", [True, False])
@pytest.mark.parametrize("code", [None, 7, 14, 15, 16])
def test_v1_ends_what_may_have_begun_although_no_answer_says_so(
    api: ApiKey, work: Work, apply: bool, code: int | None
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await one_more(stage, b"first")
        if code is None:
            stage.faults.drop(api, apply=apply)
        else:
            stage.faults.error(api, code, apply=apply)
        await abandoned(producer, work)
        assert not stage.world.cluster.transactions.transactions["tx"].is_pending
        await one_more(stage, b"last")
        await settled(stage)
        assert committed(stage) == [b"first", b"last"]

    perform(act, level=1)


@ADDITIONS
@pytest.mark.parametrize("apply", [True, False])
def test_v1_ends_what_may_have_begun_when_it_closes(api: ApiKey, work: Work, apply: bool) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        stage.faults.drop(api, apply=apply)
        await producer.begin_transaction()
        working = asyncio.create_task(work(producer))
        await asyncio.sleep(REQUESTED_S)
        await producer.close()
        await asyncio.wait([working])
        working.exception()
        assert not stage.world.cluster.transactions.transactions["tx"].is_pending

    perform(act, level=1)


@ADDITIONS
@pytest.mark.parametrize("apply", [True, False])
def test_v1_ends_what_may_have_begun_before_the_addition_was_refused_for_good(
    api: ApiKey, work: Work, apply: bool
) -> None:
    refused = 29 if api is ApiKey.ADD_PARTITIONS_TO_TXN else 30

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await one_more(stage, b"first")
        stage.faults.drop(api, apply=apply)
        stage.faults.error(api, refused)
        await producer.begin_transaction()
        working = asyncio.create_task(work(producer))
        await asyncio.sleep(2)
        assert working.done()
        working.exception()
        await producer.abort_transaction()
        await one_more(stage, b"last")
        await settled(stage)
        assert committed(stage) == [b"first", b"last"]

    perform(act, level=1)
