"""Records of a producer that connects in the background, before their topic has metadata."""

from __future__ import annotations

import asyncio
import logging
from itertools import groupby
from typing import Any

import pytest
from support.stage import Stage, play
from support.turns import each_turn

from aioproducer.errors import (
    DeliveryTimeoutError,
    InvalidPartitionError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFailedError,
    RecordsPurgedError,
    SaslAuthenticationFailedError,
)
from aioproducer.records import record_size_bound
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.security import ListenerSecurity
from aioproducer.testing.world.producer import SimProducer
from aioproducer.types import Persistence


async def connecting(stage: Stage) -> None:
    """Start the producer while there is no cluster."""
    stage.crash()
    await stage.producer.start(wait=False)


def test_a_record_that_expires_does_not_take_later_ones_with_it() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        first = await stage.producer.send("t", b"first")
        await asyncio.sleep(3)
        second = await stage.producer.send("t", b"second")
        await asyncio.sleep(3)
        with pytest.raises(DeliveryTimeoutError):
            await first
        stage.revive()
        assert (await second).offset == 0
        assert stage.values("t") == [b"second"]
        await stage.producer.close()

    play(act, delivery_timeout_ms=5_000, request_timeout_ms=1_000)


def test_records_go_to_the_partitions_that_were_given_and_fill_few_batches() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1, 1))
        await connecting(stage)
        sent = [
            await stage.producer.send("wide", b"%06d" % number, partition=number % 2)
            for number in range(10)
        ]
        stage.revive()
        for number, delivery in enumerate(sent):
            assert (await delivery).partition == number % 2
        for partition in range(2):
            expected = [b"%06d" % number for number in range(partition, 10, 2)]
            assert stage.values("wide", partition) == expected
            assert [batch.count for batch in stage.batches("wide", partition)] == [5]
        await stage.producer.close()

    play(act, batch_size=400)


def test_a_record_has_no_partition_in_texts_before_it_gets_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1, 1))
        await connecting(stage)
        delivery = await stage.producer.send("wide", b"v", partition=1)
        assert repr(delivery) == "<Delivery wide pending>"
        assert await stage.producer.flush(1) == 1
        stage.revive()
        await delivery
        assert repr(delivery) == "<Delivery wide-1 acknowledged>"
        await stage.producer.close()

    with caplog.at_level(logging.WARNING, logger="aioproducer"):
        play(act)
    (line,) = [text for text in caplog.messages if text.startswith("flush(")]
    assert "(wide: 1, " in line


def test_a_record_for_a_missing_partition_fails_alone() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        sent = [await stage.producer.send("t", b"v", partition=given) for given in (0, 1, None)]
        stage.revive()
        assert [(await sent[0]).offset, (await sent[2]).offset] == [0, 1]
        with pytest.raises(InvalidPartitionError) as caught:
            await sent[1]
        assert (caught.value.topic, caught.value.partition) == ("t", 1)
        assert (sent[1].topic, sent[1].partition) == ("t", 1)
        await stage.producer.close()

    play(act)


def test_records_that_waited_for_memory_share_a_batch() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        first = [await stage.producer.send("t", b"v" * 100) for _ in range(2)]
        await asyncio.sleep(2)
        waiting = [asyncio.create_task(stage.producer.send("t", b"w")) for _ in range(2)]
        await asyncio.sleep(1)
        assert stage.producer.health().waiting_for_memory == 2
        for delivery in first:
            with pytest.raises(DeliveryTimeoutError):
                await delivery
        for task in waiting:
            await task
        assert stage.producer.health().buffer_available == 200
        stage.revive()
        await stage.producer.close()
        assert stage.values("t") == [b"w", b"w"]

    play(act, buffer_memory=400, delivery_timeout_ms=5_000, request_timeout_ms=1_000)


def test_a_record_that_waits_for_memory_fails_with_those_before_if_the_login_is_refused() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        stage.broker.security = ListenerSecurity(mechanisms=("PLAIN",))
        first = [await stage.producer.send("t", b"v" * 100) for _ in range(2)]
        waiting = asyncio.create_task(stage.producer.send("u", b"w"))
        await asyncio.sleep(1)
        assert stage.producer.health().waiting_for_memory == 1
        stage.revive()
        for delivery in first:
            with pytest.raises(SaslAuthenticationFailedError):
                await delivery
        failed_at = stage.loop.time()
        with pytest.raises(SaslAuthenticationFailedError):
            await (await waiting)
        assert stage.loop.time() == failed_at
        await stage.producer.close()

    login = {"sasl_plain_username": "me", "sasl_plain_password": "password"}
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    play(act, buffer_memory=400, **sasl, **login)


def test_a_loop_of_sends_lets_other_tasks_run_and_takes_no_time() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        began, accepted = stage.loop.time(), 0
        with each_turn(lambda: accepted) as between_turns:
            for _ in range(3_500):
                await stage.producer.send("t", b"v")
                accepted += 1
        assert between_turns[:3] == [1_000, 2_000, 3_000]
        assert stage.loop.time() == began
        await stage.producer.close(0)

    play(act, batch_size=16_384, buffer_memory=1 << 20)


def test_a_send_that_lets_other_tasks_run_is_not_accepted_after_a_close_among_them() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        sent = [await stage.producer.send("t", b"v") for _ in range(1_000)]
        closing = asyncio.create_task(stage.producer.close(0))
        with pytest.raises(ProducerClosedError):
            await stage.producer.send("t", b"v")
        await closing
        for delivery in sent:
            with pytest.raises(ProducerClosedError):
                await delivery

    play(act, batch_size=16_384, buffer_memory=1 << 20)


def test_a_record_expires_at_its_time_although_nothing_else_happens() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        await asyncio.sleep(1)
        began = stage.loop.time()
        delivery = await stage.producer.send("t", b"v")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        assert stage.loop.time() - began == pytest.approx(5, abs=0.1)
        await stage.producer.close()

    options: dict[str, Any] = {"reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000}
    options |= {"delivery_timeout_ms": 5_000, "request_timeout_ms": 1_000}
    play(act, enable_idempotence=False, **options)  # else the sender asks for a producer id


def test_a_topic_whose_records_have_expired_is_waited_for_as_any_other() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        delivery = await stage.producer.send("missing", b"v")
        stage.revive()
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        for topic in ("missing", "another"):
            with pytest.raises(MetadataTimeoutError):
                await stage.producer.send(topic, b"v")
        await stage.producer.close()

    options: dict[str, Any] = {"delivery_timeout_ms": 5_000, "request_timeout_ms": 1_000}
    play(act, allow_auto_create_topics=False, max_block_ms=2_000, **options)


def test_records_that_a_partitioner_sends_follow_those_that_it_is_asked_for() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        producer.append(stage.producer)
        deliveries = [await stage.producer.send("t", value) for value in (b"1", b"2")]
        stage.revive()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1]
        assert [(await delivery).offset for delivery in further] == [2, 3, 4]
        later = await stage.producer.send("t", b"3")
        assert later.partition == 0  # it is not early
        await later
        assert stage.values("t") == [b"1", b"2", b"1+", b"2+", b"1++", b"3"]
        await stage.producer.close()

    producer: list[SimProducer] = []
    further: list[Delivery] = []
    answers = {b"1": b"1+", b"2": b"2+", b"1+": b"1++"}

    def choose(topic: str, key: bytes | None, value: bytes, *_: object) -> int:
        if value in answers:
            further.append(producer[0].send_nowait(topic, answers[value]))
        return 0

    play(act, partitioner=choose)


@pytest.mark.parametrize("in_flight", [False, True])
@pytest.mark.parametrize("purged_at", [b"1", b"2"])
def test_a_partitioner_may_purge_the_records_that_it_is_asked_for(
    purged_at: bytes, in_flight: bool
) -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        deliveries = [await stage.producer.send("t", b"1")]
        await asyncio.sleep(2)  # the next ones are of another batch
        deliveries += [await stage.producer.send("t", value) for value in (b"2", b"3")]
        producer.append(stage.producer)
        stage.revive()
        for delivery in deliveries:
            with pytest.raises(RecordsPurgedError) as caught:
                await delivery
            assert caught.value.persistence is Persistence.NOT_PERSISTED
        assert (await stage.producer.send_and_wait("t", b"4")).offset == 0
        assert stage.values("t") == [b"4"]
        await stage.producer.close()

    producer: list[SimProducer] = []

    def choose(topic: str, key: bytes | None, value: bytes, *_: object) -> int:
        if value == purged_at:
            assert producer[0].purge(in_flight=in_flight) == 3
        return 0

    play(act, partitioner=choose)


def test_the_error_of_a_partitioner_is_the_cause_of_its_record_s_alone() -> None:
    def choose(topic: str, key: bytes | None, value: bytes, *_: object) -> int:
        if value == b"bad":
            raise LookupError("no such customer")
        return 1 if value == b"missing" else 0

    async def act(stage: Stage) -> None:
        await connecting(stage)
        good, bad, missing = [
            await stage.producer.send("t", value) for value in (b"good", b"bad", b"missing")
        ]
        stage.revive()
        assert (await good).offset == 0
        with pytest.raises(InvalidPartitionError, match="raised LookupError") as caught:
            await bad
        assert isinstance(caught.value.__cause__, LookupError)
        with pytest.raises(InvalidPartitionError, match="chose 1 of 1 partitions") as caught:
            await missing
        assert caught.value.__cause__ is None
        await stage.producer.close()

    play(act, partitioner=choose)


class Interrupt(Exception):  # noqa: N818 - what a signal handler raises
    """Raised in the middle of a send."""


def test_an_exception_in_the_midst_of_a_send_ends_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise Interrupt

    async def act(stage: Stage) -> None:
        await connecting(stage)
        accepted = await stage.producer.send("t", b"v")
        monkeypatch.setattr(stage.engine.accumulator, "open_early", interrupt)
        with pytest.raises(Interrupt):
            await stage.producer.send("u", b"v")
        with pytest.raises(ProducerFailedError, match="Interrupt"):
            await accepted
        await stage.producer.close()

    play(act)


VALUE = b"v" * 50
SIZE = record_size_bound(None, VALUE, ())


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"batch_size": HEADER_SIZE + 3 * SIZE}, [3, 3, 2]),
        ({"batch_size": HEADER_SIZE + 3 * SIZE - 1}, [2, 2, 2, 2]),
        ({"batch_max_records": 5}, [5, 3]),
        ({}, [8]),
    ],
)
def test_early_records_of_a_partition_share_batches_as_far_as_they_have_room(
    options: dict[str, Any], counts: list[int]
) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("wide", (1, 1))
        await connecting(stage)
        await asyncio.sleep(5)
        for number in range(16):  # in a second, so that they may share a batch
            await stage.producer.send("wide", VALUE, partition=number % 2)
            await asyncio.sleep(0.06)
        stage.revive()
        await stage.producer.flush()
        for partition in range(2):
            assert [batch.count for batch in stage.batches("wide", partition)] == counts
        await stage.producer.close()

    play(act, **{"batch_size": 16_384, "buffer_memory": 1 << 20, **options})


def test_early_records_that_are_a_second_apart_do_not_share_a_batch() -> None:
    async def act(stage: Stage) -> None:
        await connecting(stage)
        for _ in range(9):
            await stage.producer.send("t", VALUE)
            await asyncio.sleep(0.4)
        stage.revive()
        await stage.producer.flush()
        assert [batch.count for batch in stage.batches("t")] == [3, 3, 3]
        await stage.producer.close()

    play(act, batch_size=16_384, buffer_memory=1 << 20)


def test_early_records_change_their_partition_after_twice_the_batch_size() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("many", (1,) * 20)
        await connecting(stage)
        values = [b"%050d" % number for number in range(200)]
        for value in values:
            await stage.producer.send("many", value)
        stage.revive()
        await stage.producer.flush()
        where = {value: place for place in range(20) for value in stage.values("many", place)}
        *runs, _ = [len(list(run)) for _, run in groupby(where[value] for value in values)]
        # Eight reach twice the size, and the partition chosen next is by chance the same one.
        assert {run % 8 for run in runs} == {0}
        assert len(runs) > 15
        await stage.producer.close()

    play(act, batch_size=4 * SIZE, buffer_memory=1 << 20)
