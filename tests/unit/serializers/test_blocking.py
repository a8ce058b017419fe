"""Serializers of the blocking producer: in the caller's thread, or in the loop if they wait."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aioproducer.blocking import Producer
from aioproducer.errors import BufferFullError, KafkaTimeoutError, SerializationError
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
            with pytest.raises(SerializationError, match="five"):
                producer.send("t", 5, "k")
            assert producer.send_many("t", [("k", 6), ("k", 7)]).delivered == 2
            assert _refusal_in_a_callback(producer)
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


def _refusal_in_a_callback(producer: Producer) -> bool:
    """A callback runs where the serializer would, and cannot wait for it."""
    told: list[BaseException] = []
    done = threading.Event()

    def callback() -> None:
        try:
            producer.send("t", 9, "k")
        except BaseException as error:
            told.append(error)
        done.set()

    producer._thread.post(callback)
    assert done.wait(30)
    return isinstance(told[0], BufferFullError) and "serializer has to wait" in str(told[0])
