"""Calls of serializers by the producer, on virtual time: the record, the waits, the refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer import Producer
from aioproducer.errors import (
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.serializers import (
    BytesSerializer,
    LongSerializer,
    SerializationContext,
    StringSerializer,
    in_thread,
)
from aioproducer.types import Persistence


class Tracing:
    """Records its arguments, and adds a header."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str, list[str]]] = []

    def serialize(self, data: Any, context: SerializationContext) -> bytes | None:
        names = [name for name, _ in context.headers]
        self.reported.append((context.topic, context.part, names))
        context.headers.append((context.part, b"seen"))
        return str(data).encode()


class Slow:
    """Waits for some virtual seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun = 0

    async def serialize(self, data: Any, context: SerializationContext) -> bytes:
        self.begun += 1
        await asyncio.sleep(self.seconds)
        return str(data).encode()


def records(stage: Stage, topic: str = "t") -> list[tuple[Any, ...]]:
    return [
        (record.key, record.value, tuple(record.headers))
        for batch in stage.batches(topic)
        if not batch.is_control
        for record in batch.records()
    ]


def test_serializers_see_topic_part_and_headers_and_may_add_some() -> None:
    tracing = Tracing()

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", 5, 7, headers=[("given", b"1")])
        await stage.producer.close()
        assert records(stage) == [
            (b"7", b"5", (("given", b"1"), ("key", b"seen"), ("value", b"seen")))
        ]

    play(act, key_serializer=tracing, value_serializer=tracing)
    assert tracing.reported == [("t", "key", ["given"]), ("t", "value", ["given", "key"])]


def test_serializers_get_the_text_of_a_topic_that_is_a_member_of_an_enumeration() -> None:
    tracing = Tracing()

    class Topic(str, Enum):  # noqa: UP042 - its members are formatted otherwise
        ORDERS = "t"

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait(Topic.ORDERS, 5)
            await producer.send_many(Topic.ORDERS, [6])

    play(act, value_serializer=tracing)
    assert [f"{topic}-{part}" for topic, part, _ in tracing.reported] == ["t-value", "t-value"]


def test_bytes_serializer_leaves_the_fast_path_enabled() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"first")
        assert stage.producer._fast_path is not None
        result = await stage.producer.send_many("t", [b"second", bytearray(b"third")])
        assert result.delivered == 2
        with pytest.raises(SerializationError, match="value must be bytes"):
            await stage.producer.send("t", "text")
        await stage.producer.close()

    play(act, key_serializer=BytesSerializer(), value_serializer=BytesSerializer())


def test_what_was_serialized_takes_the_fast_path() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send("t", "a", 1)
        delivery = await producer.send("t", "b", 1)
        producer.send_nowait("t", "c", 1)
        await delivery
        await producer.close()
        assert [value for _, value, _ in records(stage)] == [b"a", b"b", b"c"]
        assert {key for key, _, _ in records(stage)} == {b"\0\0\0\0\0\0\0\1"}

    play(act, key_serializer=LongSerializer(), value_serializer=StringSerializer())


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_serializer_that_waits_is_waited_for(part: str) -> None:
    slow = Slow(3)

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        began = stage.loop.time()
        await producer.send("t", "v", "k")
        assert stage.loop.time() - began >= 3
        result = await producer.send_many("t", [("k", "w"), ("k", "x")])
        assert result.delivered == 2
        await producer.close()
        assert [record[:2] for record in records(stage)] == [
            (b"k", b"v"),
            (b"k", b"w"),
            (b"k", b"x"),
        ]

    both = {"key_serializer": str.encode, "value_serializer": str.encode}
    play(act, **{**both, f"{part}_serializer": slow})
    assert slow.begun == 3


def test_a_coroutine_function_is_a_serializer() -> None:
    async def encode(data: str) -> bytes:
        await asyncio.sleep(1)
        return data.encode()

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", "v", "k")
        await stage.producer.close()
        assert records(stage) == [(b"k", b"v", ())]

    play(act, key_serializer=encode, value_serializer=encode)


def test_send_nowait_refuses_a_serializer_that_waits() -> None:
    slow = Slow(1)

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        with pytest.raises(WouldBlockError, match="the value_serializer has to wait"):
            stage.producer.send_nowait("t", 1)
        await stage.producer.close()
        assert records(stage) == []

    play(act, value_serializer=slow)
    assert slow.begun == 0


def test_the_wait_for_a_serializer_is_bounded() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        began = stage.loop.time()
        with pytest.raises(KafkaTimeoutError, match="serializer took longer than max_block_ms"):
            await stage.producer.send("t", 1)
        assert stage.loop.time() - began == pytest.approx(60)
        result = await stage.producer.send_many("t", [1, 2, 3, 4])
        assert stage.loop.time() - began == pytest.approx(120)  # the first one waits, not all
        assert (result.delivered, len(result.failed)) == (0, 4)
        await stage.producer.close()

    play(act, value_serializer=Slow(1000), max_block_ms=60_000)


def test_a_producer_closed_meanwhile_takes_nothing() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        sending = asyncio.create_task(stage.producer.send("t", 1))
        await asyncio.sleep(1)
        await stage.producer.close()
        with pytest.raises(ProducerClosedError):
            await sending

    play(act, value_serializer=Slow(2))


def test_a_record_does_not_slip_into_the_next_transaction() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.begin_transaction()
        sending = asyncio.create_task(producer.send("t", 1))
        await asyncio.sleep(1)
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="transaction ended while"):
            await sending
        with pytest.raises(SerializationError):
            await producer.send("t", None)
        await producer.commit_transaction()
        with pytest.raises(IllegalStateError):  # and nothing that was begun is left unawaited
            await producer.send("t", 2)
        await producer.close()
        assert records(stage) == []

    class Picky(Slow):
        async def serialize(self, data: Any, context: SerializationContext) -> bytes:
            if data is None:
                raise ValueError("nothing")
            return await super().serialize(data, context)

    play(act, transactional_id="x", value_serializer=Picky(5))


@pytest.mark.parametrize("waits", [False, True])
def test_a_refusal_names_topic_and_part_and_says_that_nothing_was_written(waits: bool) -> None:
    def refuse(data: object) -> bytes:
        raise ZeroDivisionError("why")

    async def refuse_later(data: object) -> bytes:
        await asyncio.sleep(1)
        raise ZeroDivisionError("why")

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(SerializationError, match=r"key_serializer raised Zero.*topic t") as e:
            await stage.producer.send("t", b"v", b"k")
        assert isinstance(e.value.__cause__, ZeroDivisionError)
        assert (e.value.part, e.value.persistence) == ("key", Persistence.NOT_PERSISTED)
        result = await stage.producer.send_many("t", [(b"k", b"v"), (b"k", b"v")])
        assert [failed.index for failed in result.failed] == [0, 1]
        await stage.producer.close()
        assert records(stage) == []

    play(act, key_serializer=refuse_later if waits else refuse)


def test_a_serializer_in_javas_form_is_refused_at_once() -> None:
    class OfJava:
        def serialize(self, topic: str, data: object) -> bytes:
            return repr(data).encode()

    for name in ("key_serializer", "value_serializer"):
        with pytest.raises(ConfigError, match=rf"{name}: serialize\(\) is called with \(data, con"):
            Producer(bootstrap_servers="a:1", **{name: OfJava()})

    class OfTopics:
        def serialize(self, topic: object, context: SerializationContext) -> bytes:
            return repr(topic).encode()

    assert Producer(bootstrap_servers="a:1", value_serializer=OfTopics())


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_of_a_serializer_shows_nothing_of_the_data(waits: bool) -> None:
    def refuse(data: str) -> bytes:
        return b"%d" % int(data) if data.isascii() else data.encode()

    async def refuse_later(data: str) -> bytes:
        return refuse(data)

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        for data, cause in (("4711x", ValueError), ("4711\ud800", UnicodeEncodeError)):
            with pytest.raises(SerializationError) as raised:
                await stage.producer.send("t", data)
            assert "4711" not in f"{raised.value}{raised.value!r}"
            assert f"{cause.__name__} at test_calling.py:" in str(raised.value)
            assert type(raised.value.__cause__) is cause
        await stage.producer.close()

    play(act, value_serializer=refuse_later if waits else refuse)


def test_the_error_of_a_function_that_cannot_take_none_says_when_it_gets_it() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(SerializationError, match="called with None if a record has no key"):
            await stage.producer.send("t", b"v")
        await stage.producer.close()

    play(act, key_serializer=str.encode)


@pytest.mark.parametrize("waits", [False, True])
def test_what_is_no_bytes_is_refused(waits: bool) -> None:
    async def later(data: object) -> Any:
        return "text"

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(SerializationError, match="value_serializer returned str"):
            await stage.producer.send("t", b"v")
        await stage.producer.close()

    play(act, value_serializer=later if waits else (lambda data: "text"))


def test_a_blocking_serializer_runs_in_a_thread() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", "v", "k")
        await stage.producer.close()
        assert records(stage) == [(b"k", b"v", ())]

    play(act, key_serializer=in_thread(str.encode), value_serializer=in_thread(StringSerializer()))


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_buffer_that_changes_during_the_wait_is_sent_as_it_was(part: str) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        buffer = bytearray(b"before")
        other = {"key": "value", "value": "key"}[part]
        sending = asyncio.create_task(producer.send("t", **{other: buffer, part: "x"}))
        await asyncio.sleep(1)
        buffer[:] = b"after!"
        await sending
        await producer.close()
        assert sorted(records(stage)[0][:2]) == [b"before", b"x"]

    play(act, **{f"{part}_serializer": Slow(2)})


class Witness:
    """An interceptor that writes down what becomes of records."""

    def __init__(self) -> None:
        self.reported: list[tuple[int | None, str | None]] = []

    def on_acknowledgement(self, metadata: Any, error: Any, headers: object) -> None:
        self.reported.append((metadata.offset, None if error is None else type(error).__name__))


def test_interceptors_get_records_whose_serializer_waits() -> None:
    witness = Witness()

    class Picky(Slow):
        async def serialize(self, data: Any, context: SerializationContext) -> bytes:
            if data == "bad":
                await asyncio.sleep(1)
                raise ValueError("bad")
            return await super().serialize(data, context)

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("t", "good")
        with pytest.raises(SerializationError):
            await producer.send("t", "bad")
        with pytest.raises(WouldBlockError, match="has to wait"):
            producer.send_nowait("t", "good")
        result = await producer.send_many("t", ["good", "bad", "good"])
        assert (result.delivered, [failed.index for failed in result.failed]) == (2, [1])
        await producer.close()
        assert [value for _, value, _ in records(stage)] == [b"good"] * 3

    play(act, value_serializer=Picky(1), interceptor_classes=[witness])
    assert sorted(witness.reported, key=str) == sorted(
        [
            (0, None),
            (None, "SerializationError"),
            (None, "WouldBlockError"),
            (1, None),
            (None, "SerializationError"),
            (2, None),
        ],
        key=str,
    )


def test_a_synchronous_producer_waits_for_serialized_records_too() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        for _ in range(3):
            assert (await stage.producer.send("t", "v")).done()
        await stage.producer.close()

    for serializer in (StringSerializer(), Slow(1)):
        play(act, value_serializer=serializer, producer_type="sync")
    play(
        act,
        value_serializer=StringSerializer(),
        producer_type="sync",
        interceptor_classes=[Witness()],
    )


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_of_the_application_is_raised_as_it_is(waits: bool) -> None:
    class FieldError(SerializationError):
        def __init__(self, field: str, *, code: int) -> None:
            super().__init__(f"{field} is missing")
            self.code = code

    def serializer(value: object) -> bytes:
        raise FieldError("name", code=7)

    async def waiting(value: object) -> bytes:
        return serializer(value)

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(FieldError, match="name is missing") as caught:
            await stage.producer.send("t", {})
        assert (caught.value.code, caught.value.topic) == (7, "t")
        result = await stage.producer.send_many("t", [{}])
        assert isinstance(result.failed[0].error, FieldError)
        await stage.producer.close()

    play(act, value_serializer=waiting if waits else serializer)


def reading_a_cancelled_future(value: bytes) -> bytes:
    cancelled: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    return cancelled.result() if value == b"bad" else value


async def waiting_for_a_cancelled_task(value: bytes) -> bytes:
    if value == b"bad":
        task = asyncio.create_task(asyncio.sleep(3))
        task.cancel()
        await task
    await asyncio.sleep(1)
    return value


@pytest.mark.parametrize("serializer", [reading_a_cancelled_future, waiting_for_a_cancelled_task])
def test_something_cancelled_in_a_serializer_refuses_its_record_and_cancels_no_call(
    serializer: Callable[[bytes], object],
) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(SerializationError, match="raised CancelledError"):
            await stage.producer.send("t", b"bad")
        result = await stage.producer.send_many("t", [b"0", b"bad", b"1"])
        assert (result.delivered, [failed.index for failed in result.failed]) == (2, [1])
        await stage.producer.close()

    play(act, value_serializer=serializer)


def test_a_send_that_is_cancelled_while_its_serializer_waits_is_cancelled() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        sending = asyncio.create_task(stage.producer.send("t", b"good"))
        await asyncio.sleep(0.5)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await stage.producer.close()

    play(act, value_serializer=waiting_for_a_cancelled_task)


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor(1)], ids=["default", "own"])
async def test_a_serializer_in_a_thread_may_raise_stop_iteration(executor: Any) -> None:
    serializer = in_thread(lambda _: next(iter(())), executor)
    made: Any = serializer.serialize("x", SerializationContext("t", "value"))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(made, 5)
