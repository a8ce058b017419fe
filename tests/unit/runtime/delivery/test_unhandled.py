"""Failures that were not awaited: each in the log, in few lines."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import weakref

import pytest
from support.stage import Stage, play

from aioproducer import TopicPartition
from aioproducer.errors import KafkaError, RecordsFailedError, TransactionAbortedError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.delivery.unhandled import UnretrievedFailures
from aioproducer.wire.api_keys import ApiKey

TOPIC_AUTHORIZATION_FAILED = 29
PLACE = TopicPartition("t", 0)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "were not awaited" in r.getMessage()]


async def failed_batch(stage: Stage, records: int, topic: str = "t") -> list[Delivery]:
    """The deliveries of one batch that the broker refused."""
    fault = stage.faults.error(ApiKey.PRODUCE, TOPIC_AUTHORIZATION_FAILED, topic=topic, times=1)
    deliveries = [await stage.producer.send(topic, b"v") for _ in range(records)]
    await stage.producer.flush()
    assert fault.struck == 1
    return deliveries


async def collected() -> None:
    gc.collect()
    await asyncio.sleep(0)


def test_a_batch_is_reported_once_with_partition_count_cause_and_persistence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[tuple[TopicPartition, int, KafkaError]] = []

    async def act(stage: Stage) -> None:
        async with stage.producer:
            deliveries = await failed_batch(stage, 5)
            for looked_at in deliveries[:2]:
                assert looked_at.exception() is not None
                assert looked_at.exception() is not None
            del looked_at
            deliveries = deliveries[4:]
            await collected()
            assert lines(caplog) == []  # one of the batch's may still be retrieved
            deliveries.clear()
            await collected()
            assert stage.producer.metrics()["unretrieved_failure_total"] == 3

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act, on_delivery_error=lambda *report: reported.append(report))
    line, end = lines(caplog)
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert end == (
        "the producer is closed; 3 record(s) failed and their deliveries were not awaited (t-0: 3) "
        "[client_id stage]"
    )
    assert line.startswith("t-0: 3 of 5 record(s)")
    assert "TOPIC_AUTHORIZATION_FAILED" in line
    assert "not persisted" in line
    ((where, count, error),) = reported
    assert (where, count) == (TopicPartition("t", 0), 3)
    assert str(error) in line


def test_a_batch_of_which_every_failure_was_seen_is_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer:
            for delivery in await failed_batch(stage, 3):
                with pytest.raises(KafkaError):
                    await delivery
            del delivery
            await collected()
            assert stage.producer.metrics()["unretrieved_failure_total"] == 0

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    assert lines(caplog) == []


def test_batches_that_fail_apart_have_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer:
            for topic in ("t", "u", "t"):
                await failed_batch(stage, 2, topic)
                await collected()
                await asyncio.sleep(61)

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    assert [line.split(":")[0] for line in lines(caplog)[:-1]] == ["t-0", "u-0", "t-0"]
    assert lines(caplog)[-1].endswith("(t-0: 4, u-0: 2) [client_id stage]")


def test_a_storm_is_counted_per_partition_and_no_failure_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[int] = []

    async def act(stage: Stage) -> None:
        async with stage.producer:
            for number in range(40):
                await failed_batch(stage, 2, "tu"[number % 2])
                await collected()
            await asyncio.sleep(1.5)
            assert len(lines(caplog)) == 2  # the burst is over: nothing else has to happen
            await failed_batch(stage, 1)
            await collected()
            await asyncio.sleep(2)
            assert stage.producer.metrics()["unretrieved_failure_total"] == 81

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act, on_delivery_error=lambda where, count, error: reported.append(count))
    first, others, last, end = lines(caplog)
    assert first.startswith("t-0: 2 of 2 record(s)")
    assert others.startswith(
        "78 more record(s) failed and their deliveries were not awaited (u-0: 40, t-0: 38); "
        "the last error: TOPIC_AUTHORIZATION_FAILED"
    )
    assert last.startswith("1 more record(s)")
    assert end.startswith("the producer is closed; 81 record(s)")
    assert reported == [2] * 40 + [1]


def test_a_long_storm_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer:
            for _ in range(280):
                await failed_batch(stage, 1)
                await collected()
                await asyncio.sleep(1)

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    assert len(lines(caplog)) <= 13
    assert "their deliveries were not awaited (t-0: 280)" in lines(caplog)[-1]


def test_records_that_the_end_makes_fail_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        for topic in ("t", "u") * 200:
            await producer.send(topic, b"v")
        await producer.close(timeout=0)

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act, linger_ms=10_000, batch_size=100_000, buffer_memory=1_000_000)
    assert lines(caplog)[-1].startswith(
        "the producer is closed; 400 record(s) failed and their deliveries were not awaited "
        "(t-0: 200, u-0: 200) [client_id "
    )


def test_flush_reports_losses_to_a_loop_that_keeps_no_deliveries() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await failed_batch(stage, 3, "t")
            await failed_batch(stage, 2, "u")
            await producer.send("t", b"stored")
            with pytest.raises(RecordsFailedError) as caught:
                await producer.flush(raise_failures=True)
            assert (caught.value.count, caught.value.topic) == (5, "u")
            assert "5 record(s) have failed" in str(caught.value)
            assert "TOPIC_AUTHORIZATION_FAILED" in str(caught.value)
            assert await producer.flush(raise_failures=True) == 0  # each failure once
            await failed_batch(stage, 1, "t")
            assert await producer.flush() == 0
            with pytest.raises(RecordsFailedError, match="1 record"):
                await producer.flush(raise_failures=True)

    play(act)


def test_of_flushes_at_the_same_time_each_raises() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            stage.faults.error(ApiKey.PRODUCE, TOPIC_AUTHORIZATION_FAILED, topic="t", times=1)
            for _ in range(3):
                await producer.send("t", b"v")
            flushes = [producer.flush(raise_failures=True) for _ in range(2)]
            for raised in await asyncio.gather(*flushes, return_exceptions=True):
                assert isinstance(raised, RecordsFailedError)
                assert raised.count == 3
            assert await producer.flush(raise_failures=True) == 0

    play(act, linger_ms=10_000)


class Times(logging.Handler):
    """Notes the loop time of each line."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._began = loop.time()
        self.noted: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.noted.append(self._loop.time() - self._began)


def test_lines_come_at_intervals_that_double_up_to_a_minute() -> None:
    logger = logging.getLogger("aioproducer.runtime")

    async def act(stage: Stage) -> list[float]:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        times = Times(stage.loop)
        logger.addHandler(times)
        try:
            for _ in range(400):
                failures.report_soon(TopicPartition("t", 0), 1, 1, KafkaError("refused"))
                await asyncio.sleep(0.5)
            await asyncio.sleep(80)  # long enough to begin anew
            for _ in range(8):
                failures.report_soon(TopicPartition("t", 0), 1, 1, KafkaError("refused"))
                await asyncio.sleep(0.5)
        finally:
            logger.removeHandler(times)
            failures.close()
        return times.noted

    first, second = [0, 1, 3, 7, 15, 31, 63, 123, 183], [280, 281, 283]
    assert play(act) == [*first, 243, *second]


def test_a_failure_when_an_interval_is_over_has_a_line_of_the_same_form(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        for pause in (1.0, 2.0, 4.0, 8.0):
            failures.report_soon(TopicPartition("t", 0), 1, 2, KafkaError("refused"))
            await asyncio.sleep(pause)
        failures.close()

    with caplog.at_level(logging.ERROR, logger="aioproducer"):
        play(act)
    *each, end = lines(caplog)
    assert [line.split(" of a batch")[0] for line in each] == ["t-0: 1 of 2 record(s)"] * 4
    assert end.endswith("(t-0: 4)")


def beginnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.split(" record(s)")[0] for line in lines(caplog)]


def report(failures: UnretrievedFailures, where: TopicPartition = PLACE) -> None:
    failures.report_soon(where, 1, 1, KafkaError("refused"))


def test_failures_after_the_close_are_logged_with_a_total_that_counts_only_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        for _ in range(3):
            report(failures)
        await asyncio.sleep(0)
        failures.close()
        failures.close()
        assert beginnings(caplog) == [
            "t-0: 1 of 1",
            "2 more",
            "the producer is closed; 3",
        ]
        caplog.clear()
        await asyncio.sleep(100)
        for topic in ("u", "v"):
            report(failures, TopicPartition(topic, 0))
        await asyncio.sleep(0.1)
        line, others, end = lines(caplog)
        assert line.startswith("u-0: 1 of 1 record(s)")
        assert "(v-0: 1)" in others
        assert end.startswith("the producer is closed; 2 record(s)")
        assert end.endswith("(u-0: 1, v-0: 1)")
        await asyncio.sleep(100)
        assert len(lines(caplog)) == 3

    with caplog.at_level(logging.ERROR, logger="aioproducer"):
        play(act)


def test_a_producer_that_ends_without_a_close_logs_its_totals_and_later_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        report(failures)
        failures.close_soon()
        assert lines(caplog) == []
        await asyncio.sleep(0)
        assert beginnings(caplog) == [
            "t-0: 1 of 1",
            "the producer is closed; 1",
        ]
        report(failures)
        await asyncio.sleep(0.1)
        assert beginnings(caplog)[2:] == [
            "1 more",
            "the producer is closed; 1",
        ]

    with caplog.at_level(logging.ERROR, logger="aioproducer"):
        play(act)


def test_failures_after_the_end_of_the_loop_are_logged_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, stats = asyncio.new_event_loop(), ProducerStats()
    failures = UnretrievedFailures(loop, stats, None)
    loop.close()
    with caplog.at_level(logging.ERROR, logger="aioproducer"):
        for _ in range(3):
            report(failures)
        assert stats.unretrieved_failures == 3
        assert beginnings(caplog) == ["t-0: 1 of 1"]
        failures.close_soon()
        assert beginnings(caplog)[1:] == [
            "2 more",
            "the producer is closed; 3",
        ]
        report(failures)
        assert beginnings(caplog)[3:] == [
            "1 more",
            "the producer is closed; 1",
        ]


def test_failures_of_a_producer_whose_loop_ends_before_its_totals_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.new_event_loop()
    failures = UnretrievedFailures(loop, ProducerStats(), None)
    failures.close_soon()
    loop.close()
    with caplog.at_level(logging.ERROR, logger="aioproducer"):
        report(failures)
        report(failures)
    assert beginnings(caplog) == [
        *("t-0: 1 of 1", "the producer is closed; 1"),
        *("1 more", "the producer is closed; 1"),
    ]


def test_totals_name_the_ten_partitions_with_most_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        for number in range(1, 13):
            for _ in range(number):
                report(failures, TopicPartition("t", number))
        await asyncio.sleep(0)
        failures.close()

    with caplog.at_level(logging.ERROR, logger="aioproducer"):
        play(act)
    named = ", ".join(f"t-{number}: {number}" for number in range(12, 2, -1))
    assert lines(caplog)[-1].endswith(f"({named}, and 2 more partition(s))")


def test_totals_are_logged_while_the_interpreter_clears_its_modules() -> None:
    program = """
import asyncio
import logging

from aioproducer import KafkaError, TopicPartition
from aioproducer.metrics.totals import ProducerStats
from aioproducer.runtime.delivery.unhandled import UnretrievedFailures


class Batch:
    def __init__(self, failures, *report):
        self.failures, self.report = failures, report

    def __del__(self):
        self.failures.report_soon(*self.report)


logging.basicConfig(format="%(message)s")
loop = asyncio.new_event_loop()
failures = UnretrievedFailures(loop, ProducerStats(), None)
failures.close_soon()
loop.close()
batch = Batch(failures, TopicPartition("t", 0), 1, 1, KafkaError("lost"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.splitlines()[1:] == [
        "the producer is closed; 1 record(s) failed and their deliveries were not awaited (t-0: 1)"
    ]


def test_a_minute_without_failures_begins_anew_with_the_shortest_interval() -> None:
    logger = logging.getLogger("aioproducer.runtime")

    async def act(stage: Stage) -> list[float]:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        times = Times(stage.loop)
        logger.addHandler(times)
        try:
            for pause in (60, 0.5, 9.5):
                report(failures)
                await asyncio.sleep(pause)
        finally:
            logger.removeHandler(times)
            failures.close()
        return times.noted

    assert play(act) == [0, 60, 61]


def test_no_error_is_kept_after_it_was_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def act(stage: Stage) -> None:
        failures = UnretrievedFailures(stage.loop, ProducerStats(), None)
        errors = [KafkaError("first"), KafkaError("second")]
        kept = [weakref.ref(error) for error in errors]
        for error in errors:
            failures.report_soon(PLACE, 1, 1, error)
        del error
        errors.clear()
        await asyncio.sleep(0.5)
        assert [each() is not None for each in kept] == [False, True]  # its line is not written yet
        await asyncio.sleep(1)
        assert [each() for each in kept] == [None, None]
        failures.close()

    with caplog.at_level(logging.CRITICAL, logger="aioproducer"):  # a log record keeps it, too
        play(act)


def test_records_that_an_abort_drops_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[tuple[TopicPartition, int, KafkaError]] = []

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.begin_transaction()
            delivery = await producer.send("t", b"v")
            await producer.send("t", b"v")
            await producer.abort_transaction()
            assert isinstance(delivery.exception(), TransactionAbortedError)
            await collected()

    play(
        act,
        transactional_id="txn",
        linger_ms=1000,
        on_delivery_error=lambda *report: reported.append(report),
    )
    assert lines(caplog) == []
    assert reported == []
