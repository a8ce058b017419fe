"""`send_arrow` against clusters: what a reader finds, streams, failures half-way."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator
from itertools import pairwise

import pandas
import pyarrow as pa
import pytest
from support.arrow import WatchedStream
from support.clusters import ClusterUnderTest
from support.confluent import read_all_confluent
from support.waiting import until

from aioproducer import Producer
from aioproducer.errors import SerializationError
from aioproducer.records import murmur2_partition
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic

ROWS = 20_000


@pytest.fixture
async def one() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        yield cluster


async def values_in(cluster: EmbeddedCluster) -> list[bytes | None]:
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    return [record.value for record in read.get(0, [])]


def table() -> pa.Table:
    """Chunks of odd sizes, and of everything something that is null."""
    numbers = range(ROWS)
    whole = pa.table(
        {
            "id": [None if n % 5 == 0 else f"id-{n % 997}" for n in numbers],
            "payload": pa.array(
                [None if n % 7 == 0 else b"%07d" % n for n in numbers], pa.binary_view()
            ),
            "trace": pa.array(
                [None if n % 3 else [("n", b"%d" % n), ("none", None)] for n in numbers],
                pa.map_(pa.string(), pa.binary()),
            ),
            "at": pa.array([1_700_000_000_000 + n for n in numbers], pa.timestamp("ms", "UTC")),
            "city": pa.array([("Łódź", "Köln", None)[n % 3] for n in numbers]).dictionary_encode(),
        }
    )
    edges = [0, 1, 777, 778, 9_000, 9_000, ROWS]
    return pa.concat_tables(whole.slice(begin, end - begin) for begin, end in pairwise(edges))


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_a_foreign_reader_finds_every_row_as_it_was(
    cluster: ClusterUnderTest, codec: str
) -> None:
    topic = await cluster.create_topic(5)
    data = table()
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, compression_type=codec, buffer_memory=500_000
    ) as producer:
        result = await producer.send_arrow(
            topic, data, value="payload", key="id", headers="trace", timestamp="at"
        )
    assert (result.count, result.delivered, result.failed) == (ROWS, ROWS, [])
    assert sum(high + 1 for _, high in result.offsets.values()) == ROWS
    read = {
        record.timestamp - 1_700_000_000_000: record
        for record in await read_all_confluent(cluster.bootstrap_servers, topic)
    }
    assert len(read) == ROWS
    for number, row in enumerate(data.to_pylist()):
        record = read[number]
        key = None if row["id"] is None else row["id"].encode()
        assert (record.key, record.value) == (key, row["payload"])
        assert list(record.headers) == (row["trace"] or [])
        if key is not None:
            assert record.partition == murmur2_partition(key, 5)
    for partition in range(5):
        times = [
            r for r in sorted(read.values(), key=lambda r: r.offset) if r.partition == partition
        ]
        assert [r.timestamp for r in times] == sorted(r.timestamp for r in times)


async def test_frames_of_pandas_are_sent_as_they_are(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1)
    frame = pandas.DataFrame({"value": ["a", None, "c"], "p": [0, 0, 0]})
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert (await producer.send_arrow(topic, frame, partition="p")).delivered == 3
    read = await read_all_confluent(cluster.bootstrap_servers, topic)
    assert [record.value for record in read] == [b"a", None, b"c"]


async def test_a_wrong_column_is_named_before_anything_is_sent(one: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=one.bootstrap_servers) as producer:
        for wanted in ({"value": "number"}, {"key": "number"}, {"value": "nothing"}):
            data = WatchedStream(pa.table({"value": ["a"], "number": [1]}))
            (name,) = wanted.values()
            with pytest.raises(SerializationError, match=name):
                await producer.send_arrow("t", data, **wanted)
            gc.collect()
            assert data.given == data.released == 2
        with pytest.raises(TypeError):
            await producer.send_arrow("t", [b"a"])
        assert producer.metrics()["record_send_total"] == 0
    assert await values_in(one) == []


async def test_a_stream_that_fails_half_way_reports_what_was_delivered(
    one: EmbeddedCluster,
) -> None:
    chunks = pa.concat_tables(pa.table({"value": [f"{number}"] * 10_000}) for number in range(4))
    data = WatchedStream(chunks, fails_at=3)
    async with Producer(bootstrap_servers=one.bootstrap_servers) as producer:
        with pytest.raises(SendManyInterruptedError, match="the disk is gone") as caught:
            await producer.send_arrow("t", data)
        assert isinstance(caught.value.__cause__, SerializationError)
        assert (caught.value.result.count, caught.value.result.delivered) == (30_000, 30_000)
        assert data.given == data.released == 5
    assert len(await values_in(one)) == 30_000


async def test_a_slow_stream_delays_no_other_call_and_is_released_after_a_cancellation(
    one: EmbeddedCluster,
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def on_next() -> None:
        reading.set()
        assert go_on.wait(30)

    data = WatchedStream(pa.table({"value": ["a"] * 10}), on_next=on_next)
    async with Producer(bootstrap_servers=one.bootstrap_servers) as producer:
        call = asyncio.create_task(producer.send_arrow("t", data))
        await until(reading.is_set)
        assert (await producer.send_and_wait("t", b"meanwhile")).offset == 0
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (data.given, data.released) == (2, 0)
        go_on.set()
        await until(lambda: gc.collect() >= 0 and data.released == data.given == 3)
        assert producer.metrics()["record_send_total"] == 1
    assert await values_in(one) == [b"meanwhile"]


@pytest.mark.slow
async def test_a_call_cancelled_at_any_await_releases_everything_once(
    one: EmbeddedCluster,
) -> None:
    chunks = pa.concat_tables(pa.table({"value": [f"{n}" * 50] * 5_000}) for n in range(8))
    for turns in (1, 2, 3, 5, 8, 13, 21, 34, 55):
        data = WatchedStream(chunks)
        async with Producer(
            bootstrap_servers=one.bootstrap_servers, buffer_memory=50_000
        ) as producer:
            await producer.warm_up(["t"])
            call = asyncio.create_task(producer.send_arrow("t", data))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            del call
            await until(lambda data=data: gc.collect() >= 0 and data.given == data.released)


async def test_no_reference_is_kept_or_lost(one: EmbeddedCluster) -> None:
    value, key, name, content = bytes(100), b"key", "".join(("na", "me")), bytearray(b"c")
    header = (name, bytes(content))
    forms = [value, (key, value), (key, value, [header]), (None, value, (header,), 10**12, 0)]
    columns = pa.table({"value": [value] * 500, "key": [key] * 500})
    watched = [value, key, name, header, header[1], *forms, columns]
    async with Producer(bootstrap_servers=one.bootstrap_servers) as producer:

        async def counts_after(calls: int) -> list[int]:
            for _ in range(calls):
                await producer.send_many("t", forms * 300)
                await producer.send_arrow("t", columns, key="key")
            gc.collect()
            return [sys.getrefcount(each) for each in watched]

        before = await counts_after(1)
        assert await counts_after(5) == before
