"""purge(): what waits fails at once and says truly what may be written; memory stays pinned."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play
from support.stepping import drive
from support.waiting import until

from aioproducer import Persistence
from aioproducer.errors import KafkaError, RecordsPurgedError
from aioproducer.runtime.delivery import Delivery
from aioproducer.wire.api_keys import ApiKey


def persistence(delivery: Delivery) -> Persistence | None:
    error = delivery.exception()
    assert isinstance(error, RecordsPurgedError)
    return error.persistence


async def started(stage: Stage) -> None:
    await stage.producer.start()
    await stage.producer.warm_up(["u"])
    await stage.producer.send_and_wait("t", b"first")


async def in_flight(stage: Stage) -> None:
    await until(lambda: stage.producer.metrics()["requests_in_flight"] > 0)


def test_queued_means_what_waits_to_be_sent() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        sent = await stage.producer.send("t", b"sent")
        await in_flight(stage)
        queued = [await stage.producer.send("u", b"queued") for _ in range(3)]
        assert stage.producer.purge() == 3
        assert [persistence(each) for each in queued] == [Persistence.NOT_PERSISTED] * 3
        assert not sent.done()
        stage.broker.thaw()
        assert (await sent).offset == 1
        await stage.producer.close()
        assert (stage.values("t"), stage.values("u")) == ([b"first", b"sent"], [])

    play(act, linger_ms=50)


@pytest.mark.parametrize(
    ("code", "applied", "claim"),
    [
        (20, True, Persistence.POSSIBLY_PERSISTED),  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        (19, False, Persistence.NOT_PERSISTED),  # NOT_ENOUGH_REPLICAS
    ],
)
def test_queued_means_also_what_backs_off_and_remembers_its_attempts(
    code: int, applied: bool, claim: Persistence
) -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        fault = stage.faults.error(ApiKey.PRODUCE, code, apply=applied)
        delivery = await stage.producer.send("t", b"again")
        requests = stage.producer.metrics
        await until(lambda: fault.struck == 1 and requests()["requests_in_flight"] == 0)
        assert not delivery.done()
        assert stage.producer.purge(queued=False, in_flight=True) == 0
        assert stage.producer.purge() == 1
        assert persistence(delivery) is claim
        assert (await stage.producer.send_and_wait("t", b"last")).offset == 1 + applied
        await stage.producer.close()
        assert stage.values("t") == [b"first", *[b"again"] * applied, b"last"]

    play(act)


def test_in_flight_is_possibly_persisted_and_its_sequence_is_not_reused() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        sent = await stage.producer.send("t", b"sent")
        await in_flight(stage)
        assert stage.producer.purge(queued=False) == 0
        assert stage.producer.purge(queued=False, in_flight=True) == 1
        assert persistence(sent) is Persistence.POSSIBLY_PERSISTED
        later = await stage.producer.send("t", b"later")
        stage.broker.thaw()
        assert (await later).offset == 2
        await stage.producer.close()
        # What was purged in flight was written all the same; nothing was taken for its duplicate.
        assert stage.values("t") == [b"first", b"sent", b"later"]

    play(act)


def test_what_is_being_compressed_is_in_flight_and_not_persisted() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        delivery = await stage.producer.send("t", b"never")
        await until(lambda: any(batch.pins for batch in stage.engine.accumulator.incomplete()))
        assert stage.producer.metrics()["requests_in_flight"] == 0
        assert stage.producer.purge(queued=True) == 0
        assert stage.producer.purge(queued=False, in_flight=True) == 1
        assert persistence(delivery) is Persistence.NOT_PERSISTED
        await stage.producer.send_and_wait("t", b"last")
        await stage.producer.close()
        assert stage.values("t") == [b"first", b"last"]

    play(act, compression_type="gzip", compression_threads_threshold_bytes=0)


def test_memory_returns_only_when_the_transport_lets_go() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        await stage.producer.send("t", b"v" * 500)
        await in_flight(stage)
        held = stage.producer.health().buffer_available
        assert stage.producer.purge(queued=False, in_flight=True) == 1
        assert stage.producer.health().buffer_available == held < 500
        # A send that gets memory now must not get what is still to be read from.
        waiting = asyncio.create_task(stage.producer.send("u", b"w" * 500))
        await asyncio.sleep(1)
        assert not waiting.done()
        stage.broker.thaw()
        await (await waiting)
        await stage.producer.flush()
        assert stage.producer.health().buffer_available == 1000
        await stage.producer.close()
        assert stage.values("u") == [b"w" * 500]

    play(act, window=100)


def test_every_waiter_is_woken_at_once() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        stage.broker.freeze()
        delivery = await stage.producer.send("t", b"v" * 300)
        awaiting = [asyncio.create_task(drive(delivery)) for _ in range(3)]
        many = asyncio.create_task(stage.producer.send_many("u", [b"v" * 100] * 2))
        in_line = asyncio.create_task(stage.producer.send("t", b"v" * 400))
        flushing = asyncio.create_task(stage.producer.flush())
        await asyncio.sleep(0.1)
        assert stage.producer.health().waiting_for_memory == 1
        purged_at = stage.loop.time()
        assert stage.producer.purge(queued=True, in_flight=True) == 3
        for task in awaiting:
            with pytest.raises(RecordsPurgedError):
                await task
        assert await flushing == 0
        result = await many
        assert (result.count, result.delivered) == (2, 0)
        assert {type(failed.error) for failed in result.failed} == {RecordsPurgedError}
        assert stage.loop.time() == purged_at
        stage.broker.thaw()
        await (await in_line)
        await stage.producer.close()

    play(act)


def test_a_purge_of_nothing_does_nothing() -> None:
    async def act(stage: Stage) -> None:
        await started(stage)
        assert stage.producer.purge(queued=True, in_flight=True) == 0
        delivery = await stage.producer.send("t", b"v")
        assert stage.producer.purge(queued=False, in_flight=False) == 0
        assert (await delivery).offset == 1
        await stage.producer.close()
        with pytest.raises(KafkaError):
            stage.producer.purge()

    play(act)
