"""Tests on virtual time: hours pass at once, brokers fail, the end is clean."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from aioproducer.errors import DeliveryTimeoutError
from aioproducer.testing import VirtualKafka, run_virtual
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.virtual import StuckError
from aioproducer.types import Persistence


def test_hours_pass_at_once() -> None:
    async def test(kafka: VirtualKafka) -> str:
        await asyncio.sleep(10 * 3600)
        assert kafka.now >= 10 * 3600
        return "done"

    began = time.monotonic()
    assert run_virtual(test) == "done"
    assert time.monotonic() - began < 3600


def test_a_record_outlives_a_broker() -> None:
    async def test(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=5) as producer:
            await producer.send_and_wait("orders", b"1")
            for node in (1, 2):
                kafka.stop_broker(node)
                await producer.send_and_wait("orders", b"more")
                kafka.start_broker(node)
                await asyncio.sleep(30)
        kafka.create_topic("other", 2)
        assert [record.value for record in kafka.records("orders")] == [b"1", b"more", b"more"]
        assert kafka.records("other", 1) == []
        with pytest.raises(LookupError):
            kafka.records("nowhere")

    from aioproducer.testing import TopicSpec

    run_virtual(test, topics={"orders": TopicSpec(1, 3)})


def test_a_topic_created_anew_with_other_replicas_has_no_lagging_ones() -> None:
    async def test(kafka: VirtualKafka) -> list[bytes | None]:
        cluster = kafka.world.cluster
        async with kafka.producer(acks=1, allow_auto_create_topics=False) as producer:
            await producer.send_and_wait("orders", b"1")
            partition = cluster.topics["orders"].partitions[0]
            (follower,) = {*partition.replicas} - {partition.leader}
            kafka.unplug_broker(follower)
            await producer.send_and_wait("orders", b"2")
            cluster.delete_topic("orders")
            others = [node for node in cluster.brokers if node != follower]
            cluster.create_topic("orders", assignments={0: others})
            await asyncio.sleep(10)
            await producer.send_and_wait("orders", b"3")
        return [record.value for record in kafka.records("orders")]

    assert run_virtual(test, topics={"orders": TopicSpec(1, 2)}) == [b"3"]


def test_two_minutes_of_silence_end_a_delivery() -> None:
    async def test(kafka: VirtualKafka) -> None:
        async with kafka.producer() as producer:
            await producer.warm_up(["orders"])
            kafka.faults.every("produce").is_never_answered(after_the_work=True)
            began = kafka.now
            with pytest.raises(DeliveryTimeoutError) as caught:
                await producer.send_and_wait("orders", b"1")
            assert kafka.now - began == pytest.approx(120, abs=1)
            assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
            kafka.unplug_broker(1)
            await producer.close(0)

    run_virtual(test, topics={"orders": 1}, brokers=1)


def test_the_same_seed_gives_the_same_run() -> None:
    async def test(kafka: VirtualKafka) -> float:
        async with kafka.producer() as producer:
            for number in range(20):
                await producer.send_and_wait("orders", b"%d" % number)
        return kafka.now

    runs = [run_virtual(test, topics={"orders": 3}, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_what_can_never_end_is_ended() -> None:
    async def waits(kafka: VirtualKafka) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_virtual(waits)

    async def goes_wrong(kafka: VirtualKafka) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        left = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(1)
        assert not left.done()

    with pytest.raises(RuntimeError, match="division by zero"):
        run_virtual(goes_wrong)

    async def spins(kafka: VirtualKafka) -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0)

    with pytest.raises(StuckError):
        run_virtual(spins)


async def test_it_needs_a_separate_loop() -> None:
    async def test(kafka: VirtualKafka) -> None: ...

    with pytest.raises(RuntimeError, match="plain function"):
        run_virtual(test)


def test_a_topic_can_be_deleted_while_followers_fetch_from_it() -> None:
    async def act(kafka: VirtualKafka) -> None:
        cluster = kafka.world.cluster
        async with kafka.producer(delivery_timeout_ms=3_000, request_timeout_ms=1_000) as producer:
            await producer.send_and_wait("t", b"1")
            sent = await producer.send("t", b"2")
            for _ in range(100):
                await asyncio.sleep(0.001)
                if len(kafka.records("t")) == 2:
                    break  # and followers fetch it 5 ms later
            cluster.delete_topic("t")
            deleted_at = kafka.now
            with pytest.raises(DeliveryTimeoutError):
                await sent
        assert [topic.name for topic in cluster.deleted] == ["t"]
        assert cluster.has_had("t", 0.0, deleted_at)
        assert not cluster.has_had("t", 0.0, kafka.now)
        assert not cluster.has_had("other", 0.0, 0.0)

    run_virtual(act, topics={"t": TopicSpec(1, 3)})


async def serve() -> None:
    await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)


async def connect() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def run_a_program() -> None:
    await asyncio.create_subprocess_exec("true")


async def watch_a_socket() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def handle_a_signal() -> None:
    asyncio.get_running_loop().add_signal_handler(15, print)


@pytest.mark.parametrize("act", [serve, connect, run_a_program, watch_a_socket, handle_a_signal])
def test_what_virtual_time_lacks_says_what_to_use(act: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(NotImplementedError, match="not supported on virtual time") as caught:
        run_virtual(lambda kafka: act())
    assert "EmbeddedCluster" in str(caught.value)
