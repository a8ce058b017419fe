"""Start, close and misuse: every call ends, with an error that says what to do."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import threading
import warnings
from collections.abc import AsyncIterator, Callable

import pytest

from aioproducer import Persistence, Producer, ProducerConfig
from aioproducer.errors import (
    BootstrapError,
    ConfigError,
    ForkedError,
    IllegalStateError,
    ProducerClosedError,
    ProducerFailedError,
    RecordsPurgedError,
    WrongLoopError,
)
from aioproducer.metrics.prometheus import ProducerCollector
from aioproducer.starlette import publish_quietly
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


def test_a_producer_needs_no_loop_to_be_made() -> None:
    producer = Producer(bootstrap_servers="localhost:9092", linger_ms=7)
    assert producer.config.linger_ms == 7
    assert "not started" in repr(producer)


def test_a_ready_config_is_taken_and_overridden_by_keywords() -> None:
    config = ProducerConfig(bootstrap_servers="localhost:9092", linger_ms=1)
    assert Producer(config).config is config
    assert Producer(config, linger_ms=2).config.linger_ms == 2
    with pytest.raises(ConfigError, match="linger_ms"):
        Producer(bootstrap_servers="localhost:9092", lingr_ms=1)


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_a_copy_of_a_started_producer_is_refused_and_does_not_close_it(
    cluster: EmbeddedCluster, act: Callable[[object], object]
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    assert act(producer) is not producer
    async with producer:
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            act(producer)
        gc.collect()
        await producer.send_and_wait("t", b"v")
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        act(producer)


async def test_a_subclass_may_compare_producers(cluster: EmbeddedCluster) -> None:
    class Equal(Producer):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # type: ignore[assignment]

    first, second = (Equal(bootstrap_servers=cluster.bootstrap_servers) for _ in range(2))
    async with first, second:
        collector = ProducerCollector(first, second)
        await publish_quietly(second, "t", 5)
        (family,) = (each for each in collector.collect() if each.name.endswith("r_record_error"))
        assert len(family.samples) == 2


async def test_send_before_start_raises_at_once() -> None:
    producer = Producer(bootstrap_servers="localhost:9092")
    with pytest.raises(IllegalStateError, match="start"):
        await producer.send("t", b"v")
    with pytest.raises(IllegalStateError):
        producer.send_nowait("t", b"v")
    with pytest.raises(IllegalStateError):
        await producer.flush()
    await producer.close()


async def test_everything_after_close_raises_at_once(cluster: EmbeddedCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    await producer.close()
    await producer.close()
    for call in (
        producer.send("t", b"v"),
        producer.send_and_wait("t", b"v"),
        producer.send_many("t", [b"v"]),
        producer.flush(),
        producer.partitions_for("t"),
        producer.warm_up(["t"]),
    ):
        with pytest.raises(ProducerClosedError):
            await call
    with pytest.raises(IllegalStateError, match="closed"):
        await producer.start()


async def test_a_second_start_is_refused(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(IllegalStateError, match="once"):
            await producer.start()
        await producer.send_and_wait("t", b"v")


async def test_another_loop_is_refused(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        delivery = await producer.send("t", b"v")
        caught: list[BaseException] = []

        async def misuse() -> None:
            for wrong in (producer.send("t", b"v"), producer.flush()):
                try:
                    await wrong
                except WrongLoopError as error:
                    caught.append(error)

        def other_thread() -> None:
            asyncio.run(misuse())

        thread = threading.Thread(target=other_thread)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(caught) == 2
        await delivery


async def test_a_pending_delivery_is_refused_to_another_loop(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=500) as producer:
        delivery = await producer.send("t", b"v")

        async def misuse() -> None:
            await delivery

        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(lambda: asyncio.run(misuse()))
        assert (await delivery).offset == 0


async def _is_refused_in_a_child(producer: Producer) -> bool:
    """Return whether `send_nowait` raises `ForkedError` in a forked child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: threads and fork
        pid = os.fork()
    if pid == 0:
        try:
            producer.send_nowait("t", b"v")
        except ForkedError:
            os._exit(0)
        finally:
            os._exit(1)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    return os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_forked_child_gets_an_error(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert await _is_refused_in_a_child(producer)
        await producer.send_and_wait("t", b"the parent goes on")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_child_that_is_forked_during_the_start_gets_the_same_error() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=500)
    starting = asyncio.create_task(producer.start())
    await asyncio.sleep(0)
    assert await _is_refused_in_a_child(producer)
    with pytest.raises(BootstrapError):
        await starting


async def test_start_without_a_broker_ends_in_time_and_says_why() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=500)
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        await producer.start()
    assert loop.time() - started < 5
    with pytest.raises(IllegalStateError):
        await producer.send("t", b"v")


async def test_async_with_cleans_up_when_start_fails() -> None:
    with pytest.raises(BootstrapError):
        async with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300):
            pytest.fail("entered")  # pragma: no cover


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    task = asyncio.create_task(producer.start())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_close_with_timeout_fails_what_is_left(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.swallow(ApiKey.PRODUCE, times=None)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    delivery = await producer.send("t", b"v")
    assert await producer.flush(timeout=0.1) == 1
    await producer.close(timeout=0.1)
    error = delivery.exception()
    assert isinstance(error, ProducerClosedError)
    assert error.persistence is Persistence.POSSIBLY_PERSISTED


async def test_close_at_once_does_not_wait(cluster: EmbeddedCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=5000)
    await producer.start()
    delivery = await producer.send("t", b"v")
    await producer.close(timeout=0)
    error = delivery.exception()
    assert isinstance(error, ProducerClosedError)
    assert error.persistence is Persistence.NOT_PERSISTED


async def test_close_wakes_a_send_that_waits_for_metadata(cluster: EmbeddedCluster) -> None:
    cluster.state.faults.error(ApiKey.METADATA, 5, times=None)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    waiting = asyncio.create_task(producer.send("other", b"v"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await waiting


async def test_a_framework_that_cancels_all_tasks_leaves_a_producer_that_fails_fast(
    cluster: EmbeddedCluster,
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=500)
    await producer.start()
    delivery = await producer.send("t", b"v")
    for task in asyncio.all_tasks():
        if task.get_name().startswith("aioproducer-sender"):
            task.cancel()
    with pytest.raises(ProducerFailedError, match="cancelled"):
        await delivery
    with pytest.raises(ProducerFailedError):
        await producer.send("t", b"v")
    assert producer.health().state == "failed"
    await producer.close()


async def test_an_unclosed_producer_warns(cluster: EmbeddedCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    engine = producer._engine
    with pytest.warns(ResourceWarning, match="unclosed"):
        del producer
        gc.collect()
    assert engine is not None
    await engine.close(0)


async def test_purge_fails_what_waits_and_says_whether_it_may_be_written(
    cluster: EmbeddedCluster,
) -> None:
    cluster.state.faults.swallow(ApiKey.PRODUCE, times=1)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=1000
    ) as producer:
        sent = await producer.send("t", b"on its way")
        for _ in range(200):
            if producer.metrics()["requests_in_flight"]:
                break
            await asyncio.sleep(0.005)
        queued = await producer.send("t", b"behind it")
        assert producer.purge(queued=True) == 1
        error = queued.exception()
        assert isinstance(error, RecordsPurgedError)
        assert error.persistence is Persistence.NOT_PERSISTED
        assert not sent.done()
        assert producer.purge(queued=False, in_flight=True) == 1
        error = sent.exception()
        assert isinstance(error, RecordsPurgedError)
        assert error.persistence is Persistence.POSSIBLY_PERSISTED
        # The sequences of both are never given to others.
        assert (await producer.send_and_wait("t", b"after")).offset == 0
