"""send_many when things go wrong: every item is accounted for, and the call ends in time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from support.waiting import until

from aioproducer import Producer, TopicPartition
from aioproducer.errors import KafkaError, MetadataTimeoutError, ProducerClosedError
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


async def test_failures_of_a_cancelled_call_are_reported_as_unretrieved(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, 19, times=None)
    reported: list[int] = []

    def on_delivery_error(where: TopicPartition, count: int, error: KafkaError) -> None:
        reported.append(count)

    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        request_timeout_ms=200,
        delivery_timeout_ms=400,
        linger_ms=0,
        on_delivery_error=on_delivery_error,
    ) as producer:
        await producer.warm_up(["t"])
        call = asyncio.create_task(producer.send_many("t", [b"v"] * 10))
        await until(lambda: producer.metrics()["record_send_total"] == 10)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        del call
        await until(lambda: gc.collect() >= 0 and sum(reported) == 10)
        assert producer.metrics()["unretrieved_failure_total"] == sum(reported) == 10


async def test_closing_meanwhile_reports_what_was_delivered(cluster: EmbeddedCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
    await producer.start()

    async def items() -> AsyncIterator[bytes]:
        for number in range(100):
            yield b"%d" % number
            if number == 50:
                await producer.close()

    with pytest.raises(SendManyInterruptedError) as caught:
        await producer.send_many("t", items())
    assert isinstance(caught.value.__cause__, ProducerClosedError)
    result = caught.value.result
    assert (result.count, result.delivered) == (51, 51)
    assert list(result.offsets.values()) == [(0, 50)]
    assert len((await read_topic(cluster.bootstrap_servers, "t", timeout_s=20))[0]) == 51


async def test_items_that_raise_report_what_was_delivered(cluster: EmbeddedCluster) -> None:
    def items() -> object:
        yield b"a"
        yield b"b"
        raise LookupError("the source is gone")

    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(SendManyInterruptedError, match="the source is gone") as caught:
            await producer.send_many("t", items())  # type: ignore[arg-type]
        assert (caught.value.result.count, caught.value.result.delivered) == (2, 2)


async def test_an_unknown_topic_is_waited_for_once_and_not_by_every_item(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        max_block_ms=400,
        allow_auto_create_topics=False,
    ) as producer:
        # Every item on its own would wait for 40 s.
        async with asyncio.timeout(10):
            result = await producer.send_many("no-such-topic", [b"v"] * 100)
    assert (result.count, result.delivered, len(result.failed)) == (100, 0, 100)
    assert isinstance(result.failed[0].error, MetadataTimeoutError)


async def test_kept_errors_keep_no_frames(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        result = await producer.send_many("t", ["a str", b"v" * 2_000_000])
    assert len(result.failed) == 2
    for failed in result.failed:
        error: BaseException | None = failed.error
        while error is not None:
            assert error.__traceback__ is None
            error = error.__cause__


async def test_a_million_refusals_would_not_hold_the_loop(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.warm_up(["t"])
        call = asyncio.create_task(producer.send_many("t", ["a str"] * 1000))
        turns = 0
        while not call.done():
            await asyncio.sleep(0)
            turns += 1
        assert len((await call).failed) == 1000
    assert turns >= 10
