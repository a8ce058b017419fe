"""Reports of failures: never "not persisted" for a written record, and no flood."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator

import pytest
from support.waiting import until

from aioproducer import Persistence, Producer, TopicPartition
from aioproducer.errors import KafkaError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1, "wide": 200}) as cluster:
        yield cluster


def unretrieved(producer: Producer) -> float:
    gc.collect()
    return producer.metrics()["unretrieved_failure_total"]


@pytest.mark.parametrize("code", [-1, 3, 6, 7, 13, 20, 56, 9999])
async def test_a_written_record_is_not_called_not_persisted(
    cluster: EmbeddedCluster, code: int
) -> None:
    cluster.state.faults.error(ApiKey.PRODUCE, code, apply=True)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, retries=0, enable_idempotence=False
    ) as producer:
        with pytest.raises(KafkaError) as caught:
            await producer.send_and_wait("t", b"v")
    assert len((await read_topic(cluster.bootstrap_servers, "t", timeout_s=20))[0]) == 1
    assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED


async def test_many_unretrieved_failures_of_one_broker_make_few_log_lines(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        request_timeout_ms=200,
        delivery_timeout_ms=400,
        linger_ms=0,
    ) as producer:
        await producer.warm_up(["wide"])
        cluster.freeze_broker(1)
        with caplog.at_level(logging.WARNING, logger="aioproducer"):
            for partition in range(200):
                await producer.send("wide", b"v", partition=partition)
            await until(lambda: unretrieved(producer) == 200)
        cluster.thaw_broker(1)
    lines = [record for record in caplog.records if record.name.startswith("aioproducer")]
    assert 1 <= len(lines) <= 40


async def test_on_delivery_error_runs_in_the_loop_whatever_thread_collects_garbage(
    cluster: EmbeddedCluster,
) -> None:
    threads: list[threading.Thread] = []

    def on_delivery_error(where: TopicPartition, count: int, error: KafkaError) -> None:
        threads.append(threading.current_thread())
        asyncio.get_running_loop()

    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        retries=0,
        enable_idempotence=False,
        linger_ms=0,
        on_delivery_error=on_delivery_error,
    ) as producer:
        cluster.state.faults.error(ApiKey.PRODUCE, 19)
        gc.disable()
        try:
            circle: list[object] = []
            circle.append(circle)
            circle.append(await producer.send("t", b"v"))
            await until(lambda: producer.metrics()["record_error_total"] == 1)
            del circle
            await asyncio.to_thread(gc.collect)
        finally:
            gc.enable()
        await until(lambda: len(threads) > 0)
    assert threads == [threading.current_thread()]
