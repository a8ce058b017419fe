"""The fast path keeps nothing alive, and gives back every reference it takes."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from itertools import pairwise

import pytest

from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.runtime.tasks.sender import SenderTask
from aioproducer.testing.virtual import VirtualKafka, run_virtual

from .fast_paths import Bench

pytestmark = pytest.mark.usefixtures("fast_path_form")


ROUNDS = 200


class TrackedBatch(ProducerBatch):
    """A batch that can be watched."""

    __slots__ = ("__weakref__",)


async def exercise(bench, topic, value, key, pairs, rounds: int = 400) -> None:
    """Every use of the fast path: taken, refused, cancelled, failing, done before and after."""
    producer = bench.producer
    for number in range(rounds):
        delivery = await producer.send(topic, value, key, headers=pairs, timestamp_ms=number)
        producer.send(topic, value).close()
        task = asyncio.create_task(producer.send_and_wait(topic, value, headers=pairs))
        cancelled = asyncio.create_task(producer.send_and_wait(topic, value))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert bench.fast_path.append(topic, value, key, [("h", 1)], None, None) is None
        assert bench.fast_path.append(topic, value, key, None, 99, None) is None
        while bench.complete_oldest() is not None:
            pass
        assert (await delivery).topic == topic
        await delivery
        await task


async def test_references_to_what_was_sent_are_given_back():
    bench = Bench(batch_size=2000)
    topic = "topic-of-its-own"
    bench.know(**{topic.replace("-", "_"): 2})
    topic = topic.replace("-", "_")
    value, key = b"v" * 50, b"key-of-its-own"
    pairs = [("name-of-its-own", b"header-value")]
    watched = [value, key, pairs, pairs[0], *pairs[0]]
    await exercise(bench, topic, value, key, pairs, rounds=3)
    gc.collect()
    before = [sys.getrefcount(thing) for thing in (*watched, None, bench.fast_path)]
    await exercise(bench, topic, value, key, pairs)
    gc.collect()
    after = [sys.getrefcount(thing) for thing in (*watched, None, bench.fast_path)]
    # None has many users; a reference lost per record would make hundreds.
    assert [abs(b - a) < 50 for a, b in zip(before, after, strict=True)] == [True] * len(before)
    assert before[: len(watched)] == after[: len(watched)]
    bench.end()


def test_references_to_directly_sent_records_are_given_back():
    value, key, pairs = b"v" * 50, b"key-of-its-own", [("name-of-its-own", b"header-value")]

    async def send(kafka: VirtualKafka) -> None:
        kafka.world.network.fragments = False
        async with kafka.producer(linger_ms=0) as producer:
            engine = producer._engine
            batch_appender, fast_path = engine.appender.batch_appender, engine.appender.fast_path
            watched = [
                value,
                key,
                pairs,
                BatchOutcome,
                BatchOutcome().record_errors,
                batch_appender,
                engine.sender_task,
                fast_path,
                SenderTask.try_send_directly,
            ]
            for rounds in (20, 400):
                gc.collect()
                before = [sys.getrefcount(thing) for thing in watched]
                batches = len(all_of(ProducerBatch))
                for _ in range(rounds):
                    await producer.send_and_wait("t", value, key, headers=pairs)
                    await asyncio.sleep(0.001)
                assert batch_appender._spare is not None
            gc.collect()
            assert [sys.getrefcount(thing) for thing in watched] == before
            assert len(all_of(ProducerBatch)) == batches

    run_virtual(send, brokers=1, topics={"t": 1})


@pytest.mark.slow
@pytest.mark.skipif(not sys.getallocatedblocks(), reason="only Python's own allocator counts")
async def test_memory_does_not_grow_with_the_records_sent():
    """A record leaves the same objects in every span; free lists and caches grow in some."""
    bench = Bench(batch_size=2000)
    bench.know(a=2)
    blocks = []
    for _ in range(5):
        await exercise(bench, "a", b"v" * 50, b"k", [("h", b"x")], rounds=ROUNDS)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    growth = [later - earlier for earlier, later in pairwise(blocks)]
    assert min(growth) < ROUNDS / 4, growth
    bench.end()


async def test_batch_is_freed_with_its_last_delivery(monkeypatch):
    monkeypatch.setattr("aioproducer.core.batching.accumulator.ProducerBatch", TrackedBatch)
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"v")
    delivery = await bench.producer.send("a", b"v")
    batch = weakref.ref(bench.complete_oldest())
    assert await delivery
    assert batch() is not None
    del delivery
    assert batch() is None
    bench.end()


async def test_producer_is_freed_without_the_help_of_the_collector():
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"v")
    bench.end()
    producer = weakref.ref(bench.producer)
    gc.disable()
    try:
        del bench.producer
        assert producer() is None
    finally:
        gc.enable()


async def test_call_keeps_its_producer_alive():
    bench = Bench()
    bench.know(a=1)
    await bench.producer.send("a", b"v")
    bench.end()
    producer = weakref.ref(bench.producer)
    call = bench.producer.send("a", b"v")
    del bench.producer
    assert producer() is not None
    await call
    del call
    assert producer() is None


def all_of(kind: type) -> list[object]:
    return [thing for thing in gc.get_objects() if type(thing) is kind]


async def test_abandoned_fast_path_with_open_batches_is_collected():
    bench = Bench()
    fast_path = type(bench.fast_path)
    others = [thing for thing in all_of(fast_path) if thing is not bench.fast_path]
    bench.know(a=1)
    await bench.producer.send("a", b"v")
    bench.end()
    await asyncio.sleep(0)  # the turn's end is noted in the loop
    del bench
    gc.collect()
    assert len(all_of(fast_path)) <= len(others)
