"""`send_arrow` on virtual time: equal to `send()`, in line for memory, clean when broken off."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrow import WatchedArray
from support.arrow_tables import Row, expected_record, rows, table_of
from support.stage import Stage, play

from aioproducer import Record, TopicPartition
from aioproducer.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from aioproducer.records.arrow import ArrowColumns
from aioproducer.records.bulk import UnfilledRows
from aioproducer.runtime.bulk.result import SendManyInterruptedError, SendManyResult
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.runtime.bulk.send_arrow import _feed, send_arrow
from aioproducer.wire.api_keys import ApiKey

PARTITIONS = {"wide": 3, "narrow": 2}


def batch_of(table: pa.Table) -> WatchedArray:
    """One record batch, which is read without a thread."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        nothing = [pa.nulls(0, field.type) for field in table.schema]
        batches = [pa.RecordBatch.from_arrays(nothing, schema=table.schema)]
    return WatchedArray(batches[0])


def values(*items: Any, **columns: Any) -> WatchedArray:
    return batch_of(pa.table({"value": pa.array(items, pa.binary()), **columns}))


def numbered(count: int, size: int = 20) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


def log_of(stage: Stage, topic: str) -> list[list[tuple[Any, ...]]]:
    """Key, value, headers and timestamp of every record, by partition."""
    return [
        [
            (record.key, record.value, tuple(record.headers), record.timestamp_ms)
            for batch in stage.batches(topic, partition)
            for record in batch.records()
        ]
        for partition in range(PARTITIONS[topic])
    ]


async def by_rows(stage: Stage, given_rows: list[Row]) -> set[int]:
    """Sends row by row on the slow path; the numbers of those that were refused."""
    refused = set()
    long_timeout = True
    for number, row in enumerate(given_rows):
        topic, key, value, headers, partition, time = expected_record(row)
        topic = topic or "wide"
        try:
            if long_timeout:
                await stage.engine.appender.append((topic, key, value, headers, partition, time))
            else:
                stage.engine.appender.append_nowait((topic, key, value, headers, partition, time))
        except KafkaError as error:
            refused.add(number)
            long_timeout = not isinstance(error, TimeoutError)
        else:
            long_timeout = True
        if not long_timeout:
            await stage.producer.flush()
    await stage.producer.flush()
    return refused


def in_any_order(partitions: list[list[Any]]) -> list[str]:
    return sorted(map(repr, chain(*partitions)))


def decided(row: Row) -> bool:
    return row.partition is not None or row.key is not None


@given(st.data(), rows(max_size=25, topics=("wide", "narrow")), st.booleans())
@settings(max_examples=30)
def test_rows_arrive_as_if_each_had_been_sent_by_itself(
    data: st.DataObject, given_rows: list[Row], ignores_keys: bool
) -> None:
    # No time of day, which differs, and no time to come, which brokers refuse.
    given_rows = [replace(row, timestamp_ms=min(row.timestamp_ms or 0, 1)) for row in given_rows]
    table = data.draw(table_of(given_rows))
    options = {"partitioner_ignore_keys": ignores_keys, "max_block_ms": 3000}

    async def stage_of(stage: Stage) -> None:
        for topic, count in PARTITIONS.items():
            stage.create_topic(topic, leaders=(1,) * count)
        await stage.producer.start()
        await stage.producer.warm_up(list(PARTITIONS))

    async def in_one_go(stage: Stage) -> tuple[Any, SendManyResult]:
        await stage_of(stage)
        watched = batch_of(table)
        result = await stage.producer.send_arrow(
            "wide",
            watched,
            key="key",
            headers="headers",
            partition="partition",
            timestamp="timestamp",
            topic_column="topic",
        )
        assert watched.given == watched.released == 2
        assert stage.engine.pool.available == stage.engine.pool.total
        await stage.producer.close()
        return {topic: log_of(stage, topic) for topic in PARTITIONS}, result

    async def one_by_one(stage: Stage) -> tuple[Any, set[int]]:
        await stage_of(stage)
        refused = await by_rows(stage, given_rows)
        await stage.producer.close()
        return {topic: log_of(stage, topic) for topic in PARTITIONS}, refused

    written, result = play(in_one_go, **options)
    expected, refused = play(one_by_one, **options)
    assert {failed.index for failed in result.failed} == refused
    assert (result.count, result.delivered) == (len(given_rows), len(given_rows) - len(refused))
    for topic in PARTITIONS:
        assert in_any_order(written[topic]) == in_any_order(expected[topic])
        if not ignores_keys and all(map(decided, given_rows)):
            assert written[topic] == expected[topic]
        for partition, records in enumerate(written[topic]):
            if records:
                where = TopicPartition(topic, partition)
                assert result.offsets[where] == (0, len(records) - 1)


def test_rows_of_one_partition_keep_their_order_with_keys_and_without() -> None:
    sent = numbered(400)
    keys = pa.array([None if number % 3 else f"key-{number % 7}" for number in range(400)])

    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        await stage.producer.start()
        result = await stage.producer.send_arrow("wide", values(*sent, key=keys), key="key")
        assert (result.count, result.delivered, result.failed) == (400, 400, [])
        read = [stage.values("wide", partition) for partition in range(3)]
        assert sorted(chain(*read)) == sent
        assert all(part == sorted(part) for part in read)
        assert stage.producer.metrics()["record_send_total"] == 400
        await stage.producer.close()

    play(act)


def test_concurrent_calls_and_sends_share_little_memory_and_all_arrive() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        producer = stage.producer
        await producer.start()
        sent = [[b"%d:%03d" % (call, number) for number in range(150)] for call in range(3)]

        async def alone() -> None:
            for number in range(60):
                await producer.send("wide", b"s:%03d" % number, partition=0)

        results = await asyncio.gather(
            *(producer.send_arrow("wide", values(*part)) for part in sent), alone()
        )
        assert [result.delivered for result in results[:3]] == [150] * 3
        await producer.flush()
        read = [stage.values("wide", partition) for partition in range(3)]
        singles = [value for value in read[0] if value.startswith(b"s")]
        assert singles == [b"s:%03d" % number for number in range(60)]
        for part in sent:
            mine = [[value for value in values if value in part] for values in read]
            assert sorted(chain(*mine)) == part
            assert all(values == sorted(values) for values in mine)
        assert stage.engine.pool.available == stage.engine.pool.total
        assert producer.metrics()["bufferpool_wait_total"] > 0
        await producer.close()

    play(act)


def test_a_call_overtakes_no_waiter_for_memory() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t", "u"])
        stage.broker.freeze()
        await producer.send("t", b"x" * 100)
        await producer.send("u", b"x")  # its batch has room left, the memory has none
        first = asyncio.create_task(producer.send("t", b"y" * 100))
        await asyncio.sleep(0.1)
        assert stage.engine.appender.waiting == 1
        call = asyncio.create_task(producer.send_arrow("u", values(b"1", b"2")))
        await asyncio.sleep(0.1)
        assert stage.engine.appender.waiting == 2
        assert stage.engine.appender.fast_path.appended == 2
        stage.broker.thaw()
        await first
        assert (await call).delivered == 2
        await producer.close()

    play(act, buffer_memory=400, linger_ms=10_000)


def test_a_cancelled_call_releases_everything_once_and_appends_no_more() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        watched = values(*numbered(200))
        call = asyncio.create_task(producer.send_arrow("t", watched))
        await asyncio.sleep(1)
        assert stage.engine.appender.waiting == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        del call
        gc.collect()
        assert watched.given == watched.released == 2
        appended = stage.engine.appender.fast_path.appended
        stage.broker.thaw()
        assert await producer.flush() == 0
        assert stage.values("t") == numbered(200)[:appended]
        assert stage.engine.pool.available == stage.engine.pool.total
        await producer.close()

    play(act)


def test_closing_meanwhile_reports_what_was_delivered_and_releases() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        watched = values(*numbered(200))
        call = asyncio.create_task(producer.send_arrow("t", watched))
        await asyncio.sleep(1)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(1)
        stage.broker.thaw()
        with pytest.raises(SendManyInterruptedError) as caught:
            await call
        await closing
        result = caught.value.result
        assert isinstance(caught.value.__cause__, ProducerClosedError)
        assert result.delivered + len(result.failed) == result.count < 200
        assert stage.values("t") == numbered(200)[: result.delivered]
        assert watched.given == watched.released == 2

    play(act)


def test_a_call_ends_with_the_transaction_it_began_in() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        with pytest.raises(IllegalStateError):
            await producer.send_arrow("t", values(b"no transaction"))
        await producer.begin_transaction()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        call = asyncio.create_task(producer.send_arrow("t", values(*numbered(200))))
        await asyncio.sleep(1)
        abort = asyncio.create_task(producer.abort_transaction())
        await asyncio.sleep(1)
        stage.broker.thaw()
        await abort
        await producer.begin_transaction()
        with pytest.raises(SendManyInterruptedError) as caught:
            await call
        assert isinstance(caught.value.__cause__, IllegalStateError)
        await producer.commit_transaction()
        result = caught.value.result
        assert result.delivered + len(result.failed) == result.count < 200
        assert result.failed
        await producer.close()

    play(act, transactional_id="tx")


def test_rows_of_a_transaction_are_committed_with_it() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.begin_transaction()
        assert (await producer.send_arrow("t", values(*numbered(50)))).delivered == 50
        await producer.commit_transaction()
        assert stage.values("t") == numbered(50)
        assert all(batch.is_transactional for batch in stage.batches("t"))
        await producer.close()

    play(act, transactional_id="tx")


def test_rows_that_are_too_large_fail_alone() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        sent = [b"a", b"x" * 400, b"b", b"x" * 2000, b"c"]
        result = await stage.producer.send_arrow("t", values(*sent))
        assert (result.count, result.delivered) == (5, 3)
        assert [failed.index for failed in result.failed] == [1, 3]
        assert all(isinstance(failed.error, RecordTooLargeError) for failed in result.failed)
        assert stage.values("t") == [b"a", b"b", b"c"]
        await stage.producer.close()

    play(act, max_request_size=300)


def test_a_record_larger_than_a_batch_gets_its_own_batch() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        sent = [b"a", b"x" * 400, b"b"]
        assert (await stage.producer.send_arrow("t", values(*sent))).delivered == 3
        assert stage.values("t") == sent
        await stage.producer.close()

    play(act)


def test_rows_of_a_failed_batch_are_reported_by_their_numbers() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1))
        await stage.producer.start()
        stage.faults.error(ApiKey.PRODUCE, 87, topic="wide", partition=1, times=None)
        places = pa.array([number % 2 for number in range(100)])
        result = await stage.producer.send_arrow(
            "wide", values(*numbered(100), place=places), partition="place"
        )
        assert (result.count, result.delivered) == (100, 50)
        assert [failed.index for failed in result.failed] == list(range(1, 100, 2))
        assert result.offsets == {TopicPartition("wide", 0): (0, 49)}
        assert stage.producer.metrics()["unretrieved_failure_total"] == 0
        await stage.producer.close()

    play(act)


def test_a_partitioner_of_the_users_is_asked_for_every_row_without_partition() -> None:
    def choose(topic: str, key: bytes | None, value: bytes | None, cluster: object) -> int:
        assert topic == "wide"
        return 2 if key else 1

    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        await stage.producer.start()
        data = values(
            b"a", b"b", b"c", key=pa.array(["k", None, "k"]), place=pa.array([None, None, 0])
        )
        result = await stage.producer.send_arrow("wide", data, key="key", partition="place")
        assert result.delivered == 3
        assert [stage.values("wide", at) for at in range(3)] == [[b"c"], [b"b"], [b"a"]]
        await stage.producer.close()

    play(act, partitioner=choose)


def test_rows_without_any_topic_fail_alone() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        data = values(b"a", b"b", b"c", topic=pa.array(["t", None, "u"]))
        result = await stage.producer.send_arrow(None, data, topic_column="topic")
        assert [failed.index for failed in result.failed] == [1]
        assert isinstance(result.failed[0].error, InvalidTopicError)
        assert (stage.values("t"), stage.values("u")) == ([b"a"], [b"c"])
        for topic in (None, 5):
            with pytest.raises(InvalidTopicError):
                await stage.producer.send_arrow(topic, data)  # type: ignore[arg-type]
        await stage.producer.close()

    play(act)


def test_a_long_call_lets_others_have_their_turn() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        call = asyncio.create_task(stage.producer.send_arrow("t", values(*numbered(40_000, 100))))
        seen = [stage.engine.appender.fast_path.appended]
        while seen[-1] < 40_000:
            await asyncio.sleep(0)
            seen.append(stage.engine.appender.fast_path.appended)
        assert len(seen) > 8
        # 512 KiB hold five batches, of some 900 rows each.
        assert max(after - before for before, after in pairwise(seen)) < 5_000
        assert (await call).delivered == 40_000
        await stage.producer.close()

    play(act, batch_size=100_000, buffer_memory=10_000_000, linger_ms=0)


def test_what_follows_a_call_goes_on_with_the_sticky_partitioners_account() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        await stage.producer.start()
        for number in range(60):
            if number % 2:
                await stage.producer.send("wide", b"%020d" % number)
            else:
                await stage.producer.send_arrow("wide", values(*numbered(3)))
        await stage.producer.flush()
        counts = [len(stage.values("wide", partition)) for partition in range(3)]
        # 120 records of about 42 bytes, 200 to 400 before each switch: no partition is left out.
        assert min(counts) > 0
        await stage.producer.close()

    play(act)


def test_headers_of_a_call_are_added_to_those_of_each_row() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        own = pa.array([[("own", b"1")], None], pa.map_(pa.string(), pa.binary()))
        columns = ArrowColumns(value="value", headers="headers")
        rows_with_headers = values(b"a", b"b", headers=own)
        added = [("trace", b"2")]
        result = await send_arrow(stage.engine, "t", rows_with_headers, columns, added)
        assert result.delivered == 2
        (batch,) = stage.batches("t")
        assert [tuple(record.headers) for record in batch.records()] == [
            (("own", b"1"), ("trace", b"2")),
            (("trace", b"2"),),
        ]
        await stage.producer.close()

    play(act)


class Chunk(UnfilledRows):
    """Rows without columns, one of which may be refused; notes what is read and released."""

    def __init__(self, number: int, length: int, events: list[str], refused: int | None) -> None:
        self._number = number
        self._length = length
        self._events = events
        self._refused = refused
        self._open = True

    def __len__(self) -> int:
        return self._length

    def topics(self, start: int, stop: int) -> list[str | None]:
        return [None]

    def record(self, row: int) -> tuple[None, None, bytes, tuple[()], None, None]:
        if not row:
            self._events.append(f"first row of {self._number}")
        if row == self._refused:
            raise SerializationError("refused")
        return None, None, b"v", (), None, None

    def close(self) -> None:
        if self._open:
            self._events.append(f"{self._number} is released")
        self._open = False


class Chunks:
    """A source of three chunks; `streams`: reading one may block, which a thread is for."""

    def __init__(self, length: int, refused: int | None = None, *, streams: bool = False) -> None:
        self.streams = streams
        self.events: list[str] = []
        self._chunks = iter([Chunk(number, length, self.events, refused) for number in range(3)])

    def next(self) -> Chunk | None:
        self.events.append("read")
        return next(self._chunks, None)


def test_chunks_are_read_up_to_16384_rows_and_each_is_released_after_its_rows() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        source: Any = Chunks(8_192)
        run = BulkRun(stage.engine)
        result = await run.complete(_feed(run, stage.engine, source, "t", ()))
        assert result.delivered == 3 * 8_192
        assert source.events == [
            *("read", "read", "first row of 0", "0 is released", "first row of 1", "1 is released"),
            *("read", "read", "first row of 2", "2 is released", "read"),
        ]
        await stage.producer.close()

    play(act, batch_size=100_000, buffer_memory=10_000_000)


@pytest.mark.parametrize("streams", [True, False])
def test_only_a_stream_is_read_in_a_thread(streams: bool) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        source: Any = Chunks(5, streams=streams)
        run = BulkRun(stage.engine)
        call = asyncio.create_task(run.complete(_feed(run, stage.engine, source, "t", ())))
        await asyncio.sleep(0)
        assert bool(source.events) is not streams
        assert (await call).delivered == 15
        await stage.producer.close()

    play(act)


class Witness:
    """An interceptor that notes the values it sees."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def on_send(self, record: Record) -> Record:
        self.values.append(record.value)
        return record


def test_interceptors_see_every_row() -> None:
    witness = Witness()

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        assert (await stage.producer.send_arrow("t", values(*numbered(20)))).delivered == 20
        assert witness.values == numbered(20) == stage.values("t")
        await stage.producer.close()

    play(act, interceptor_classes=[witness])


def test_rows_are_numbered_through_all_chunks() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        source: Any = Chunks(5, refused=3)
        run = BulkRun(stage.engine)
        result = await run.complete(_feed(run, stage.engine, source, "t", ()))
        assert [failed.index for failed in result.failed] == [3, 8, 13]
        assert (result.count, result.delivered) == (15, 12)
        await stage.producer.close()

    play(act)
