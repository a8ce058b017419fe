"""Serializers of the blocking producer: in the caller's thread, or in the loop if they wait."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.waiting import until

from aioproducer.blocking import Producer
from aioproducer.errors import (
    KafkaTimeoutError,
    ProducerClosedError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.serializers import BytesSerializer, in_thread
from aioproducer.testing import ThreadedCluster


def test_serializers_that_wait_are_waited_for() -> None:
    threads: list[str] = []

    def quick(data: str) -> bytes:
        threads.append(threading.current_thread().name)
        return data.encode()

    async def later(data: Any) -> bytes:
        threads.append(threading.current_thread().name)
        await asyncio.sleep(0)
        if data == 5:
            raise ValueError("five")
        return str(data).encode()

    async def never(data: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        servers = cluster.bootstrap_servers
        with Producer(
            bootstrap_servers=servers, key_serializer=quick, value_serializer=later
        ) as producer:
            handles = [producer.send("t", number, "k") for number in range(5)]
            assert [handle.result().offset for handle in handles] == [0, 1, 2, 3, 4]
            with pytest.raises(SerializationError, match=r"raised ValueError at test_blocking"):
                producer.send("t", 5, "k")
            assert producer.send_many("t", [("k", 6), ("k", 7)]).delivered == 2
            refusal = _refusal_in_a_callback(producer, 9)
            assert isinstance(refusal, WouldBlockError)
            assert "serializer has to wait" in str(refusal)
        assert cluster.values("t") == [b"0", b"1", b"2", b"3", b"4", b"6", b"7"]
        assert threads[0] == threading.current_thread().name
        assert threads[1].startswith("aioproducer")
        with (
            Producer(
                bootstrap_servers=servers, value_serializer=never, max_block_ms=300
            ) as producer,
            pytest.raises(KafkaTimeoutError, match="serializer took longer"),
        ):
            producer.send("t", b"v")
        with Producer(
            bootstrap_servers=servers,
            key_serializer=in_thread(BytesSerializer()),
            value_serializer=BytesSerializer(),
        ) as producer:
            producer.send_and_wait("t", bytearray(b"8"), b"k")
        assert cluster.values("t")[-1] == b"8"


def _refusal_in_a_callback(producer: Producer, value: Any) -> BaseException | None:
    """The error of a send in the thread of the loop, which cannot wait for a serializer."""
    reported: list[BaseException | None] = []
    done = threading.Event()

    def callback() -> None:
        try:
            producer.send("t", value, "k")
            reported.append(None)
        except BaseException as error:
            reported.append(error)
        done.set()

    producer._thread.post(callback)
    assert done.wait(30)
    return reported[0]


@pytest.mark.parametrize("second", ["b", ("many", "b")])
def test_threads_queue_after_a_serialization_of_another_one(second: Any) -> None:
    begun = threading.Event()
    go_on: list[asyncio.Event] = []

    def serialize(data: Any) -> Any:
        if data != "slow":
            return data.encode()

        async def later() -> bytes:
            go_on.append(asyncio.Event())
            begun.set()
            await go_on[0].wait()
            return b"slow"

        return later()

    with (
        ThreadedCluster(brokers=1, topics={"t": 1}) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers, value_serializer=serialize
        ) as producer,
        ThreadPoolExecutor() as threads,
    ):
        producer.send_and_wait("t", "a")

        def send_second() -> None:
            if isinstance(second, str):
                producer.send_and_wait("t", second)
            else:
                assert producer.send_many("t", [second[1]]).delivered == 1

        first = threads.submit(producer.send_and_wait, "t", "slow")
        assert begun.wait(30)
        after = threads.submit(send_second)
        assert producer._started is not None
        queue = producer._started.loop_side.engine.appender.serializing
        asyncio.run(until(lambda: after.done() or len(queue._topics["t"].waiting) == 2))
        assert isinstance(_refusal_in_a_callback(producer, "c"), WouldBlockError)
        producer._thread.post(go_on[0].set)
        first.result(30)
        after.result(30)
        producer.send_and_wait("t", "c")
        assert cluster.values("t") == [b"a", b"slow", b"b", b"c"]
        assert not queue


def test_a_close_ends_the_waits_of_threads() -> None:
    begun = threading.Event()

    async def never(data: Any) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    with (
        ThreadedCluster(brokers=1, topics={"t": 1}) as cluster,
        ThreadPoolExecutor() as threads,
    ):
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, value_serializer=never)
        producer.start()
        sending = threads.submit(producer.send, "t", "a")
        assert begun.wait(30)
        producer.close()
        with pytest.raises(ProducerClosedError):
            sending.result(30)
