"""The effects of the 0.8 producer's properties, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer import ProducerConfig
from aioproducer.errors import (
    BufferExhaustedError,
    BufferFullError,
    KafkaError,
    NotLeaderOrFollowerError,
    ProducerClosedError,
    ProducerFailedError,
)
from aioproducer.records.codecs import codec_for
from aioproducer.testing.broker.faults import Fault
from aioproducer.wire.api_keys import ApiKey

ROOMY = {"batch_size": 16_384, "buffer_memory": 33_554_432}


def options_of(**words: str) -> dict[str, object]:
    """The options that a file of 0.8 would set, with a cluster that is somewhere else."""
    written = {name.replace("_", "."): text for name, text in words.items()}
    config = ProducerConfig.from_properties({"metadata.broker.list": "a:1", **written})
    return {
        name: getattr(config, name) for name in config.explicitly_set - {"bootstrap_servers"}
    } | {"batch_size": 16_384, "buffer_memory": 33_554_432}


ASYNC = {"producer_type": "async", "request_required_acks": "1"}


# -- queue.enqueue.timeout.ms ----------------------------------------------------------------------


def test_with_0_what_finds_no_place_is_dropped_at_once() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send("t", b"0")  # also waits for the metadata, which no queue was for
        stage.broker.freeze()
        for number in range(1, 10):
            await producer.send("t", b"%d" % number)
        before = stage.loop.time()
        with pytest.raises(BufferFullError, match="buffer_max_records is used up"):
            await producer.send("t", b"dropped")
        assert stage.loop.time() == before
        stage.broker.thaw()
        await producer.flush()
        await producer.send_and_wait("t", b"10")
        assert stage.values("t") == [b"%d" % number for number in range(11)]
        await producer.close()

    play(
        act,
        **options_of(**ASYNC, queue_enqueue_timeout_ms="0", queue_buffering_max_messages="10"),
    )


def test_with_n_a_place_is_waited_for_n_ms() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        for _ in range(10):
            await producer.send("t", b"x")
        before = stage.loop.time()
        with pytest.raises(BufferExhaustedError, match="enqueue_timeout_ms=700"):
            await producer.send("t", b"late")
        assert stage.loop.time() == pytest.approx(before + 0.7)
        waiting = asyncio.create_task(producer.send("t", b"in time"))
        await asyncio.sleep(0.6)
        stage.broker.thaw()
        await (await waiting)
        await producer.close()

    play(
        act,
        **options_of(**ASYNC, queue_enqueue_timeout_ms="700", queue_buffering_max_messages="10"),
    )


def test_with_a_negative_number_a_place_is_waited_for_until_the_end() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        for _ in range(10):
            await producer.send("t", b"x")
        waiting = [asyncio.create_task(producer.send("t", b"y")) for _ in range(3)]
        await asyncio.sleep(100)  # longer than max_block_ms
        assert not any(task.done() for task in waiting)
        await producer.close(0)
        for task in waiting:
            with pytest.raises(ProducerClosedError):
                await task

    play(
        act,
        **options_of(
            **ASYNC,
            queue_enqueue_timeout_ms="-1",
            queue_buffering_max_messages="10",
            message_timeout_ms="250000",
        ),
    )


# -- the queue's bounds ----------------------------------------------------------------------------


def test_a_bulk_call_keeps_within_the_bound() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                buffered = sum(b.count for b in stage.engine.accumulator.incomplete())
                most = max(most, buffered)
                await asyncio.sleep(0.0005)

        watcher = asyncio.create_task(watch())
        values = [b"%d" % number for number in range(1000)]
        sending = asyncio.create_task(producer.send_many("t", values))
        await asyncio.sleep(1)
        assert most == 25
        stage.broker.thaw()
        result = await sending
        watcher.cancel()
        assert result.delivered == 1000
        assert stage.values("t") == values
        assert most == 25
        await producer.close()

    play(act, buffer_max_records=25, **ROOMY)


def test_of_a_bulk_call_what_finds_no_place_is_dropped_too() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        stage.broker.freeze()
        sending = asyncio.create_task(producer.send_many("t", [b"x"] * 40))
        await asyncio.sleep(1)
        stage.broker.thaw()
        result = await sending
        assert result.delivered == 25
        assert {type(failed.error) for failed in result.failed} == {BufferFullError}
        await producer.close()

    play(act, buffer_max_records=25, enqueue_timeout_ms=0, **ROOMY)


@pytest.mark.parametrize("call", ["send", "send_many", "send_arrow"])
def test_so_many_messages_are_a_batch_and_go_at_once(call: str) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        before = stage.loop.time()
        values = [b"%d" % number for number in range(400)]
        if call == "send_many":
            await producer.send_many("t", values)
        elif call == "send_arrow":
            table = pytest.importorskip("pyarrow").table({"value": values})
            await producer.send_arrow("t", table)
        else:
            deliveries = [await producer.send("t", value) for value in values]
            await asyncio.gather(*deliveries)
        assert stage.loop.time() < before + 1  # nothing has lingered for 5 s
        assert [len(list(batch.records())) for batch in stage.batches("t")] == [200, 200]
        assert stage.values("t") == values
        await producer.close()

    play(act, **options_of(**ASYNC))


# -- producer.type ---------------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", [None, lambda value: value])
def test_a_synchronous_send_returns_when_the_record_is_delivered(serializer) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        before = stage.loop.time()
        for number in range(5):
            delivery = await producer.send("t", b"%d" % number)
            assert delivery.done()
            assert delivery.result().offset == number
        assert stage.loop.time() < before + 1  # 0.8 had no queue in this mode, so none lingers
        stage.faults.error(ApiKey.PRODUCE, 10, topic="t")
        with pytest.raises(KafkaError):
            await producer.send("t", b"refused")
        await producer.close()

    play(act, value_serializer=serializer, **options_of(request_required_acks="1"))


# -- what fails ------------------------------------------------------------------------------------


def test_a_failure_after_all_tries_says_so_and_the_next_record_goes_on() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        refusing = stage.faults.error(ApiKey.PRODUCE, 6, topic="t", times=None)
        with pytest.raises(
            NotLeaderOrFollowerError, match=r"raise retries=3, which ended after 4 attempt"
        ):
            await producer.send("t", b"lost")
        stage.faults.remove(refusing)
        await producer.send("t", b"next")
        assert stage.values("t") == [b"next"]
        await producer.close()

    play(act, **options_of(request_required_acks="1", message_send_max_retries="3"))


@pytest.mark.parametrize("threshold", [0, 65_536], ids=["thread", "loop"])
def test_an_error_in_the_background_ends_no_sender(threshold: int) -> None:
    class Fragile(type(codec_for("gzip", None))):
        def compress(self, data):
            if b"poison" in bytes(data):
                raise MemoryError("no memory for the compressor")
            return super().compress(data)

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        stage.engine._encoder._codec = Fragile(1)
        for _ in range(3):
            with pytest.raises(ProducerFailedError, match="no memory for the compressor"):
                await producer.send("t", b"poison")
            await producer.send("t", b"good")
        assert stage.values("t") == [b"good"] * 3
        await producer.close()

    play(
        act,
        compression_threads_threshold_bytes=threshold,
        **options_of(request_required_acks="1", compression_codec="gzip"),
    )


# -- the rest --------------------------------------------------------------------------------------


def test_only_the_topics_named_are_compressed() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        for topic in ("t", "u"):
            await producer.send(topic, b"x" * 1000)
        assert [batch.codec.name for batch in stage.batches("t")] == ["NONE"]
        assert [batch.codec.name for batch in stage.batches("u")] == ["GZIP"]
        await producer.close()

    play(
        act,
        **options_of(request_required_acks="1", compression_codec="1", compressed_topics="u"),
    )


def count_refreshes(stage: Stage) -> Fault:
    """Run on every metadata request from now on, without harm to it."""
    return stage.faults.delay(0, ApiKey.METADATA, times=None)


def test_with_0_metadata_are_refreshed_after_every_send_and_only_then() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"first")
        await asyncio.sleep(1)
        asked = count_refreshes(stage)
        for number in range(1, 21):
            await stage.producer.send("t", b"x")
            await asyncio.sleep(0.5)
            assert asked.struck == number
        await asyncio.sleep(200)
        assert asked.struck == 20
        await stage.producer.close()

    play(act, **options_of(request_required_acks="1", topic_metadata_refresh_interval_ms="0"))


def test_with_a_negative_number_metadata_are_refreshed_when_something_fails() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send("t", b"first")
        asked = count_refreshes(stage)
        for _ in range(20):
            await stage.producer.send("t", b"x")
            await asyncio.sleep(10)
        assert asked.struck == 0
        stage.faults.error(ApiKey.PRODUCE, 6, topic="t")
        await stage.producer.send("t", b"x")
        assert asked.struck == 1
        await stage.producer.close()

    play(act, **options_of(request_required_acks="1", topic_metadata_refresh_interval_ms="-7"))
