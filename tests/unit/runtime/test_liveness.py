"""Pending work goes on as soon as the cluster lets it, and says what it waits for until then."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aioproducer import Producer
from aioproducer.errors import (
    BufferFullError,
    ClusterAuthorizationFailedError,
    DeliveryTimeoutError,
    InvalidRequestError,
)
from aioproducer.testing.virtual import VirtualKafka, run_virtual

NODES = (1, 2, 3)


async def restart_all(kafka: VirtualKafka, *, down_s: float) -> None:
    for node in NODES:
        kafka.stop_broker(node)
    await asyncio.sleep(down_s)
    for node in NODES:
        kafka.start_broker(node)


async def start(kafka: VirtualKafka, **options: object) -> Producer:
    producer = kafka.producer(**options)
    await producer.start()
    return producer


@pytest.mark.parametrize("seed", range(5))
def test_records_sent_while_brokers_flap_at_the_start_are_delivered_when_they_are_back(
    seed: int,
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.faults.next("init_producer_id", times=100).answers("COORDINATOR_LOAD_IN_PROGRESS")
        producer = await start(kafka)
        deliveries = [await producer.send("t", b"%d" % number) for number in range(50)]
        await asyncio.sleep(0.5)
        await restart_all(kafka, down_s=3.0)
        kafka.faults.clear()
        back_at = kafka.now
        await asyncio.gather(*deliveries)
        assert kafka.now - back_at < 3.0
        await producer.close()

    run_virtual(run, topics={"t": 3}, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_a_request_for_a_producer_id_that_dies_with_its_connection_is_repeated(seed: int) -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.faults.next("init_producer_id", times=3).is_never_answered()
        producer = await start(kafka)
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(0.5)
        await restart_all(kafka, down_s=1.0)
        back_at = kafka.now
        kafka.faults.clear()
        await delivery
        assert kafka.now - back_at < 3.0
        await producer.close()

    run_virtual(run, topics={"t": 3}, seed=seed)


def test_a_producer_id_that_is_refused_for_good_fails_records_at_once_with_the_cause() -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.faults.every("init_producer_id").answers("INVALID_REQUEST")
        kafka.faults.every("init_producer_id").answers("INVALID_REQUEST")
        producer = kafka.producer()
        with pytest.raises(InvalidRequestError, match="InitProducerId"):
            await producer.start()
            await producer.send_and_wait("t", b"v")
        assert kafka.now < 3.0
        assert not producer.health().ready
        await producer.close()

    run_virtual(run, topics={"t": 1})


def test_a_delivery_timeout_names_the_producer_id_and_the_last_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(kafka: VirtualKafka) -> None:
        kafka.faults.every("init_producer_id").answers("COORDINATOR_LOAD_IN_PROGRESS")
        producer = await start(kafka, delivery_timeout_ms=40_000)
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(20)
        health = producer.health()
        assert not health.ready
        assert health.waiting_for is not None
        assert "producer id" in health.waiting_for
        assert "COORDINATOR_LOAD_IN_PROGRESS" in health.waiting_for
        with pytest.raises(DeliveryTimeoutError, match="producer id") as caught:
            await delivery
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(caught.value)
        await producer.close()

    with caplog.at_level(logging.WARNING, "aioproducer"):
        run_virtual(run, topics={"t": 1})
    assert any("producer id" in record.getMessage() for record in caplog.records)


def test_an_idempotent_producer_goes_on_once_it_is_authorized() -> None:
    async def run(kafka: VirtualKafka) -> None:
        refusal = kafka.faults.every("init_producer_id").answers("CLUSTER_AUTHORIZATION_FAILED")
        producer = await start(kafka)
        for _ in range(2):
            with pytest.raises(ClusterAuthorizationFailedError):
                await producer.send_and_wait("t", b"v")
        kafka.faults.remove(refusal)
        await producer.send_and_wait("t", b"v")
        await producer.close()

    run_virtual(run, topics={"t": 1})


@pytest.mark.parametrize("partition", [0, None])
def test_a_batch_that_a_refused_record_has_filled_is_sent_at_once(partition: int | None) -> None:
    async def run(kafka: VirtualKafka) -> None:
        producer = await start(kafka, linger_ms=60_000, batch_size=300, buffer_memory=300)
        await producer.warm_up(["t"])
        first = producer.send_nowait("t", b"x" * 150, partition=partition)
        await asyncio.sleep(1)
        assert not first.done()
        refused_at = kafka.now
        with pytest.raises(BufferFullError):
            producer.send_nowait("t", b"x" * 150, partition=partition)
        await first
        assert kafka.now - refused_at < 1
        await producer.close()

    run_virtual(run, topics={"t": 1})
