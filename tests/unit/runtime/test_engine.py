"""The life of a producer: its start, the calls that wait for the start, and its totals."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.stage import Stage, play

from aioproducer.errors import (
    BootstrapError,
    KafkaTimeoutError,
    NotConnectedError,
    ProducerFailedError,
    RecordsFailedError,
)
from aioproducer.metrics import ApplicationMetric
from aioproducer.testing.broker import TelemetrySubscription
from aioproducer.wire.api_keys import ApiKey

# -- a start that waits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resolve_ms", "seconds"), [(0, 3.0), (8_000, 8.0)], ids=["max_block_ms", "resolving"]
)
def test_a_start_without_brokers_fails_after_the_longer_of_its_times(
    resolve_ms: int, seconds: float
) -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        began = stage.loop.time()
        with pytest.raises(BootstrapError):
            await stage.producer.start()
        assert stage.loop.time() - began == pytest.approx(seconds, abs=0.01)

    play(act, max_block_ms=3_000, bootstrap_resolve_timeout_ms=resolve_ms)


def test_a_start_without_an_answer_of_the_coordinator_fails_and_closes_at_its_time() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
        with pytest.raises(KafkaTimeoutError, match="a larger max_block_ms"):
            await stage.producer.start()
        assert stage.loop.time() == pytest.approx(3.0, abs=0.1)

    play(act, transactional_id="txn", max_block_ms=3_000)


# -- a start in the background ---------------------------------------------------------------------


def test_a_producer_that_is_not_to_wait_refuses_sends_until_it_is_connected() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        await stage.producer.start(wait=False)
        stage.engine.refuse_unconnected()
        await asyncio.sleep(1)
        for send in (stage.producer.send, stage.producer.send_and_wait):
            with pytest.raises(NotConnectedError, match="not connected to the cluster yet"):
                await send("t", b"v")
        with pytest.raises(NotConnectedError):
            stage.producer.send_nowait("t", b"v")
        assert stage.loop.time() == pytest.approx(1.0)
        stage.revive()
        await asyncio.sleep(10)
        await stage.producer.send_and_wait("t", b"accepted")
        assert stage.values("t") == [b"accepted"]
        await stage.producer.close()

    play(act)


def test_a_producer_that_is_not_to_wait_refuses_transactions_until_it_is_connected() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        await stage.producer.start(wait=False)
        stage.engine.refuse_unconnected()
        await asyncio.sleep(1)
        with pytest.raises(NotConnectedError, match="not connected to the cluster yet"):
            await stage.producer.begin_transaction()
        assert stage.loop.time() == pytest.approx(1.0)
        stage.revive()
        await asyncio.sleep(10)
        await stage.producer.begin_transaction()
        await stage.producer.abort_transaction()
        await stage.producer.close()

    play(act, transactional_id="txn")


def test_a_transactional_producer_says_what_its_start_waits_for() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
        await stage.producer.start(wait=False)
        await asyncio.sleep(1)
        health = stage.producer.health()
        assert (health.ready, health.state) == (False, "connecting")
        assert "the producer waits for the response to InitProducerId" in (health.error or "")
        await stage.producer.close()

    play(act, transactional_id="txn")


def test_a_call_that_waits_for_the_start_ends_at_its_time_however_late_a_broker_answers() -> None:
    async def act(stage: Stage) -> None:
        stage.crash()
        stage.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
        await stage.producer.start(wait=False)
        await asyncio.sleep(5)
        beginning = asyncio.create_task(stage.producer.begin_transaction())
        await asyncio.sleep(2.5)
        stage.revive()
        with pytest.raises(NotConnectedError, match="waits for the response"):
            await beginning
        assert stage.loop.time() == pytest.approx(8.0, abs=0.01)
        await stage.producer.close()

    play(act, transactional_id="txn", max_block_ms=3_000, reconnect_backoff_max_ms=50)


def test_an_initialization_in_the_background_that_takes_long_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        lost = stage.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
        with caplog.at_level(logging.WARNING, "aioproducer.runtime"):
            await stage.producer.start(wait=False)
            await asyncio.sleep(10)
        assert "has no outcome within max_block_ms=3000" in caplog.text
        stage.faults.remove(lost)
        await asyncio.sleep(60)
        assert stage.producer.health().ready
        await stage.producer.close()

    play(act, transactional_id="txn", max_block_ms=3_000)


def test_a_close_ends_the_initialization_in_the_background_and_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        stage.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
        await stage.producer.start(wait=False)
        await asyncio.sleep(1)
        await stage.producer.close()
        assert stage.loop.time() < 10

    play(act, transactional_id="txn", max_block_ms=3_000)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("pushes", [True, False])
def test_a_start_in_the_background_pushes_metrics_if_the_options_say_so(pushes: bool) -> None:
    async def act(stage: Stage) -> None:
        telemetry = stage.world.cluster.telemetry
        telemetry.subscription = TelemetrySubscription(("",), interval_ms=1_000)
        await stage.producer.start(wait=False)
        await asyncio.sleep(5)
        assert bool(telemetry.received) is pushes
        assert (stage.producer.health().state, stage.producer.health().error) == ("running", None)
        await stage.producer.close()

    play(act, buffer_memory=1 << 20, enable_metrics_push=pushes)


def test_what_close_raises_unexpectedly_while_it_delivers_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        telemetry, tags = stage.world.cluster.telemetry, dict[str, str]()
        telemetry.subscription = TelemetrySubscription(("",), interval_ms=60_000)
        orders = ApplicationMetric("orders", "shop-metrics", lambda: 1, tags=tags)
        stage.producer.register_metric(orders)
        await stage.producer.start()
        await asyncio.sleep(5)
        tags["shop"] = "\ud800"  # refused by the constructor
        await stage.producer.close()
        assert "close() goes on after an unexpected exception" in caplog.text
        assert "UnicodeEncodeError" in caplog.text

    play(act, buffer_memory=1 << 20)


def test_the_last_push_of_metrics_is_made_although_records_have_failed() -> None:
    async def act(stage: Stage) -> None:
        telemetry = stage.world.cluster.telemetry
        telemetry.subscription = TelemetrySubscription(("",), interval_ms=1_000)
        await stage.producer.start()
        await asyncio.sleep(5)
        await stage.producer.send("t", b"v")
        stage.producer.purge()
        await stage.producer.close()
        assert telemetry.received[-1].terminating

    play(act, buffer_memory=1 << 20)


# -- totals ----------------------------------------------------------------------------------------


def test_the_part_of_the_time_in_which_calls_waited_for_memory_is_measured() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await asyncio.sleep(3)
        await producer.start(wait=False)
        assert producer.metrics()["bufferpool_wait_ratio"] == 0
        began = stage.loop.time()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        sending = [asyncio.create_task(producer.send("t", bytes(150))) for _ in range(6)]
        await asyncio.sleep(0.4)
        stage.broker.thaw()
        await asyncio.gather(*sending)
        await producer.flush()
        waited = 0.4 / (stage.loop.time() - began)
        assert producer.metrics()["bufferpool_wait_ratio"] == pytest.approx(waited, rel=0.1)
        await asyncio.sleep(4)
        waited = 0.4 / (stage.loop.time() - began)
        assert producer.metrics()["bufferpool_wait_ratio"] == pytest.approx(waited, rel=0.1)
        await producer.close()

    play(act, linger_ms=0)


def test_the_time_in_flushes_is_added_up() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await asyncio.sleep(3)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        for _ in range(2):
            stage.broker.freeze()
            await producer.send("t", b"v")
            assert await producer.flush(timeout=0.5) == 1
            stage.broker.thaw()
            await asyncio.sleep(1)
        assert stage.engine.stats.flush_time == pytest.approx(1.0)
        await producer.close()

    play(act)


def test_a_flush_that_raises_failures_counts_those_since_the_last_one() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t", "u"])
        assert await stage.engine.flush(raise_failures=True) == 0
        for topics in (["t", "u"], ["u", "u", "t"]):
            for topic in topics:
                await producer.send(topic, b"v", partition=0)
                producer.purge()
            with pytest.raises(RecordsFailedError, match="last: the record was purged") as caught:
                await stage.engine.flush(raise_failures=True)
            failed = caught.value
            assert (failed.count, failed.topic, failed.partition) == (len(topics), topics[-1], 0)
            assert await stage.engine.flush(raise_failures=True) == 0
        await producer.close()

    play(act)


# -- waits and failures ----------------------------------------------------------------------------


def test_a_purge_returns_how_many_records_it_has_failed() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.warm_up(["t"])
        for _ in range(3):
            await stage.producer.send("t", b"v")
        assert stage.producer.purge() == 3
        assert stage.producer.purge() == 0
        await stage.producer.close()

    play(act)


def test_batches_are_sent_without_linger_while_a_call_waits_for_memory() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("v")
        await stage.producer.start()
        await stage.producer.warm_up(["t", "u", "v"])
        await asyncio.sleep(10)
        began = stage.loop.time()
        for topic in ("t", "u", "v"):
            await stage.producer.send(topic, b"v", partition=0)
        assert stage.loop.time() - began < 1
        await stage.producer.close()

    play(act, linger_ms=60_000, buffer_memory=400)


def test_a_call_that_waits_for_metadata_fails_with_the_producer() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        stage.broker.freeze()
        sending = asyncio.create_task(stage.producer.send("t", b"v"))
        await asyncio.sleep(1)
        (sender,) = [t for t in stage.engine.tasks() if t.get_name() == "aioproducer-sender"]
        sender.cancel()
        with pytest.raises(ProducerFailedError, match="was cancelled from outside"):
            await sending
        assert stage.loop.time() < 2
        with pytest.raises(ProducerFailedError, match="was cancelled from outside"):
            await stage.producer.send("t", b"v")
        await stage.producer.close()

    play(act)
