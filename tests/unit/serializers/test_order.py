"""Order of concurrent sends while serializers wait, on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stage import Stage, play

from aioproducer.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.serializers import SerializationContext
from aioproducer.testing import MockProducer
from aioproducer.types import Record

ROOMY = {"batch_size": 16_384, "buffer_memory": 1 << 20}


def delayed(data: Any, context: SerializationContext) -> bytes | Awaitable[bytes]:
    """Bytes at once for a str, after some seconds for a pair of str and seconds."""
    if isinstance(data, str):
        return data.encode()
    text, seconds = data

    async def later() -> bytes:
        await asyncio.sleep(seconds)
        if text == "bad":
            raise ValueError(text)
        return str(text).encode()

    return later()


class Delayed:
    """See `delayed`."""

    def serialize(
        self, data: Any, context: SerializationContext
    ) -> bytes | Awaitable[bytes | None] | None:
        return delayed(data, context)


async def started(*calls: Any) -> list[asyncio.Task[Any]]:
    """Tasks of the calls, each of which has done its first step."""
    tasks = []
    for call in calls:
        tasks.append(asyncio.ensure_future(call))
        await asyncio.sleep(0)
    return tasks


def in_order(act: Any, **options: Any) -> Any:
    return play(act, value_serializer=Delayed(), **{**ROOMY, **options})


@pytest.mark.parametrize("known", [False, True])
def test_records_queue_after_one_that_is_being_serialized(known: bool) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        if known:
            await producer.send_and_wait("t", "first")
        began = stage.loop.time()
        tasks = await started(
            producer.send_and_wait("t", ("a", 3)),
            producer.send_and_wait("t", "b"),
            producer.send("t", ("c", 1)),
            producer.send_many("t", ["d", Record(("e", 1))]),
            producer.send("t", "f"),
        )
        assert not any(task.done() for task in tasks)
        await asyncio.gather(*tasks)
        # Serializers run side by side; only the items of one call are taken one by one.
        assert stage.loop.time() - began < 4.5
        await producer.flush()
        assert b"".join(stage.values("t")).removeprefix(b"first") == b"abcdfe"
        await producer.close()

    in_order(act)


def test_topics_do_not_wait_for_each_other() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t", "u"])
        slow, quick = await started(producer.send("t", ("a", 3)), producer.send("u", "b"))
        assert quick.done()
        producer.send_nowait("u", "c")
        await slow
        await producer.close()
        assert stage.values("u") == [b"b", b"c"]

    in_order(act)


@pytest.mark.parametrize("kind", ["cancelled", "failed", "too large"])
def test_a_record_that_is_given_up_lets_the_next_go_on(kind: str) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        text = {"failed": "bad", "too large": "x" * 5000}.get(kind, "a")
        began = stage.loop.time()
        first, second, third = await started(
            producer.send("t", (text, 3)), producer.send("t", ("b", 2)), producer.send("t", "c")
        )
        if kind == "cancelled":
            first.cancel()
        await asyncio.wait([first])
        assert first.cancelled() or first.exception() is not None
        await second
        await third
        assert stage.loop.time() - began < 3.1
        producer.send_nowait("t", "d")
        await producer.close()
        assert stage.values("t") == [b"b", b"c", b"d"]

    in_order(act, max_request_size=1000)


def test_one_that_is_cancelled_in_the_queue_leaves_it() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        first, second, third = await started(
            producer.send("t", ("a", 3)), producer.send("t", "b"), producer.send("t", "c")
        )
        second.cancel()
        await third
        assert second.cancelled()
        assert first.done()
        await producer.close()
        assert stage.values("t") == [b"a", b"c"]

    in_order(act)


def test_a_call_that_comes_while_others_are_resumed_does_not_overtake_them() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])

        async def several(name: str) -> None:
            for number in range(3):
                await producer.send("t", f"{name}{number}")

        slow = producer.send("t", ("x", 1))
        tasks = await started(slow, several("a"), several("b"), several("c"))
        await asyncio.gather(*tasks)
        await producer.close()
        texts = [value.decode() for value in stage.values("t")]
        # Each task's next call comes after the calls that were queued already.
        assert texts == ["x", "a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]

    in_order(act)


def test_send_nowait_does_not_overtake() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        (sending,) = await started(producer.send("t", ("a", 3)))
        with pytest.raises(WouldBlockError, match="earlier record of the topic is being"):
            producer.send_nowait("t", "b")
        await sending
        producer.send_nowait("t", "c")
        await producer.close()
        assert stage.values("t") == [b"a", b"c"]

    in_order(act)


class Renaming:
    """Sends everything to `t`."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def on_send(self, record: Record) -> Record:
        return Record(record.value, record.key, topic="t")

    def on_acknowledgement(self, metadata: Any, error: BaseException | None, headers: Any) -> None:
        if error is not None:
            self.refused.append(type(error).__name__)


def test_with_interceptors_the_topic_they_leave_counts() -> None:
    interceptor = Renaming()

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        tasks = await started(
            producer.send("t", ("a", 3)),
            producer.send("u", "b"),
            producer.send_many("u", ["c"]),
        )
        with pytest.raises(WouldBlockError, match="is being serialized"):
            producer.send_nowait("u", "d")
        await asyncio.gather(*tasks)
        await producer.close()
        assert stage.values("t") == [b"a", b"b", b"c"]
        assert interceptor.refused == ["WouldBlockError"]

    in_order(act, interceptor_classes=[interceptor])


def test_rows_of_a_table_do_not_overtake() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        table = pa.table({"value": [b"b", b"c"]})
        tasks = await started(
            producer.send_and_wait("t", ("a", 3)), producer.send_arrow("t", table)
        )
        await asyncio.gather(*tasks)
        await producer.close()
        assert stage.values("t") == [b"a", b"b", b"c"]

    in_order(act)


def test_the_wait_in_the_queue_is_bounded() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        first, second = await started(producer.send("t", ("a", 1000)), producer.send("t", "b"))
        await asyncio.sleep(5)
        (third,) = await started(producer.send("t", "c"))
        began = stage.loop.time()
        with pytest.raises(KafkaTimeoutError, match="the record's serializer took longer"):
            await first
        with pytest.raises(KafkaTimeoutError, match="serializer of an earlier record"):
            await second
        await third
        assert stage.loop.time() - began == pytest.approx(55)
        await producer.close()
        assert stage.values("t") == [b"c"]

    in_order(act, max_block_ms=60_000)


def test_close_ends_the_waits_at_once() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        began = stage.loop.time()
        tasks = await started(
            producer.send("t", ("a", 30)),
            producer.send("t", ("b", 1)),
            producer.send("t", "c"),
            producer.send_many("t", ["d"]),
        )
        await asyncio.sleep(2)
        await producer.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert stage.loop.time() - began < 2.5
        assert all(isinstance(each, ProducerClosedError) for each in outcomes[:3])
        assert isinstance(outcomes[3].__cause__, ProducerClosedError)
        assert stage.values("t") == []

    in_order(act)


def test_a_record_in_the_queue_does_not_slip_into_the_next_transaction() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.begin_transaction()
        tasks = await started(producer.send("t", ("a", 5)), producer.send("t", "b"))
        await asyncio.sleep(1)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("u", "c")
        for task in tasks:
            with pytest.raises(IllegalStateError, match="transaction ended while"):
                await task
        await producer.commit_transaction()
        await producer.close()
        assert stage.values("t") == []

    in_order(act, transactional_id="x")


def test_more_records_than_a_turn_may_see_keep_their_order() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        texts = [f"{number}" for number in range(2500)]
        tasks = await started(producer.send("t", ("first", 1)))
        tasks += [asyncio.create_task(producer.send("t", text)) for text in texts]
        await asyncio.gather(*tasks)
        await producer.close()
        assert [value.decode() for value in stage.values("t")] == ["first", *texts]

    in_order(act)


def test_a_wait_for_a_partition_holds_nothing_up() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        missing, here = await started(
            producer.send("t", ("a", 1), partition=5), producer.send("t", "b", partition=0)
        )
        await here
        assert not missing.done()
        await producer.close()
        with pytest.raises(ProducerClosedError):
            await missing
        assert stage.values("t") == [b"b"]

    in_order(act)


Story = list[tuple[float, float, str]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.0, 0.5, 1.0]),  # pause before the call
            st.sampled_from([-1.0, -1.0, 0.0, 0.5, 1.0, 2.5]),  # its serializer's wait
            st.sampled_from(["go", "go", "go", "cancel", "bad"]),
        ),
        max_size=12,
    ),
    st.sampled_from([1000, 1 << 20]),
    st.integers(0, 5),
)
def test_whatever_happens_records_keep_the_order_of_their_calls(
    story: Story, memory: int, seed: int
) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        rng = random.Random(seed)
        tasks: dict[str, asyncio.Task[Any]] = {}
        for number, (pause, wait, what) in enumerate(story):
            await asyncio.sleep(pause)
            name = f"{number}"
            value: Any = name if wait < 0 else ("bad" if what == "bad" else name, wait)
            (tasks[name],) = await started(producer.send("t", value))
            if what == "cancel":
                stage.loop.call_later(rng.choice([0, 0.5, 1]), tasks[name].cancel)
        await asyncio.wait(tasks.values()) if tasks else None
        await producer.close()
        accepted = [
            name for name, task in tasks.items() if not task.cancelled() and not task.exception()
        ]
        assert [value.decode() for value in stage.values("t")] == accepted
        assert not stage.engine.appender.serializing.is_queued("t")
        for task in tasks.values():
            if not task.cancelled() and task.exception() is not None:
                assert isinstance(task.exception(), SerializationError)

    in_order(act, batch_size=200, buffer_memory=memory)


async def test_the_mock_producer_keeps_the_order_as_well() -> None:
    async with MockProducer(value_serializer=Delayed()) as producer:
        tasks = await started(
            producer.send("t", ("a", 0.02)),
            producer.send("t", ("b", 0)),
            producer.send_many("t", ["c"]),
        )
        with pytest.raises(WouldBlockError, match="is being serialized"):
            producer.send_nowait("t", "d")
        await asyncio.gather(*tasks)
        assert [record.value for record in producer.history] == [b"a", b"b", b"c"]
        (late,) = await started(producer.send("t", ("e", 30)))
    with pytest.raises(ProducerClosedError):
        await late


def test_an_absent_partition_refuses_no_row_whose_serializer_waits() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        rows = [Record("absent", partition=9), Record(("a", 1)), Record(("b", 1), partition=0)]
        result = await stage.producer.send_many("t", rows)
        assert ([each.index for each in result.failed], result.delivered) == ([0], 2)
        await stage.producer.close()

    play(act, value_serializer=Delayed(), max_block_ms=3000, **ROOMY)


def test_a_row_whose_serializer_is_too_slow_refuses_the_rows_that_wait_for_theirs() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        began = stage.loop.time()
        rows = [Record(("slow", 9)), Record(("b", 1)), Record(("c", 1))]
        result = await stage.producer.send_many("t", rows)
        assert [type(each.error) for each in result.failed] == [
            KafkaTimeoutError,
            WouldBlockError,
            WouldBlockError,
        ]
        assert stage.loop.time() - began < 4
        await stage.producer.close()

    play(act, value_serializer=Delayed(), max_block_ms=3000, **ROOMY)
