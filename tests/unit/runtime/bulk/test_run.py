"""The waits and turns of one bulk call, and what it counts: `BulkRun` with rows of our making."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Generator, Iterator
from itertools import pairwise
from typing import Any

import pytest
from support.stage import Stage, play
from support.turns import each_turn

from aioproducer.errors import (
    BufferExhaustedError,
    BufferFullError,
    IllegalStateError,
    KafkaTimeoutError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationFailedError,
    WouldBlockError,
)
from aioproducer.records.bulk import OpenBatches
from aioproducer.runtime.bulk.result import SendManyInterruptedError
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.types import Record, TopicPartition
from aioproducer.wire.api_keys import ApiKey


class Rows:
    """Rows of which some, as if they had been written, take `size` bytes each.

    Args:
        size: bytes of a row that `fill` takes.
        stuck: rows that are left to the caller; None for all.

    Attributes:
        events: `("fill", first row)` and `("record", row)` in their order.
        batches: the open batches that each `fill` was given.
        arguments: what else the last `fill` was given, after the rows.
    """

    def __init__(self, size: int = 0, stuck: Collection[int] | None = None) -> None:
        self.events: list[tuple[str, int]] = []
        self.batches: list[list[OpenBatches | None]] = []
        self.arguments: tuple[int, ...] = ()
        self._size = size
        self._stuck = stuck

    def topics(self, start: int, stop: int, /) -> list[str | None]:
        return [None]

    def fill(
        self,
        batches: list[OpenBatches | None],
        start: int,
        stop: int,
        number: int,
        timestamp_ms: int,
        size_limit: int,
        budget: int,
        /,
    ) -> tuple[int, bool]:
        self.events.append(("fill", start))
        self.batches.append(batches)
        self.arguments = (number, timestamp_ms, size_limit, budget)
        row = start
        while row < stop and budget > 0:
            if self._stuck is None or row in self._stuck:
                return row, True
            row += 1
            budget -= self._size
        return row, False

    def record(self, row: int) -> tuple[None, None, bytes, tuple[()], None, None]:
        self.events.append(("record", row))
        return None, None, b"%0300d" % row, (), None, None


async def started(stage: Stage) -> BulkRun:
    await stage.producer.start()
    await stage.producer.warm_up(["t"])
    return BulkRun(stage.engine)


class RefusedRows(Rows):
    """Rows that cannot be sent."""

    def record(self, row: int) -> tuple[None, None, bytes, tuple[()], None, None]:
        super().record(row)
        raise SerializationError("refused")


async def nothing() -> None:
    """Feed no more rows."""


def test_a_call_yields_after_each_mebibyte_of_rows_and_not_after_the_last_one() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        began = stage.loop.time()
        with each_turn(lambda: run.result.count) as between_turns:
            await run.feed(Rows(1 << 18, stuck=()), "t", 0, 20, 0)
        assert (between_turns, run.result.count) == ([4, 8, 12, 16], 20)
        assert stage.loop.time() == began
        assert stage.engine.appender.fast_path.appended == 20
        await stage.producer.close()

    play(act)


def test_rows_are_written_only_while_no_call_waits_for_memory() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        stage.broker.freeze()
        for _ in range(2):
            await stage.producer.send("t", bytes(300))
        rows = Rows(1 << 18, stuck={0})
        call = asyncio.create_task(run.feed(rows, "t", 0, 10, 0))
        await asyncio.sleep(1)
        assert rows.events == [("fill", 0), ("record", 0)]
        other = asyncio.create_task(stage.producer.send("t", bytes(300)))
        late = Rows(1 << 18, stuck={1})
        later_call = asyncio.create_task(BulkRun(stage.engine).feed(late, "t", 0, 3, 0))
        await asyncio.sleep(1)
        assert late.events == [("record", 0)]
        stage.broker.thaw()
        await call
        # Row 0 has got memory; the other call waits when row 5 comes, which queues for memory too.
        assert rows.events[2:] == [("fill", 1), ("record", 5), ("fill", 6)]
        await other
        await later_call
        assert late.events[1:] == [("fill", 1), ("record", 1), ("fill", 2)]
        await stage.producer.close()

    play(act, buffer_memory=800)


def test_rows_are_written_up_to_buffer_max_records() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        await stage.producer.send_and_wait("t", b"before")
        rows = Rows(stuck=())
        call = asyncio.create_task(run.feed(rows, "t", 0, 10, 0))
        await asyncio.sleep(1)
        assert rows.events == [("fill", 0), ("record", 6)]
        assert run.result.count == 7
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await stage.producer.close()

    play(act, buffer_max_records=6)


def test_rows_wait_for_single_places_one_by_one() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        await stage.producer.send_and_wait("t", b"before")
        rows = Rows(stuck=())
        call = asyncio.create_task(run.feed(rows, "t", 0, 9, 0))
        await asyncio.sleep(1)
        stage.engine.pool.return_records(1)  # for row 6, which gives its place to the next
        await call
        written_alone = [("record", 6), ("fill", 7), ("record", 7), ("fill", 8), ("record", 8)]
        assert rows.events == [("fill", 0), *written_alone]
        await stage.producer.close()

    play(act, buffer_max_records=6)


def test_rows_that_are_written_one_at_a_time_count_for_buffer_max_records() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        await stage.producer.send_and_wait("t", b"before")
        rows = Rows(stuck=())
        assert [run.feed_at_once(rows, "t", number) for number in range(3)] == [True, True, False]
        assert run.result.count == 2
        await stage.producer.close(0)

    play(act, buffer_max_records=2)


def test_rows_are_given_the_open_batches_of_their_topic_until_its_metadata_changes() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide")
        await stage.producer.start()
        run = BulkRun(stage.engine)
        rows = Rows()
        await run.feed(rows, "wide", 0, 3, 0)
        await stage.producer.flush()
        stage.world.cluster.create_partitions("wide", 2)
        while len(await stage.producer.partitions_for("wide")) < 2:
            stage.engine.metadata.request_update()
            stage.engine.metadata_task.wake()
            await asyncio.sleep(0.1)
        await run.feed(rows, "wide", 3, 5, 0)
        await run.complete(nothing())
        unknown, first, second, third, fourth = (batches[0] for batches in rows.batches)
        assert unknown is None
        assert first is not None
        assert first is second
        assert third is not None
        assert third is not first
        assert third is fourth
        await stage.producer.close()

    play(act)


@pytest.mark.parametrize("largest_request", [700, 5000])
def test_rows_are_given_the_bounds_of_a_record_and_the_time(largest_request: int) -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        rows = Rows(stuck=())
        await run.feed(rows, "t", 2, 3, 7)
        time_ms = stage.engine.appender.wall_ms()
        assert rows.arguments == (7, time_ms, min(largest_request, 1000), 1 << 20)
        await stage.producer.close()

    play(act, max_request_size=largest_request)


def test_a_mark_is_complete_when_all_batches_before_it_have_their_outcome() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        stage.broker.freeze()
        before = run.mark()
        await run.feed(Rows(), "t", 0, 1, 0)
        first = run.mark()
        assert [run.is_complete(before), run.is_complete(first)] == [True, False]
        stage.broker.thaw()
        await stage.producer.flush()
        assert run.is_complete(first)
        stage.broker.freeze()
        await run.feed(Rows(), "t", 1, 2, 0)
        assert [run.is_complete(first), run.is_complete(run.mark())] == [True, False]
        stage.broker.thaw()
        assert (await run.complete(nothing())).delivered == 2
        await stage.producer.close()

    play(act)


def test_a_call_waits_for_memory_again_once_a_row_was_accepted_after_a_timeout() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])

        async def items() -> AsyncIterator[bytes]:
            for number in range(8):
                if number in {0, 5}:
                    stage.broker.freeze()
                if number == 4:
                    stage.broker.thaw()
                    await producer.flush()
                if number == 6:
                    stage.loop.call_later(0.5, stage.broker.thaw)
                yield b"%d" % number * 350

        result = await producer.send_many("t", items())
        errors = {failed.index: type(failed.error) for failed in result.failed}
        assert errors == {2: BufferExhaustedError, 3: BufferFullError}
        assert result.delivered == 6
        await producer.close()

    play(act, max_block_ms=1000)


def test_a_call_waits_once_for_a_partition_that_is_absent() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        began = stage.loop.time()
        items = [Record(b"v" * 700, partition=number % 2) for number in range(8)]
        result = await producer.send_many("t", items)
        assert [failed.index for failed in result.failed] == [1, 3, 5, 7]
        assert result.delivered == 4
        assert stage.loop.time() - began < 2
        await producer.close()

    play(act, max_block_ms=1000)


def test_a_call_waits_once_for_all_partitions_that_are_absent() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        began = stage.loop.time()
        partitions = (0, 100, 0, 101, 0, 102, 0, 103)
        result = await producer.send_many(
            "t", [Record(b"v" * 700, partition=p) for p in partitions]
        )
        assert [failed.index for failed in result.failed] == [1, 3, 5, 7]
        assert result.delivered == 4
        assert stage.loop.time() - began < 2
        await producer.close()

    play(act, max_block_ms=1000)


def test_a_call_waits_for_memory_of_a_partition_that_was_absent() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])

        async def items() -> AsyncIterator[Record]:
            yield Record(b"v" * 700, partition=2)
            stage.world.cluster.create_partitions("t", 3)
            yield Record(b"v" * 700, partition=0)
            await asyncio.sleep(1)
            for _ in range(3):
                yield Record(b"v" * 700, partition=2)

        result = await producer.send_many("t", items())
        assert [failed.index for failed in result.failed] == [0]
        assert result.delivered == 4
        await producer.close()

    play(act, max_block_ms=1000, metadata_max_age_ms=500)


def test_items_are_not_accepted_before_the_first_metadata_and_only_one_waits_for_it() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        await stage.producer.start(wait=False)
        began = stage.loop.time()
        result = await stage.producer.send_many("t", [b"v"] * 4)
        errors = [type(failed.error) for failed in result.failed]
        assert errors == [MetadataTimeoutError, *[WouldBlockError] * 3]
        assert stage.loop.time() - began == pytest.approx(2)
        await stage.producer.close(0)

    play(act, max_block_ms=2000)


def test_a_call_that_stalled_is_bounded_by_its_batches_again_after_an_outcome() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        read: list[float] = []

        async def items() -> AsyncIterator[bytes]:
            for number in range(20):
                if number in {0, 10}:
                    await producer.flush()
                    stage.broker.freeze()
                    stage.loop.call_later(5, stage.broker.thaw)
                    read.clear()
                read.append(stage.loop.time())
                yield bytes(300)

        sending = asyncio.create_task(producer.send_many("t", items()))
        for _ in range(2):
            await asyncio.sleep(3)
            paused = [later - earlier for earlier, later in pairwise(read) if later > earlier]
            assert paused == pytest.approx([1.0], abs=0.01)  # then it goes on up to the memory
            await asyncio.sleep(4)
        assert (await sending).delivered == 20
        await producer.close()

    options = {"max_request_size": 450, "max_in_flight_requests_per_connection": 1}
    play(act, max_block_ms=1000, buffer_memory=1 << 20, **options)


class Slow:
    """A serialization that takes some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.was_closed = False

    def __await__(self) -> Generator[Any, None, bytes]:
        yield from asyncio.sleep(self._seconds).__await__()
        return b"%d" % self._seconds

    def close(self) -> None:
        self.was_closed = True


def serialized(data: Slow | bytes) -> Awaitable[bytes] | bytes:
    return data


def test_after_a_timeout_an_item_with_a_slow_serializer_is_refused_at_once() -> None:
    items = [Slow(5), Slow(2), b"ready", Slow(1)]

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        began = stage.loop.time()
        result = await stage.producer.send_many("t", items)
        errors = {failed.index: failed.error for failed in result.failed}
        assert [*errors] == [0, 1]
        assert isinstance(errors[0], KafkaTimeoutError)
        assert isinstance(errors[1], WouldBlockError)
        assert stage.values("t") == [b"ready", b"1"]
        assert stage.loop.time() - began == pytest.approx(4, abs=0.1)
        await stage.producer.close()

    play(act, value_serializer=serialized, max_block_ms=3000)
    assert [item.was_closed for item in items if isinstance(item, Slow)] == [False, True, False]


def test_a_call_yields_after_a_hundred_refusals() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        began = stage.loop.time()
        with each_turn(lambda: len(run.result.failed)) as between_turns:
            await run.feed(RefusedRows(), "t", 0, 250, 0)
        assert (between_turns, run.result.count) == ([100, 200], 250)
        assert stage.loop.time() == began
        await stage.producer.close()

    play(act)


def test_a_refused_row_gives_the_rows_after_it_no_right_to_overtake() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        stage.broker.freeze()
        calls = [asyncio.create_task(stage.producer.send("t", bytes(300))) for _ in range(3)]
        await asyncio.sleep(1)
        rows = RefusedRows()
        await run.feed(rows, "t", 0, 3, 0)
        assert rows.events == [("record", 0), ("record", 1), ("record", 2)]
        stage.broker.thaw()
        await asyncio.gather(*calls)
        await stage.producer.close()

    play(act, buffer_memory=800)


def test_the_records_of_a_split_batch_are_counted_with_their_offsets() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"before")
        await stage.producer.send("t", b"in the same batch")
        stage.faults.error(ApiKey.PRODUCE, RecordTooLargeError.code)
        result = await stage.producer.send_many("t", [b"%020d" % number for number in range(20)])
        assert (result.count, result.delivered) == (20, 20)
        assert result.offsets == {TopicPartition("t", 0): (2, 21)}
        assert len(stage.batches("t")) > 2
        await stage.producer.close()

    play(act, batch_size=16_384, buffer_memory=1 << 17)


def test_each_record_of_a_failed_batch_is_listed_and_retrieved() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"before")
        first = await stage.producer.send("t", b"in the same batch")
        stage.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError.code, times=None)
        result = await stage.producer.send_many("t", [b"v"] * 20)
        assert [failed.index for failed in result.failed] == list(range(20))
        assert result.offsets == {}
        with pytest.raises(TopicAuthorizationFailedError):
            await first
        assert stage.producer.metrics()["unretrieved_failure_total"] == 0
        await stage.producer.close()

    play(act, batch_size=16_384, buffer_memory=1 << 17)


def test_offsets_begin_with_the_first_item_of_the_call_in_a_batch() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        for _ in range(3):
            await stage.producer.send("t", b"before")
        result = await stage.producer.send_many("t", [b"v"] * 2)
        await stage.producer.close()
        assert result.offsets == {TopicPartition("t", 0): (3, 4)}
        assert len(stage.batches("t")) == 1

    play(act)


def test_refusals_that_the_caller_commits_without_do_not_fail_the_transaction() -> None:
    class OneTooLarge(Rows):
        def record(self, row: int) -> tuple[None, None, bytes, tuple[()], None, None]:
            return None, None, b"v" * (5000 if row == 1 else 1), (), None, None

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.begin_transaction()
        run = BulkRun(stage.engine, spares=(RecordTooLargeError,))
        result = await run.complete(run.feed(OneTooLarge(), "t", 0, 3, 0))
        assert [failed.index for failed in result.failed] == [1]
        await stage.producer.commit_transaction()
        assert stage.values("t") == [b"v", b"v"]
        await stage.producer.close()

    play(act, transactional_id="tx")


def test_an_item_that_comes_in_another_transaction_is_not_sent() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.begin_transaction()

        async def items() -> AsyncIterator[bytes]:
            yield b"first"
            await producer.abort_transaction()
            await producer.begin_transaction()
            yield b"second"

        with pytest.raises(SendManyInterruptedError) as caught:
            await producer.send_many("t", items())
        assert isinstance(caught.value.__cause__, IllegalStateError)
        assert caught.value.result.count == 1
        await producer.commit_transaction()
        await producer.close()
        assert b"second" not in stage.values("t")

    play(act, transactional_id="tx")


def test_a_call_whose_rows_have_no_outcome_raises() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        with pytest.raises(SendManyInterruptedError, match="hid 3 outcome") as caught:
            await run.complete(run.feed(Rows(stuck=()), "t", 0, 3, 0))
        assert (caught.value.result.count, caught.value.result.delivered) == (3, 0)
        await stage.producer.close()

    play(act)


def test_failures_after_a_call_was_cancelled_are_reported_as_not_awaited() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        stage.broker.freeze()
        call = asyncio.create_task(run.complete(run.feed(Rows(), "t", 0, 2, 0)))
        await asyncio.sleep(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        stage.faults.error(ApiKey.PRODUCE, TopicAuthorizationFailedError.code, times=None)
        stage.broker.thaw()
        await stage.producer.flush()
        del call
        await stage.producer.close()
        assert run.result.failed == []
        assert stage.producer.metrics()["unretrieved_failure_total"] > 0

    play(act)


def test_a_call_does_not_wait_for_the_linger_of_its_last_batch() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        began = stage.loop.time()
        await stage.producer.send_many("t", [b"v"] * 3)
        assert stage.loop.time() - began < 1
        await stage.producer.close()

    play(act, linger_ms=10_000)


def test_without_linger_rows_share_a_batch_though_the_call_yields() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        await run.complete(run.feed(Rows(), "t", 0, 2500, 0))
        await stage.producer.close()
        assert [batch.count for batch in stage.batches("t")] == [2500]

    play(act, linger_ms=0, batch_size=1 << 20, buffer_memory=1 << 22)


def test_without_linger_open_batches_are_sent_while_a_row_waits_for_memory() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", leaders=(1,) * 5)
        await stage.producer.start()
        await stage.producer.warm_up(["wide"])
        began = stage.loop.time()
        items = [(None, b"v", None, None, partition) for partition in range(5)]
        result = await stage.producer.send_many("wide", [*items, (None, b"v" * 600, None, None, 0)])
        assert result.delivered == 6
        assert stage.loop.time() - began < 1
        await stage.producer.close()

    play(act, linger_ms=0)


def test_records_of_a_call_need_no_batch_size() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        assert (await stage.producer.send_many("t", [b"v"] * 3)).delivered == 3
        await stage.producer.close()

    play(act, batch_size=0)


def test_a_row_that_comes_after_the_close_is_not_counted() -> None:
    async def act(stage: Stage) -> None:
        run = await started(stage)
        stage.lose()
        call = asyncio.create_task(run.complete(run.feed(Rows(), "t", 0, 100, 0)))
        await asyncio.sleep(20)
        await stage.producer.close(0)
        with pytest.raises(SendManyInterruptedError) as caught:
            await call
        assert isinstance(caught.value.__cause__, ProducerClosedError)
        assert caught.value.result.count == stage.engine.appender.fast_path.appended

    play(
        act,
        buffer_memory=100_000,
        batch_size=500,
        max_request_size=1000,
        max_in_flight_requests_per_connection=1,
    )


def test_errors_of_a_result_keep_no_frames() -> None:
    def serializer(value: bytes) -> bytes:
        if value == b"bad":
            raise LookupError("no such value")
        return value

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        stage.broker.freeze()
        items = [b"bad", *[bytes(400)] * 3]
        call = asyncio.create_task(stage.producer.send_many("t", items))
        await asyncio.sleep(3)
        stage.broker.thaw()
        bad, late = [failed.error for failed in (await call).failed]
        assert isinstance(bad.__cause__, LookupError)
        assert isinstance(late.__context__, TimeoutError)
        for error in (bad, bad.__cause__, late, late.__context__):
            assert error.__traceback__ is None
        await stage.producer.close()

    play(act, value_serializer=serializer, max_block_ms=1000)


def test_an_exception_that_is_its_own_cause_refuses_its_item() -> None:
    def serializer(value: object) -> bytes:
        try:
            return bytes(memoryview(value))  # type: ignore[arg-type]
        except TypeError as error:
            raise error from error

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        result = await stage.producer.send_many("t", [b"a", 3, b"b"])
        assert [failed.index for failed in result.failed] == [1]
        assert stage.values("t") == [b"a", b"b"]
        await stage.producer.close()

    play(act, value_serializer=serializer)


def test_an_exception_that_the_caller_handles_keeps_its_traceback() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        try:
            raise LookupError("of the caller")
        except LookupError as handled:
            result = await stage.producer.send_many("t", [b"a", 3])
            assert len(result.failed) == 1
            assert handled.__traceback__ is not None
        await stage.producer.close()

    play(act)


def test_an_exception_of_the_items_that_cannot_be_shown_leaves_the_result() -> None:
    class UnprintableError(Exception):
        def __repr__(self) -> str:
            raise LookupError("no text")

    def items() -> Iterator[bytes]:
        yield b"a"
        raise UnprintableError

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        with pytest.raises(SendManyInterruptedError, match="whose repr") as caught:
            await stage.producer.send_many("t", items())
        assert caught.value.result.delivered == 1
        await stage.producer.close()

    play(act)


def test_an_item_with_a_part_that_cannot_be_shown_is_refused() -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise LookupError("no text")

    async def act(stage: Stage) -> None:
        await stage.producer.start()
        part = Unprintable()
        items = [b"a", (b"k", b"v", None, part), (b"k", b"v", None, None, part), part]
        result = await stage.producer.send_many("t", items)
        assert [failed.index for failed in result.failed] == [1, 2, 3]
        await stage.producer.close()

    play(act)
