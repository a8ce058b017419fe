"""MockProducer: what Java's can do, by the rules of the real producer."""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import Producer, Record, SourcePosition, TopicPartition
from aioproducer.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    IllegalStateError,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordsFailedError,
    RecordsPurgedError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionAbortedError,
    WouldBlockError,
)
from aioproducer.records import murmur2_partition
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.serializers import JsonSerializer, LongSerializer, StringSerializer
from aioproducer.testing import MockProducer
from aioproducer.types import OffsetAndMetadata


def values(records: list[Any]) -> list[bytes | None]:
    return [record.value for record in records]


async def test_a_record_without_a_timestamp_has_that_of_a_replaced_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """freezegun and time-machine replace Python's clock, and not that of the native core."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_577_836_800_000_000_000)
    async with MockProducer() as producer:
        metadata = await producer.send_and_wait("orders", b"v")
    assert metadata.timestamp_ms == producer.history[0].timestamp_ms == 1_577_836_800_000


async def test_records_are_acknowledged_at_once_and_remembered() -> None:
    async with MockProducer(topics={"orders": 3}) as producer:
        metadata = await producer.send_and_wait("orders", b"v", b"k", headers={"h": b"1"})
        assert metadata.offset == 0
        assert metadata.partition == murmur2_partition(b"k", 3)
        assert (await producer.send_and_wait("orders", b"w", b"k")).offset == 1
        assert (await producer.send_and_wait("other", b"x", timestamp_ms=5)).timestamp_ms == 5
    assert values(producer.history) == [b"v", b"w", b"x"]
    assert producer.history[0].headers == (("h", b"1"),)
    assert producer.history[1].offset == 1
    assert producer.closed


async def test_a_test_decides_when_and_how_records_end() -> None:
    async with MockProducer(auto_complete=False) as producer:
        first = await producer.send("t", b"1")
        second = producer.send_nowait("t", b"2")
        third = await producer.send("t", b"3")
        assert (producer.pending, first.done()) == (3, False)
        assert producer.complete_next()
        assert (await first).offset == 0
        assert producer.error_next(DeliveryTimeoutError("late"))
        with pytest.raises(DeliveryTimeoutError, match="late"):
            await second
        assert await producer.flush() == 0
        assert (await third).offset == 2
        assert not producer.complete_next()
        assert not producer.error_next(KafkaError("nobody"))
        assert producer.flushes == 1
    assert values(producer.history) == [b"1", b"3"]


async def test_callbacks_and_unretrieved_failures_work_as_in_the_real_one() -> None:
    reported: list[Any] = []
    producer = MockProducer(
        auto_complete=False, on_delivery_error=lambda where, count, error: reported.append(where)
    )
    async with producer:
        delivery = await producer.send("t", b"1")
        delivery.add_done_callback(reported.append)
        producer.complete_next()
        await producer.send("t", b"2")
        producer.error_next(DeliveryTimeoutError("late"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert reported == [delivery, TopicPartition("t", 0)]


async def test_closing_acknowledges_what_waits_unless_there_is_no_time() -> None:
    for timeout, expected in ((None, None), (0, ProducerClosedError)):
        producer = MockProducer(auto_complete=False)
        await producer.start()
        delivery = await producer.send("t", b"1")
        await producer.close(timeout)
        await producer.close()
        error = delivery.exception()
        assert error is None if expected is None else isinstance(error, expected)
        with pytest.raises(ProducerClosedError):
            await producer.send("t", b"2")


async def test_states_and_arguments_are_checked_as_in_the_real_one() -> None:
    producer = MockProducer(topics={"t": 2}, max_request_size=1000, auto_start=False)
    with pytest.raises(IllegalStateError, match="not started"):
        await producer.send("t", b"v")
    with pytest.raises(IllegalStateError, match="not started"):
        await producer.flush()
    async with producer:
        with pytest.raises(IllegalStateError, match="starts once"):
            await producer.start()
        with pytest.raises(InvalidPartitionError):
            await producer.send("t", b"v", partition=-1)
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", b"v" * 1000)
        with pytest.raises(SerializationError, match="value must be bytes"):
            await producer.send("t", "text")
        with pytest.raises(IllegalStateError, match="not transactional"):
            await producer.begin_transaction()
        with pytest.raises(TypeError, match="NoneType"):
            await producer.send_arrow("t", None)
        with pytest.raises(InvalidTopicError):
            await producer.send_arrow(None, None)
        with pytest.raises(IllegalStateError, match="can be fenced"):
            producer.fence()
        assert [each.partition for each in await producer.partitions_for("t")] == [0, 1]
        await producer.warm_up(["t"])
        assert await producer.client_instance_id() == await producer.client_instance_id()
        assert producer.health().ready
    assert producer.history == []


async def test_serializers_run() -> None:
    async def later(data: str) -> bytes:
        await asyncio.sleep(0)
        return data.encode()

    async with MockProducer(
        key_serializer=LongSerializer(), value_serializer=StringSerializer()
    ) as producer:
        await producer.send("t", "é", 1)
    assert (producer.history[0].key, producer.history[0].value) == (b"\0" * 7 + b"\1", b"\xc3\xa9")
    async with MockProducer(value_serializer=later) as producer:
        await producer.send("t", "v")
        with pytest.raises(WouldBlockError):
            producer.send_nowait("t", "w")
    assert values(producer.history) == [b"v"]

    async def never(data: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with MockProducer(value_serializer=never, max_block_ms=1) as producer:
        with pytest.raises(KafkaTimeoutError):
            await producer.send("t", "v")


async def test_interceptors_see_records_and_what_becomes_of_them() -> None:
    class Interceptor:
        def __init__(self) -> None:
            self.reported: list[tuple[int | None, str | None]] = []

        def on_send(self, record: Record) -> Record:
            return replace(record, value=record.value + b"!")

        def on_acknowledgement(self, metadata: Any, error: Any, headers: object) -> None:
            self.reported.append((metadata.offset, None if error is None else type(error).__name__))

    interceptor = Interceptor()
    async with MockProducer(auto_complete=False, interceptor_classes=[interceptor]) as producer:
        delivery = await producer.send("t", b"1")
        await producer.send("t", b"2")
        with pytest.raises(WouldBlockError):
            producer.send_nowait("t", b"3", partition=7)
        producer.complete_next()
        producer.error_next(DeliveryTimeoutError("late"))
        await delivery
        producer.auto_complete = True
        await producer.send("t", b"4")
    assert values(producer.history) == [b"1!", b"4!"]
    reported = [
        (None, "WouldBlockError"),
        (0, None),
        (None, "DeliveryTimeoutError"),
        (2, None),
    ]
    assert interceptor.reported == reported


async def test_a_partition_that_a_topic_does_not_have_is_missing_as_with_the_real_one() -> None:
    async with MockProducer(topics={"t": 2}) as producer:
        with pytest.raises(MetadataTimeoutError) as timed_out:
            await producer.send("t", b"v", partition=2)
        with pytest.raises(WouldBlockError) as blocked:
            producer.send_nowait("t", b"v", partition=2)
    for caught in (timed_out, blocked):
        assert (caught.value.topic, caught.value.partition) == ("t", 2)
        assert isinstance(caught.value.__cause__, InvalidPartitionError)


async def test_a_partition_that_a_topic_does_not_have_fails_the_transaction() -> None:
    async with MockProducer(transactional_id="x", topics={"t": 2}) as producer:
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction():
                with pytest.raises(MetadataTimeoutError):
                    await producer.send("t", b"v", partition=2)
        assert (producer.commits, producer.aborts) == (0, 1)


async def test_records_have_no_offset_without_acknowledgements() -> None:
    async with MockProducer(acks=0) as producer:
        assert (await producer.send_and_wait("t", b"v")).offset is None
        assert (await producer.send_many("t", [b"v"])).offsets == {}


async def test_send_of_the_type_sync_raises_what_fails_its_record() -> None:
    async with MockProducer(producer_type="sync", auto_complete=False) as producer:
        sending = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(0)
        assert not sending.done()
        producer.error_next(DeliveryTimeoutError("late"))
        with pytest.raises(DeliveryTimeoutError):
            await sending


async def test_a_transaction_is_prepared_once() -> None:
    async with MockProducer(transactional_id="x") as producer:
        await producer.begin_transaction()
        await producer.prepare_transaction()
        with pytest.raises(IllegalStateError):
            await producer.prepare_transaction()


async def test_send_many_counts() -> None:
    async with MockProducer() as producer:
        items = [b"a", (b"k", b"b"), "text", Record(b"c", topic="u")]
        result = await producer.send_many("t", items)
        assert (result.count, result.delivered) == (4, 3)
        assert [failed.index for failed in result.failed] == [2]
        assert result.offsets == {TopicPartition("t", 0): (0, 1), TopicPartition("u", 0): (0, 0)}

        async def broken() -> Any:
            yield b"d"
            raise ZeroDivisionError

        with pytest.raises(SendManyInterruptedError) as caught:
            await producer.send_many("t", broken())
        assert caught.value.result.delivered == 1


async def test_item_for_which_the_partitioner_raises_fails_alone() -> None:
    def choose(topic: str, key: bytes | None, value: bytes | None, meta: object) -> int:
        return (value or b"")[0] % 1

    async with MockProducer(partitioner=choose) as producer:
        table = pa.table({"value": [b"a", b"", b"c"]})
        for result in (
            await producer.send_many("t", [b"a", b"", b"c"]),
            await producer.send_arrow("t", table),
        ):
            assert (result.count, result.delivered) == (3, 2)
            (failed,) = result.failed
            assert failed.index == 1
            assert isinstance(failed.error, InvalidPartitionError)
            assert isinstance(failed.error.__cause__, IndexError)


@pytest.mark.parametrize("raised", [StopIteration, asyncio.CancelledError])
async def test_partitioner_fails_one_record_with_what_a_coroutine_cannot_raise(
    raised: type[BaseException],
) -> None:
    def choose(topic: str, key: object, value: object, meta: object) -> int:
        raise raised

    async with MockProducer(partitioner=choose) as producer:
        with pytest.raises(InvalidPartitionError, match=f"raised {raised.__name__}"):
            await producer.send("t", b"v")
        assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0


async def test_errors_are_raised_by_the_calls_they_are_scripted_for() -> None:
    async with MockProducer(transactional_id="x") as producer:
        producer.errors["begin"] = KafkaTimeoutError("begin")
        with pytest.raises(KafkaTimeoutError, match="begin"):
            await producer.begin_transaction()
        del producer.errors["begin"]
        await producer.begin_transaction()
        for call, act in {
            "send": lambda: producer.send("t", b"v"),
            "flush": producer.flush,
            "partitions_for": lambda: producer.partitions_for("t"),
            "send_offsets": lambda: producer.send_offsets_to_transaction({}, "g"),
            "commit": producer.commit_transaction,
            "abort": producer.abort_transaction,
            "close": producer.close,
        }.items():
            producer.errors[call] = ZeroDivisionError(call)
            with pytest.raises(ZeroDivisionError, match=call):
                await act()
        producer.errors.clear()
    failing = MockProducer(transactional_id="x")
    failing.errors["init"] = KafkaTimeoutError("init")
    with pytest.raises(KafkaTimeoutError):
        await failing.start()
    assert failing.closed


async def test_a_source_position_is_that_of_the_last_committed_transaction() -> None:
    position = SourcePosition("job", "t")
    async with MockProducer(transactional_id="job") as producer:
        assert await position.read(producer) is None
        for offset in (1, 2):
            async with producer.transaction() as tx:
                await position.write(tx, offset, "file")
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition("t", 0): 3}, "job")
        await producer.abort_transaction()
        assert await position.read(producer) == OffsetAndMetadata(2, "file")


async def test_a_transaction_enters_the_history_when_it_commits() -> None:
    async with MockProducer(transactional_id="x") as producer:
        with pytest.raises(IllegalStateError, match="no transaction takes records"):
            await producer.send("t", b"0")
        async with producer.transaction() as tx:
            await producer.send("t", b"1")
            await tx.send_offsets({TopicPartition("in", 0): 42}, "group")
            assert producer.in_transaction
            assert (producer.history, values(producer.uncommitted)) == ([], [b"1"])
            assert producer.uncommitted_offsets == {
                "group": {TopicPartition("in", 0): OffsetAndMetadata(42)}
            }
        assert values(producer.history) == [b"1"]
        assert (producer.commits, producer.aborts, producer.in_transaction) == (1, 0, False)
        assert producer.sent_offsets == [
            {"group": {TopicPartition("in", 0): OffsetAndMetadata(42)}}
        ]
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("t", b"2")
                raise ZeroDivisionError
        assert (producer.commits, producer.aborts) == (1, 1)
        assert values(producer.history) == [b"1"]
        assert producer.uncommitted_offsets == {}


async def test_offsets_of_no_partition_are_no_part_of_a_transaction() -> None:
    async with MockProducer(transactional_id="x") as producer:
        async with producer.transaction() as tx:
            await tx.send_offsets({}, "group")
            assert producer.uncommitted_offsets == {}
        assert producer.sent_offsets == []


async def test_a_transaction_with_a_failed_record_does_not_commit() -> None:
    async with MockProducer(transactional_id="x", auto_complete=False) as producer:
        with pytest.raises(TransactionAbortableError, match="late"):
            async with producer.transaction():
                await producer.send("t", b"1")
                waiting = await producer.send("t", b"2")
                producer.error_next(DeliveryTimeoutError("late"))
                with pytest.raises(TransactionAbortableError):
                    await producer.send("t", b"3")
        # The commit sent what was left before it found out.
        assert (await waiting).offset == 1
        assert (producer.history, producer.commits, producer.aborts) == ([], 0, 1)
        await producer.begin_transaction()
        aborted = await producer.send("t", b"4")
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await aborted


@pytest.mark.parametrize(
    ("topic", "value", "scripted", "error"),
    [
        ("t", b"v" * 2000, None, RecordTooLargeError),
        ("no topic", b"v", None, InvalidTopicError),
        ("t", b"v", BufferExhaustedError("full"), BufferExhaustedError),
    ],
)
async def test_a_transaction_does_not_commit_without_a_record_that_was_refused(
    topic: str, value: bytes, scripted: Exception | None, error: type[Exception]
) -> None:
    async with MockProducer(transactional_id="x", max_request_size=1000) as producer:
        with pytest.raises(TransactionAbortableError) as caught:
            async with producer.transaction():
                await producer.send("t", b"1")
                if scripted is not None:
                    producer.errors["send"] = scripted
                with pytest.raises(error):
                    await producer.send(topic, value)
                producer.errors.clear()
        assert isinstance(caught.value.__cause__, error)
        assert (producer.history, producer.commits, producer.aborts) == ([], 0, 1)
        async with producer.transaction():
            await producer.send("t", b"2")
        assert values(producer.history) == [b"2"]


async def test_a_failed_transaction_has_to_be_aborted_before_another_call() -> None:
    async with MockProducer(transactional_id="tx", auto_complete=False) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"1")
        producer.error_next(KafkaError("late"))
        assert delivery.exception() is not None
        for call in (producer.begin_transaction, producer.init_transactions):
            with pytest.raises(TransactionAbortableError, match="late"):
                await call()
        await producer.abort_transaction()
        await producer.begin_transaction()


async def test_a_refusal_outside_of_a_transaction_does_not_concern_the_next_one() -> None:
    async with MockProducer(transactional_id="x") as producer:
        producer.errors["send"] = BufferExhaustedError("full")
        with pytest.raises(BufferExhaustedError):
            await producer.send("t", b"1")
        producer.errors.clear()
        async with producer.transaction():
            await producer.send("t", b"2")
        assert producer.commits == 1


async def test_a_wrong_value_that_is_refused_leaves_the_transaction_alone() -> None:
    async with MockProducer(transactional_id="x") as producer:
        async with producer.transaction():
            with pytest.raises(SerializationError):
                await producer.send("t", 5)
        assert producer.commits == 1


@pytest.mark.parametrize("way", ["send_many", "send_arrow"])
async def test_a_bulk_call_ends_with_the_transaction_that_lacks_one_of_its_rows(way: str) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = [b"1", b"v" * 2000, b"3"]
    data = rows if way == "send_many" else pa.table({"value": rows})
    async with MockProducer(transactional_id="x", max_request_size=1000) as producer:
        with pytest.raises(SendManyInterruptedError) as caught:
            async with producer.transaction():
                await getattr(producer, way)("t", data)
        assert (caught.value.result.count, len(caught.value.result.failed)) == (2, 1)
        assert (producer.commits, producer.aborts) == (0, 1)


async def test_a_transaction_does_not_commit_without_the_last_row_of_a_bulk_call() -> None:
    async with MockProducer(transactional_id="x") as producer:
        with pytest.raises(TransactionAbortableError):
            async with producer.transaction():
                result = await producer.send_many("t", [b"1", 5])
        assert [type(each.error) for each in result.failed] == [SerializationError]
        assert (producer.commits, producer.aborts) == (0, 1)


@pytest.mark.parametrize("name", ["no topic", "", "..", "t" * 250])
async def test_names_that_are_no_topics_are_refused_as_by_the_real_one(name: str) -> None:
    async with MockProducer() as producer:
        for call in (
            lambda: producer.send(name, b"v"),
            lambda: producer.partitions_for(name),
            lambda: producer.warm_up([name]),
        ):
            with pytest.raises(InvalidTopicError):
                await call()
        with pytest.raises(TypeError, match="sequence of topic names"):
            await producer.warm_up("t")


async def test_a_fenced_producer_raises() -> None:
    producer = MockProducer(transactional_id="x")
    await producer.start()
    await producer.begin_transaction()
    producer.fence()
    for act in (lambda: producer.send("t", b"v"), producer.commit_transaction):
        with pytest.raises(ProducerFencedError):
            await act()
    await producer.close()
    assert producer.aborts == 1


async def test_a_prepared_transaction_is_left_open() -> None:
    producer = MockProducer(transactional_id="x")
    async with producer:
        async with producer.transaction() as tx:
            await producer.send("t", b"1")
            prepared = await tx.prepare()
            assert not prepared.empty
            with pytest.raises(IllegalStateError):
                await producer.send("t", b"2")
        assert (producer.commits, producer.aborts, producer.in_transaction) == (0, 0, True)
    assert producer.aborts == 0


async def test_clearing_and_purging_drop_records() -> None:
    async with MockProducer(auto_complete=False) as producer:
        for drop in (producer.clear, producer.purge):
            delivery = await producer.send("t", b"1")
            drop()
            with pytest.raises(RecordsPurgedError):
                await delivery
        assert producer.pending == 0
        producer.clear()
        assert producer.history == []


async def test_a_transaction_with_a_purged_record_does_not_commit() -> None:
    async with MockProducer(transactional_id="t", auto_complete=False) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("orders", b"1")
        assert producer.purge() == 1
        assert isinstance(delivery.exception(), RecordsPurgedError)
        with pytest.raises(TransactionAbortableError, match="purged"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert (producer.commits, producer.history) == (0, [])


@pytest.mark.parametrize("way", ["purge", "close"])
async def test_records_that_were_given_up_are_not_in_the_history(way: str) -> None:
    producer = MockProducer(auto_complete=False)
    deliveries = [await producer.send("orders", value) for value in (b"1", b"2", b"2")]
    producer.complete_next()
    if way == "purge":
        producer.purge()
    else:
        await producer.close(0)
    assert [delivery.exception() is None for delivery in deliveries] == [True, False, False]
    assert [record.value for record in producer.history] == [b"1"]
    await producer.close()


async def test_what_was_cleared_is_no_failure_of_the_next_flush() -> None:
    async with MockProducer(auto_complete=False) as producer:
        await producer.send("t", b"1")
        producer.error_next(KafkaError("refused"))
        await producer.send("t", b"2")
        producer.clear()
        assert await producer.flush(raise_failures=True) == 0


async def test_it_is_ready_while_it_takes_records() -> None:
    producer = MockProducer(transactional_id="x")
    assert producer.health().ready, "it starts with the first call"
    async with producer:
        assert (producer.health().ready, producer.health().state) == (True, "running")
        producer.fence()
        assert (producer.health().ready, producer.health().state) == (False, "failed")
        assert "fenced" in (producer.health().error or "")
    assert (producer.health().ready, producer.health().state) == (False, "closed")
    assert not MockProducer(auto_start=False).health().ready


def test_every_call_that_would_talk_to_a_broker_is_replaced() -> None:
    calls = [
        name
        for name, function in inspect.getmembers(Producer, inspect.iscoroutinefunction)
        if not name.startswith("_")
    ]
    assert "send_many" in calls
    # Those of transactions go through `_transactions`.
    own = set(vars(MockProducer))
    left = {name for name in calls if name not in own and "transaction" not in name}
    assert left == set()
    assert "_transactions" in own


async def test_rows_of_a_table_are_sent_as_they_are_each_with_its_outcome() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {
            "value": [b"a", None, b"x" * 2000, b"c", b"d"],
            "key": ["k", None, "k", "k", "k"],
            "partition": pa.array([1, None, 0, 7, 0], pa.int32()),
            "timestamp": pa.array([5, None, 6, 7, 8], pa.int64()),
            "topic": ["t", "u", None, "t", None],
            "headers": pa.array(
                [[("h", b"1")], [], None, [], []], pa.map_(pa.string(), pa.binary())
            ),
        }
    )
    options: dict[str, Any] = {
        "topics": {"t": 2},
        "max_request_size": 1000,
        "value_serializer": JsonSerializer(),
    }
    async with MockProducer(**options) as producer:
        result = await producer.send_arrow(
            "d",
            table,
            key="key",
            headers="headers",
            partition="partition",
            timestamp="timestamp",
            topic_column="topic",
        )
    assert (result.count, result.delivered) == (5, 3)
    assert [each.index for each in result.failed] == [2, 3]
    kinds = [type(each.error) for each in result.failed]
    assert kinds == [RecordTooLargeError, MetadataTimeoutError]
    first, second, last = producer.history
    assert (first.topic, first.partition, first.key, first.value) == ("t", 1, b"k", b"a")
    assert (first.headers, first.timestamp_ms) == ((("h", b"1"),), 5)
    assert (second.topic, second.key, second.value) == ("u", None, None)
    assert (last.topic, last.value, last.timestamp_ms) == ("d", b"d", 8)


async def test_a_row_without_any_topic_fails_alone() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [b"a", b"b"], "topic": [None, "t"]})
    async with MockProducer() as producer:
        result = await producer.send_arrow(None, table, topic_column="topic")
    assert [(each.index, type(each.error)) for each in result.failed] == [(0, InvalidTopicError)]
    assert [record.value for record in producer.history] == [b"b"]


async def test_flush_raises_what_failed_before_it_if_asked() -> None:
    async with MockProducer(auto_complete=False) as producer:
        await producer.send("t", b"1")
        await producer.send("t", b"2")
        assert producer.error_next(KafkaError("refused"))
        with pytest.raises(RecordsFailedError) as caught:
            await producer.flush(raise_failures=True)
        assert caught.value.count == 1
        assert await producer.flush(raise_failures=True) == 0
