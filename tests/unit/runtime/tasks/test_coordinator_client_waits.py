"""Waits of questions to coordinators: for answers, backoffs, throttles and brokers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer.config import ProducerConfig
from aioproducer.core.transactions import coordinator_queries
from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.errors import KafkaConnectionError, KafkaTimeoutError
from aioproducer.net.client import PreparedRequest
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import MetadataRequest

COORDINATOR_NOT_AVAILABLE = 15


def client_on(stage: Stage) -> CoordinatorClient:
    return CoordinatorClient(
        ProducerConfig(**stage.world.spec.options),
        dialer=stage.world.network,
        rng=random.Random(1),
    )


def committed() -> CoordinatorQuery[Any]:
    return coordinator_queries.committed("group", None)


def open_transactions() -> CoordinatorQuery[list[str]]:
    return coordinator_queries.list_open("tx", None)


def test_a_question_that_is_not_answered_is_repeated_after_the_request_timeout() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        stage.faults.swallow(ApiKey.OFFSET_FETCH)
        assert await client.ask(committed()) == {}
        assert 2 < stage.loop.time() < 2.5
        await client.close()

    play(act, request_timeout_ms=2_000)


def test_a_request_of_another_encoder_that_is_not_answered_ends_at_max_block_ms() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        await client.ask_broker(1, open_transactions())
        stage.faults.swallow(ApiKey.METADATA)
        began = stage.loop.time()
        with pytest.raises(KafkaTimeoutError, match="no response within max_block_ms=3000") as late:
            await client.relay(
                1,
                lambda _: PreparedRequest.of(
                    MetadataRequest(topics=[], allow_auto_topic_creation=False)
                ),
            )
        assert late.value.node_id == 1
        assert stage.loop.time() - began == pytest.approx(3)
        await client.close()

    play(act, max_block_ms=3_000)


@pytest.mark.parametrize(("failures", "backoff_s"), [(1, 0.1), (2, 0.3), (3, 0.7)])
def test_the_backoff_begins_with_retry_backoff_ms_and_doubles(
    failures: int, backoff_s: float
) -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        await client.ask(open_transactions())
        stage.faults.error(ApiKey.FIND_COORDINATOR, COORDINATOR_NOT_AVAILABLE, times=failures)
        began = stage.loop.time()
        await client.ask(committed())
        jitter = 0.2 * backoff_s
        assert stage.loop.time() - began == pytest.approx(backoff_s + 0.01, abs=jitter + 0.02)
        await client.close()

    play(act, retry_backoff_ms=100)


def test_a_throttle_is_waited_for_exactly() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        stage.faults.throttle(300, ApiKey.LIST_TRANSACTIONS)
        await client.ask_broker(1, open_transactions())
        began = stage.loop.time()
        await client.ask_broker(1, open_transactions())
        assert 0.29 < stage.loop.time() - began < 0.35
        await client.close()

    play(act)


def test_a_broker_that_is_back_is_asked_within_a_second_after_the_end_of_its_backoff() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        stage.crash()
        with pytest.raises(KafkaConnectionError):
            await client.ask_broker(1, open_transactions())
        failed_at = stage.loop.time()
        stage.revive()
        await client.ask(open_transactions())
        assert 2 < stage.loop.time() - failed_at < 3.5
        await client.close()

    play(act, reconnect_backoff_ms=2_500, reconnect_backoff_max_ms=2_500)


def test_an_earlier_failure_to_connect_does_not_end_a_later_question() -> None:
    async def act(stage: Stage) -> None:
        client = client_on(stage)
        await client.ask_broker(1, open_transactions())
        stage.crash()
        for _ in range(2):
            with pytest.raises(KafkaConnectionError):
                await client.ask_broker(1, open_transactions())
        stage.revive()
        await asyncio.sleep(2)
        assert await client.ask_broker(1, open_transactions()) == []
        await client.close()

    play(act)
