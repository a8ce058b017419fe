"""An exception such as KeyboardInterrupt in the middle of a direct send."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys

import pytest

from aioproducer import Producer
from aioproducer.errors import KafkaError, ProducerFailedError
from aioproducer.runtime.tasks.encoder import BatchEncoder
from aioproducer.testing.virtual import VirtualKafka, run_virtual
from aioproducer.types import Persistence, TopicPartition

from .direct_sends import transport_of

Failure = tuple[TopicPartition, int, KafkaError]


async def with_a_spare_batch(producer: Producer) -> None:
    """Send single records; the next one gets into the spare batch."""
    await producer.start()
    for _ in range(3):
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(0.01)


def test_an_interrupt_in_the_write_of_a_record_reaches_the_caller_and_ends_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        producer = kafka.producer(linger_ms=0)
        await with_a_spare_batch(producer)
        monkeypatch.setattr(transport_of(producer), "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send_nowait("t", b"v")
        await asyncio.sleep(0.01)
        assert producer.health().state == "failed"
        assert "KeyboardInterrupt" in (producer.health().error or "")
        await producer.close()

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_record_that_an_interrupt_loses_before_its_batch_is_listed_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Failure] = []

    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        producer = kafka.producer(
            linger_ms=0, on_delivery_error=lambda *each: reported.append(each)
        )
        await with_a_spare_batch(producer)
        loop = asyncio.get_running_loop()
        read = loop.time

        def interrupt() -> float:
            if sys._getframe(1).f_code.co_name == "send_spare":
                raise KeyboardInterrupt
            return read()

        monkeypatch.setattr(loop, "time", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.send_nowait("t", b"v")
        monkeypatch.undo()
        await producer.close()

    run_virtual(run, brokers=1, topics={"t": 1})
    gc.collect()  # the exception's frames had the batch
    ((where, count, error),) = reported
    assert (where, count) == (TopicPartition("t", 0), 1)
    assert "KeyboardInterrupt" in str(error)


def test_a_record_whose_write_was_interrupted_may_be_written_although_it_is_purged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        producer = kafka.producer(linger_ms=0)
        await with_a_spare_batch(producer)
        transport = transport_of(producer)
        write = transport.write

        def write_and_interrupt(data: bytes) -> None:
            write(data)
            raise KeyboardInterrupt

        monkeypatch.setattr(transport, "write", write_and_interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            producer.send_nowait("t", b"v")
        assert producer.purge(queued=False, in_flight=True) == 1
        (failure,) = producer.statistics().recent_failures
        assert "possibly persisted" in failure.error
        await producer.close()

    run_virtual(run, brokers=1, topics={"t": 1})


def test_a_record_whose_request_finds_no_memory_fails_and_the_next_one_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise MemoryError

    async def run(kafka: VirtualKafka) -> None:
        async with kafka.producer(linger_ms=0) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"v" * 5000)
            monkeypatch.setattr(BatchEncoder, "encode_one", fail)
            delivery = await producer.send("t", b"v" * 5000)
            assert BatchEncoder.encode_one is not fail
            with pytest.raises(ProducerFailedError, match="MemoryError") as caught:
                await delivery
            assert caught.value.persistence is Persistence.NOT_PERSISTED
            assert (await producer.send_and_wait("t", b"v")).offset == 3

    run_virtual(run, brokers=1, topics={"t": 1})
