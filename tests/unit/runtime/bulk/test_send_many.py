"""`send_many` on virtual time: what native code fills in, and what goes through both paths."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain, groupby
from typing import Any

import pandas
import pyarrow as pa
import pytest
from support.stage import Stage, play

from aioproducer import Record
from aioproducer.errors import (
    IllegalStateError,
    InvalidPartitionError,
    InvalidTopicError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
)
from aioproducer.records import murmur2_partition
from aioproducer.runtime.bulk.result import Item, SendManyInterruptedError, SendManyResult
from aioproducer.runtime.bulk.send_many import send_blocks
from aioproducer.testing import MockProducer
from aioproducer.wire.api_keys import ApiKey


def numbered(count: int) -> list[bytes]:
    return [b"%020d" % number for number in range(count)]


def test_every_form_of_an_item_arrives_as_given() -> None:
    items: list[Item] = [
        b"value",
        bytearray(b"mutable"),
        None,
        (b"key", b"value"),
        (None, None),
        [b"no", b"tuple"],
        (b"key", b"value", [("h", b"1"), ("h", None)]),
        (b"key", b"value", (("h", b"1"),), 7),
        (b"key", b"value", {"h": b"1"}, 7, 0),
        (None, b"value", None, None, 1),
        Record(b"elsewhere", topic="u"),
        (b"one part",),
        (b"key", b"value", "headers"),
        (b"key", b"value", None, -1),
        (b"key", b"value", None, 2**70),
        (b"key", b"value", None, None, -1),
        "text",
    ]
    refused = [5, 11, 12, 13, 14, 15, 16]

    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1))
        await stage.producer.start()
        result = await stage.producer.send_many("wide", items * 3)
        assert (result.count, result.delivered) == (51, 30)
        expected = [number + turn * 17 for turn in range(3) for number in refused]
        assert [failed.index for failed in result.failed] == expected
        assert isinstance(result.failed[0].error, SerializationError)
        read = [
            record
            for partition in range(2)
            for batch in stage.batches("wide", partition)
            for record in batch.records()
        ]
        assert len(read) == 27
        keyed = [record for record in read if record.key]
        assert {tuple(record.headers) for record in keyed} == {
            (),
            (("h", b"1"), ("h", None)),
            (("h", b"1"),),
        }
        assert stage.values("u") == [b"elsewhere"] * 3
        assert [record.timestamp_ms for record in keyed].count(7) == 6
        await stage.producer.close()

    play(act)


def test_keys_decide_and_order_is_kept_while_memory_is_short() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1, 1, 1))
        await stage.producer.start()
        items = [
            (b"k%d" % (number % 11) if number % 3 else None, value)
            for number, value in enumerate(numbered(500))
        ]
        result = await stage.producer.send_many("wide", iter(items))
        assert (result.delivered, result.failed) == (500, [])
        read = [stage.values("wide", partition) for partition in range(3)]
        assert sorted(chain(*read)) == numbered(500)
        assert all(values == sorted(values) for values in read)
        for key, value in items:
            assert key is None or value in read[murmur2_partition(key, 3)]
        assert stage.engine.pool.available == stage.engine.pool.total
        await stage.producer.close()

    play(act)


def test_items_of_a_long_call_are_numbered_through() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        items: list[Item] = [*numbered(1300)]
        for number in (0, 511, 512, 700, 1299):
            items[number] = (b"key", b"value", None, None, 0, "a sixth part")
        result = await stage.producer.send_many("t", iter(items))
        assert [failed.index for failed in result.failed] == [0, 511, 512, 700, 1299]
        assert all(isinstance(failed.error, SerializationError) for failed in result.failed)
        assert (result.count, result.delivered) == (1300, 1295)
        await stage.producer.close()

    play(act, batch_size=20_000, buffer_memory=1 << 20)


def test_failed_items_are_listed_in_their_order_whenever_they_fail() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError.code, times=None)
        result = await stage.producer.send_many("t", [b"refused late", bytes(5000), b"late too"])
        assert [failed.index for failed in result.failed] == [0, 1, 2]
        assert isinstance(result.failed[1].error, RecordTooLargeError)
        await stage.producer.close()

    play(act, max_request_size=4000)


def test_items_before_one_that_raises_are_delivered() -> None:
    def items() -> Iterator[bytes]:
        yield from numbered(700)
        raise LookupError("the source is gone")

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(SendManyInterruptedError, match="the source is gone") as caught:
            await stage.producer.send_many("t", items())
        assert (caught.value.result.count, caught.value.result.delivered) == (700, 700)
        assert stage.values("t") == numbered(700)
        await stage.producer.close()

    play(act)


async def cancelled_itself() -> AsyncIterator[bytes]:
    yield b"0"
    other = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    other.cancel()
    await other


def raises_cancelled() -> Iterator[bytes]:
    yield b"0"
    raise asyncio.CancelledError


@pytest.mark.parametrize("items", [cancelled_itself, raises_cancelled])
def test_items_that_read_what_was_cancelled_do_not_cancel_the_call(
    items: Callable[[], AsyncIterator[bytes] | Iterator[bytes]],
) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        for producer in (stage.producer, MockProducer()):
            with pytest.raises(SendManyInterruptedError) as caught:
                await producer.send_many("t", items())
            assert (caught.value.result.count, caught.value.result.delivered) == (1, 1)
            assert isinstance(caught.value.__cause__, asyncio.CancelledError)
        assert stage.values("t") == [b"0"]
        await stage.producer.close()

    play(act)


@pytest.mark.parametrize(
    "items",
    [
        "text",
        b"bytes",
        bytearray(b"x"),
        memoryview(b"x"),
        None,
        5,
        pa.table({"value": [b"a"]}),
        pa.record_batch({"value": [b"a"]}),
        pandas.DataFrame({"value": [b"a"]}),
    ],
    ids=lambda items: type(items).__name__,
)
def test_what_gives_no_records_when_it_is_iterated_is_refused(items: Any) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer, MockProducer() as mock:
            for each in (producer, mock):
                with pytest.raises(TypeError, match=f"iterable of items.* {type(items).__name__}"):
                    await each.send_many("t", items)
            assert mock.history == []
        assert stage.values("t") == []

    play(act, value_serializer=lambda value: str(value).encode())


class Proxy:
    """An object with the class of another and all methods, as werkzeug's `LocalProxy` is."""

    def __init__(self, proxied: Any) -> None:
        self._proxied = proxied

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._proxied)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._proxied)

    def __aiter__(self) -> AsyncIterator[Any]:
        return aiter(self._proxied)

    def __hash__(self) -> int:
        return hash(self._proxied)

    def __eq__(self, other: object) -> bool:
        return bool(self._proxied == other)


def test_a_proxy_of_items_gives_the_items() -> None:
    async def items() -> AsyncIterator[bytes]:
        yield b"c"

    async def act(stage: Stage) -> None:
        async with stage.producer as producer, MockProducer() as mock:
            for each in (producer, mock):
                await each.send_many("t", Proxy([b"a", b"b"]))
                await each.send_many("t", Proxy(items()))
        assert stage.values("t") == [record.value for record in mock.history] == [b"a", b"b", b"c"]

    play(act)


@pytest.mark.parametrize("call", ["send", "send_many", "send_arrow"])
def test_a_proxy_of_a_topic_is_refused_although_the_topic_is_known(call: str) -> None:
    async def refused(producer: Any, topic: Any) -> None:
        if call == "send":
            await producer.send(topic, b"a")
        elif call == "send_arrow":
            await producer.send_arrow(topic, pa.table({"value": [b"a"]}))
        else:
            raise (await producer.send_many(topic, [b"a"])).failed[0].error

    async def act(stage: Stage) -> None:
        async with stage.producer as producer, MockProducer(topics={"t": 1}) as mock:
            for each in (producer, mock):
                await each.send_and_wait("t", b"known")
                with pytest.raises(InvalidTopicError, match="not Proxy"):
                    await refused(each, Proxy("t"))
        assert stage.values("t") == [b"known"]

    play(act)


def test_an_item_with_an_empty_topic_is_refused_and_not_sent_to_that_of_the_call() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer, MockProducer(topics={"t": 1}) as mock:
            for each in (producer, mock):
                result = await each.send_many("t", [Record(b"a", topic=""), b"b"])
                assert result.delivered == 1
                assert [type(refused.error) for refused in result.failed] == [InvalidTopicError]
        assert stage.values("t") == [b"b"]

    play(act)


def test_a_column_of_a_table_gives_its_values() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_many("t", pandas.Series([b"a", b"b"]))
        assert stage.values("t") == [b"a", b"b"]

    play(act)


def choosing(topic: str, key: bytes | None, value: bytes | None, meta: object) -> int:
    """A partitioner that cannot handle an empty value."""
    return (value or b"")[0] % 1


@pytest.mark.parametrize("call", ["send_many", "send_arrow"])
def test_an_item_for_which_the_partitioner_raises_fails_alone(call: str) -> None:
    async def act(stage: Stage) -> None:
        items = [b"a", b"", b"c"]
        rows = pa.table({"value": items}) if call == "send_arrow" else items
        async with stage.producer as producer:
            result = await getattr(producer, call)("t", rows)
        assert (result.count, result.delivered) == (3, 2)
        (failed,) = result.failed
        assert failed.index == 1
        assert isinstance(failed.error, InvalidPartitionError)
        assert isinstance(failed.error.__cause__, IndexError)
        assert stage.values("t") == [b"a", b"c"]

    play(act, partitioner=choosing)


def test_the_error_of_an_item_for_which_the_partitioner_raises_does_not_show_its_key() -> None:
    def by_number(topic: str, key: bytes | None, value: bytes | None, meta: object) -> int:
        return int(key or b"0") % 1

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            result = await producer.send_many("t", [(b"4711x", b"v")])
        (failed,) = result.failed
        assert "raised ValueError at test_send_many.py:" in str(failed.error)
        assert "4711" not in str(failed.error)

    play(act, partitioner=by_number)


def test_an_item_for_which_the_partitioner_raises_fails_the_transaction() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(TransactionAbortableError, match="the partitioner raised"):
                async with producer.transaction():
                    with contextlib.suppress(SendManyInterruptedError):
                        await producer.send_many("t", [b"a", b""])

    play(act, partitioner=choosing, transactional_id="x")


def test_a_call_is_interrupted_by_a_lack_of_memory_also_in_a_partitioner() -> None:
    def choose(*_: object) -> int:
        raise MemoryError

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(SendManyInterruptedError) as caught:
                await producer.send_many("t", [b"a", b"b"])
            assert isinstance(caught.value.__cause__, MemoryError)

    play(act, partitioner=choose)


def test_an_asynchronous_source_is_asked_for_one_item_at_a_time() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        appended_before: list[int] = []

        async def items() -> AsyncIterator[bytes]:
            for value in numbered(100):
                appended_before.append(stage.engine.appender.fast_path.appended)
                yield value

        assert (await producer.send_many("t", items())).delivered == 100
        assert appended_before == list(range(100))
        assert stage.values("t") == numbered(100)
        await producer.close()

    play(act)


def test_serializers_see_every_item() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        result = await stage.producer.send_many("t", [b"plain", "text", (b"key", "text")])
        assert result.delivered == 3
        assert stage.values("t") == [b"b'plain'", b"text", b"text"]
        await stage.producer.close()

    play(act, value_serializer=lambda value: str(value).encode())


@pytest.mark.parametrize(
    "item", [b"much too large" * 100, "text", (b"key", b"value", None, -1), (b"one part",)]
)
@pytest.mark.parametrize("is_last", [True, False])
def test_an_item_that_is_refused_fails_the_transaction(item: Item, is_last: bool) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.begin_transaction()
        items = [b"first", item] if is_last else [b"first", item, b"last"]
        with contextlib.suppress(SendManyInterruptedError):
            await stage.producer.send_many("t", items)
        with pytest.raises(TransactionAbortableError):
            await stage.producer.commit_transaction()
        await stage.producer.close()

    play(act, transactional_id="tx")


@pytest.mark.parametrize("memory", [{}, {"batch_size": 1 << 20, "buffer_memory": 1 << 25}])
def test_a_commit_in_the_midst_of_a_call_fails(memory: dict[str, int]) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        await stage.producer.begin_transaction()
        items = numbered(500) if not memory else [b"x" * 100_000] * 100
        call = asyncio.create_task(stage.producer.send_many("t", items))
        await asyncio.sleep(0)
        assert stage.engine.accumulator.has_incomplete
        with pytest.raises(TransactionAbortableError):
            await stage.producer.commit_transaction()
        with pytest.raises(SendManyInterruptedError):
            await call
        await stage.producer.close()

    play(act, transactional_id="tx", **memory)


def test_a_call_needs_an_open_transaction() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(IllegalStateError):
            await stage.producer.send_many("t", [b"v"])
        await stage.producer.close()

    play(act, transactional_id="tx")


def test_partitions_that_are_added_meanwhile_get_their_keys() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1,))
        producer = stage.producer
        await producer.start()

        async def items() -> AsyncIterator[tuple[bytes, bytes]]:
            for number, value in enumerate(numbered(60)):
                if number == 30:
                    await producer.flush()
                    stage.world.cluster.create_partitions("wide", 3)
                    while len(await producer.partitions_for("wide")) < 3:
                        stage.engine.metadata.request_update()
                        stage.engine.metadata_task.wake()
                        await asyncio.sleep(0.1)
                yield b"k%d" % number, value

        assert (await producer.send_many("wide", items())).delivered == 60
        for number, value in enumerate(numbered(60)):
            partition = murmur2_partition(b"k%d" % number, 3) if number >= 30 else 0
            assert value in stage.values("wide", partition)
        await producer.close()

    play(act)


NARROW = {"max_request_size": 1000, "max_in_flight_requests_per_connection": 1}


async def call_without_answers(stage: Stage, values: list[bytes]) -> asyncio.Task[SendManyResult]:
    await stage.producer.start()
    await stage.producer.warm_up(["t"])
    stage.lose()
    return asyncio.create_task(stage.producer.send_many("t", values))


def test_a_call_writes_no_more_ahead_than_connections_carry() -> None:
    async def act(stage: Stage) -> None:
        values = numbered(1000)
        call = await call_without_answers(stage, values)
        await asyncio.sleep(20)
        # Two requests of 1,000 bytes, and the batches that are open and about to be.
        assert 10 <= len(list(stage.engine.accumulator.incomplete())) <= 12
        stage.revive()
        revived = stage.loop.time()
        assert (await call).delivered == 1000
        assert stage.loop.time() - revived < 30  # woken by outcomes, not by `max_block_ms`
        assert stage.values("t") == values
        await stage.producer.close()

    play(act, buffer_memory=100_000, **NARROW)


def test_the_open_batch_of_each_partition_does_not_count_as_written_ahead() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1,) * 8)
        await stage.producer.start()
        await stage.producer.warm_up(["wide"])
        stage.lose()
        call = asyncio.create_task(stage.producer.send_many("wide", numbered(1000)))
        await asyncio.sleep(20)
        pending = [*stage.engine.accumulator.incomplete()]
        assert len(pending) > 10 + len({batch.topic_partition for batch in pending})
        stage.revive()
        await call
        await stage.producer.close()

    play(act, buffer_memory=100_000, **NARROW)


def test_a_call_that_has_had_answers_writes_no_further_ahead_either() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        silence = stage.faults.swallow(ApiKey.PRODUCE, skip=3, times=None)
        call = asyncio.create_task(stage.producer.send_many("t", numbered(1000)))
        await asyncio.sleep(20)
        assert stage.values("t")
        assert 10 <= len(list(stage.engine.accumulator.incomplete())) <= 12
        stage.faults.remove(silence)
        assert (await call).delivered == 1000
        await stage.producer.close()

    play(act, buffer_memory=100_000, **NARROW)


def test_a_call_that_was_ahead_for_max_block_ms_fills_the_memory() -> None:
    async def act(stage: Stage) -> None:
        call = await call_without_answers(stage, numbered(1000))
        await asyncio.sleep(20)
        assert stage.engine.pool.available > 10_000
        await asyncio.sleep(20)
        assert stage.engine.pool.available < 200
        stage.revive()
        assert (await call).delivered == 1000
        await stage.producer.close()

    play(act, buffer_memory=20_000, max_block_ms=30_000, **NARROW)


def test_items_of_several_blocks_are_numbered_in_their_order() -> None:
    async def blocks() -> AsyncIterator[list[Item]]:
        yield [b"0", (b"1",), b"2"]
        yield [(b"3",)]
        yield []
        yield [b"4", b"5", (b"6",)]

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        result = await send_blocks(stage.engine, stage.producer._prepare, "t", blocks(), None)
        assert (result.count, result.delivered) == (7, 4)
        assert [failed.index for failed in result.failed] == [1, 3, 6]
        assert stage.values("t") == [b"0", b"2", b"4", b"5"]
        await stage.producer.close()

    play(act)


def test_an_item_that_is_read_after_the_close_is_neither_sent_nor_counted() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()

        async def items() -> AsyncIterator[bytes]:
            for number in range(5):
                if number == 3:
                    await stage.producer.close()
                yield b"%d" % number

        with pytest.raises(SendManyInterruptedError, match="is closed") as caught:
            await stage.producer.send_many("t", items())
        assert (caught.value.result.count, caught.value.result.failed) == (3, [])
        assert stage.values("t") == [b"0", b"1", b"2"]

    play(act)


def test_items_without_partition_change_it_when_a_batch_is_full() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", leaders=(1,) * 20)
        await stage.producer.start()
        await stage.producer.warm_up(["many"])
        items = [b"%050d" % number for number in range(1000)]
        assert (await stage.producer.send_many("many", items)).delivered == 1000
        where = {item: place for place in range(20) for item in stage.values("many", place)}
        *runs, last = [len(list(run)) for _, run in groupby(where[item] for item in items)]
        # 34 items fill a batch, and the partition chosen next is by chance the same one.
        assert {run % 34 for run in runs} == {0}
        assert len(runs) > 20
        assert last < 34
        await stage.producer.close()

    play(act, batch_size=2000, buffer_memory=1 << 20)


class Unreadable:
    """Headers that cannot be iterated."""

    def __iter__(self) -> object:
        raise LookupError


def released() -> memoryview:
    view = memoryview(b"v")
    view.release()
    return view


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((b"k", b"v", Unreadable()), r"the headers raised LookupError at test_send_many.py:\d+"),
        ((b"k", released()), "the value cannot be read"),
        ((released(), b"v"), "the key cannot be read"),
    ],
)
def test_an_item_that_cannot_be_read_fails_alone(item: Item, message: str) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        result = await stage.producer.send_many("t", [b"0", item, b"2"])
        ((index, error),) = [(failed.index, failed.error) for failed in result.failed]
        assert index == 1
        assert isinstance(error, SerializationError)
        assert re.match(message, error.message)
        assert error.topic == "t"
        assert stage.values("t") == [b"0", b"2"]
        await stage.producer.close()

    play(act)


@pytest.mark.parametrize("headers", [pandas.NA, pandas.Series([b"a", b"b"])], ids=["NA", "array"])
def test_headers_without_a_truth_value_are_refused_with_their_item(headers: object) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        items = [b"0", (b"k", b"1", headers), (b"k", b"2")]
        result = await stage.producer.send_many("t", items)
        assert [failed.index for failed in result.failed] == [1]
        with pytest.raises(SerializationError, match="headers must be pairs"):
            await stage.producer.send("t", b"v", headers=headers)  # type: ignore[arg-type]
        assert stage.values("t") == [b"0", b"2"]
        await stage.producer.close()

    play(act)
