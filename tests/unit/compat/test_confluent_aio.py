"""confluent-kafka's asyncio producer here, on an embedded cluster."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import warnings
from collections.abc import AsyncIterator
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import pytest

from aioproducer.compat import confluent
from aioproducer.compat.confluent import KafkaError
from aioproducer.compat.confluent.aio import AIOProducer
from aioproducer.compat.confluent.message import Message
from aioproducer.testing import EmbeddedCluster, TopicSpec, read_topic

WAIT_S = 20.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    topics = {"t": 1, "small": TopicSpec(1, 1, {"max.message.bytes": "200"})}
    async with EmbeddedCluster(brokers=1, topics=topics) as running:
        yield running


@pytest.fixture
async def producer(cluster: EmbeddedCluster) -> AsyncIterator[AIOProducer]:
    async with AIOProducer({"bootstrap.servers": cluster.bootstrap_servers}) as running:
        yield running


async def values(cluster: EmbeddedCluster) -> list[bytes | None]:
    partitions = await read_topic(cluster.bootstrap_servers, "t", isolation_level="read_committed")
    return [record.value for record in partitions[0]]


async def test_delivery_is_awaited_in_two_steps(producer: AIOProducer) -> None:
    message = await (await producer.produce("t", "value", "key", headers={"h": "x"}))
    assert isinstance(message, confluent_kafka.Message)
    assert (message.topic(), message.offset(), message.value()) == ("t", 0, b"value")
    assert (message.headers(), message.error()) == ([("h", b"x")], None)


async def test_call_with_a_wrong_timeout_leaves_no_coroutine(producer: AIOProducer) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for call in (producer.list_topics, producer.cluster_id):
            with pytest.raises(TypeError):
                await call(timeout="1")  # type: ignore[arg-type]
        gc.collect()
    assert not seen


async def test_a_copy_is_refused_and_does_not_close_the_producer(producer: AIOProducer) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.copy(producer)
    gc.collect()
    assert (await (await producer.produce("t", "value"))).offset() == 0


async def test_futures_are_done_in_the_order_of_offsets_without_poll(
    producer: AIOProducer,
) -> None:
    futures = [await producer.produce("t", str(number)) for number in range(300)]
    messages = await asyncio.gather(*futures)
    assert [m.offset() for m in messages] == list(range(300))
    assert [int(m.value() or b"-1") for m in messages] == list(range(300))
    assert len(producer) == 0
    assert await producer.poll(0) == 300
    assert await producer.poll(0) == 0


async def test_flush_waits_for_every_outcome(producer: AIOProducer) -> None:
    futures = [await producer.produce("t", "v") for _ in range(10)]
    assert len(producer) == 10
    assert await producer.flush(WAIT_S) == 0
    assert all(future.done() for future in futures)


async def test_flush_returns_what_is_left_when_its_timeout_ends() -> None:
    producer = AIOProducer(NOWHERE)
    future = await producer.produce("t", "v")
    assert await producer.flush(0.01) == 1
    await producer.purge()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        await future
    assert raised.value.args[0].code() == KafkaError._PURGE_QUEUE
    await producer.close()


@pytest.mark.timeout(60)
async def test_flush_ends_when_the_records_have_failed_although_no_broker_was_reached() -> None:
    producer = AIOProducer(NOWHERE | {"message.timeout.ms": 50, "linger.ms": 0})
    futures = [await producer.produce(topic, "v") for topic in ("t", "other")]
    assert await producer.flush() == 0
    for future in futures:
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await future
        assert raised.value.args[0].code() == KafkaError._MSG_TIMED_OUT
    await producer.close()


async def test_refused_record_raises_what_confluent_kafka_raises(producer: AIOProducer) -> None:
    future = await producer.produce("small", b"x" * 1000)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        await future
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE


async def test_partition_that_does_not_exist_fails_its_record_and_delays_no_other(
    producer: AIOProducer,
) -> None:
    for _ in ("the topic is new", "it is known"):
        wrong = await producer.produce("t", "v", partition=7)
        right = await producer.produce("t", "v")
        async with asyncio.timeout(WAIT_S):  # less than the 60 s of `max.block.ms`
            with pytest.raises(confluent_kafka.KafkaException) as raised:
                await wrong
            await right
        assert raised.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


async def test_callback_comes_before_the_future_is_done(producer: AIOProducer) -> None:
    seen: list[Any] = []
    future = await producer.produce("t", "v", on_delivery=lambda e, m: seen.append((e, m)))
    message = await future
    assert seen == [(None, message)]


async def test_none_counts_as_left_out_and_callback_is_another_name(producer: AIOProducer) -> None:
    seen: list[Any] = []
    future = await producer.produce(
        "t", "v", partition=None, timestamp=None, callback=lambda *outcome: seen.append(outcome)
    )
    message = await future
    assert seen == [(None, message)]
    assert (message.partition(), message.offset()) == (0, 0)


@pytest.mark.parametrize("wrong", [None, "x", []])
async def test_configuration_is_a_mapping(wrong: Any) -> None:
    with pytest.raises(TypeError, match="expected configuration dict"):
        AIOProducer(wrong)


async def test_callback_may_be_false(producer: AIOProducer) -> None:
    class Collected(list[Any]):
        def __call__(self, error: Any, message: Any) -> None:
            self.append(message)

    seen = Collected()
    message = await (await producer.produce("t", "v", on_delivery=seen))
    assert seen == [message]


async def test_futures_are_done_although_callbacks_are_for_errors_alone(
    cluster: EmbeddedCluster,
) -> None:
    seen: list[Any] = []
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, message: seen.append(message.topic()),
    }
    async with AIOProducer(options) as producer:
        future = await producer.produce("t", "v")
        refused = await producer.produce("small", b"x" * 1000)
        assert (await future).value() == b"v"
        with pytest.raises(confluent_kafka.KafkaException):
            await refused
    assert seen == ["small"]


async def test_exception_of_a_callback_is_that_of_the_future(producer: AIOProducer) -> None:
    def failing(error: Any, message: Any) -> None:
        raise ZeroDivisionError

    future = await producer.produce("t", "v", on_delivery=failing)
    other = await producer.produce("t", "w")
    with pytest.raises(ZeroDivisionError):
        await future
    assert (await other).value() == b"w"


@pytest.mark.parametrize("error", [StopIteration, asyncio.CancelledError])
async def test_exception_of_a_callback_that_no_future_may_have_is_a_runtime_error(
    producer: AIOProducer, error: type[BaseException]
) -> None:
    def failing(*_: Any) -> None:
        raise error

    future = await producer.produce("t", "v", on_delivery=failing)
    other = await producer.produce("t", "w")
    with pytest.raises(RuntimeError, match=error.__name__):
        await asyncio.wait_for(future, WAIT_S)
    assert (await asyncio.wait_for(other, WAIT_S)).value() == b"w"


async def test_cancelled_future_does_not_disturb_others(producer: AIOProducer) -> None:
    future = await producer.produce("t", "v")
    other = await producer.produce("t", "w")
    future.cancel()
    assert (await other).offset() == 1


async def test_produce_waits_for_room(cluster: EmbeddedCluster) -> None:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.messages": 1}
    async with AIOProducer(options) as producer:
        first = await producer.produce("t", "a")
        assert not first.done()
        second = await producer.produce("t", "b")
        assert first.done()
        await second
    assert await values(cluster) == [b"a", b"b"]


async def test_transactions(cluster: EmbeddedCluster) -> None:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "aio"}
    async with AIOProducer(options) as producer:
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await producer.produce("t", "early")
        assert raised.value.args[0].code() == KafkaError._STATE
        await producer.init_transactions(WAIT_S)
        await producer.begin_transaction()
        await producer.produce("t", "committed")
        await producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition("t", 0, 1)], "group"
        )
        await producer.commit_transaction(WAIT_S)
        await producer.begin_transaction()
        future = await producer.produce("t", "aborted")
        await producer.abort_transaction()
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await future
        assert raised.value.args[0].code() == KafkaError._PURGE_QUEUE
        await producer.begin_transaction()
        refused = await producer.produce("small", b"x" * 1000)
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await producer.commit_transaction(WAIT_S)
        assert raised.value.args[0].txn_requires_abort()
        assert refused.exception() is not None
        await producer.abort_transaction()
    assert await values(cluster) == [b"committed"]


async def test_transactional_call_ends_with_its_timeout() -> None:
    producer = AIOProducer(NOWHERE | {"transactional.id": "nowhere"})
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        await producer.init_transactions(0.01)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    await producer.close()


async def test_transactional_call_needs_a_transactional_id(producer: AIOProducer) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        await producer.begin_transaction()
    assert raised.value.args[0].code() == KafkaError._NOT_CONFIGURED


async def test_close_delivers_and_ends_the_producer(cluster: EmbeddedCluster) -> None:
    producer = AIOProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000}, max_workers=2
    )
    future = await producer.produce("t", "v")
    await producer.close()
    await producer.close()
    assert (await future).offset() == 0
    for call in (producer.produce("t", "v"), producer.flush(), producer.poll()):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            await call


async def test_each_call_of_close_returns_when_all_is_delivered(cluster: EmbeddedCluster) -> None:
    producer = AIOProducer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000})
    future = await producer.produce("t", "v")
    cancelled = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert cancelled.cancelled()
    assert not future.done()
    await asyncio.gather(producer.close(), producer.close())
    assert future.done()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_close_at_the_end_of_the_start_leaves_no_task(cluster: EmbeddedCluster) -> None:
    producer = AIOProducer({"bootstrap.servers": cluster.bootstrap_servers})
    await asyncio.sleep(0)
    (starting,) = (each for each in asyncio.all_tasks() if "Lifecycle.start" in repr(each))
    async with asyncio.timeout(WAIT_S):
        while not starting.done():  # noqa: ASYNC110  # nothing may run in between
            await asyncio.sleep(0)
    await producer.close()


async def test_poll_without_a_limit_ends_when_the_producer_is_closed() -> None:
    producer = AIOProducer(NOWHERE)
    waiting = asyncio.create_task(producer.poll(-1))
    await asyncio.sleep(0)
    await producer.close()
    async with asyncio.timeout(WAIT_S):
        assert await waiting == 0


async def test_dropped_producer_that_has_reached_no_broker_ends_its_tasks() -> None:
    producer = AIOProducer(NOWHERE)
    await asyncio.sleep(0)
    begun = asyncio.all_tasks() - {asyncio.current_task()}
    assert begun
    del producer
    gc.collect()
    async with asyncio.timeout(WAIT_S):
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
    assert all(task.done() for task in begun)


# -- callbacks of the configuration ----------------------------------------------------------------


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("kind", ["function", "coroutine function"])
async def test_error_cb_is_called_again_whatever_it_is_and_does(
    caplog: pytest.LogCaptureFixture, kind: str, raises: bool
) -> None:
    errors: asyncio.Queue[Any] = asyncio.Queue()

    def error_cb(error: Any) -> None:
        errors.put_nowait(error)
        if raises:
            raise confluent_kafka.KafkaException(error)

    async def error_coroutine(error: Any) -> None:
        error_cb(error)

    callback = error_cb if kind == "function" else error_coroutine
    async with AIOProducer(NOWHERE | {"max.block.ms": 10, "error_cb": callback}):
        async with asyncio.timeout(WAIT_S):
            codes = [(await errors.get()).code() for _ in range(2)]
        await asyncio.sleep(0)
    assert codes == [KafkaError._ALL_BROKERS_DOWN] * 2
    assert ("error_cb raised" in caplog.messages) is raises


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
async def test_stats_cb_is_called_without_any_call(cluster: EmbeddedCluster, kind: str) -> None:
    texts: asyncio.Queue[str] = asyncio.Queue()

    async def stats_coroutine(text: str) -> None:
        texts.put_nowait(text)

    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": "measured",
        "statistics.interval.ms": 10,
        "stats_cb": texts.put_nowait if kind == "function" else stats_coroutine,
    }
    async with AIOProducer(options), asyncio.timeout(WAIT_S):
        for _ in range(2):
            assert json.loads(await texts.get())["client_id"] == "measured"


async def test_on_delivery_may_be_a_coroutine_function(producer: AIOProducer) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def reported(error: Any, message: Any) -> None:
        seen.put_nowait((error, message))

    message = await (await producer.produce("t", "v", on_delivery=reported))
    async with asyncio.timeout(WAIT_S):
        assert await seen.get() == (None, message)


async def test_poll_waits_for_an_outcome(producer: AIOProducer) -> None:
    await producer.produce("t", "v")
    assert await producer.poll(WAIT_S) == 1
    assert await producer.poll(0.01) == 0


def test_records_of_a_producer_that_is_connecting_fail_when_the_loop_ends() -> None:
    async def main() -> list[asyncio.Future[Message]]:
        producer = AIOProducer(NOWHERE)
        return [await producer.produce("t", "v") for _ in range(3)]

    futures = asyncio.run(main())
    for future in futures:
        error = future.exception()
        assert isinstance(error, confluent.KafkaException)
        assert error.args[0].code() == KafkaError._DESTROY


def test_producer_is_made_in_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match=r"no asyncio event loop runs here .*trio"):
        AIOProducer(NOWHERE)


def test_other_names_come_from_confluent_kafka() -> None:
    from aioproducer.compat.confluent import aio

    assert aio.AIOConsumer is confluent_kafka.aio.AIOConsumer
    assert confluent.AIOProducer is AIOProducer
