"""`Producer.health()`: what a readiness probe reads, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from support.stage import Stage, play

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.errors.advice import ADVICE
from aioproducer.runtime.observability.health import Health, NodeHealth
from aioproducer.runtime.tasks.closing import tasks_named
from aioproducer.testing.broker import ConnectionFault, Fault
from aioproducer.testing.faults import FaultScript
from aioproducer.wire.api_keys import ApiKey

COORDINATOR_LOAD_IN_PROGRESS = 14


def test_health_of_a_producer_that_was_not_started_has_only_its_state() -> None:
    found = Producer(bootstrap_servers="localhost:9092").health()
    assert found == Health(False, "not started", None, {}, 0, 0, 0, 0, None)
    assert found == Health(ready=False, state="not started")


def test_health_of_an_idle_producer_is_ready_and_waits_for_nothing() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            node = NodeHealth(1, "broker-1.sim", 9092, "ready", 0, None)
            assert producer.health() == Health(True, "running", None, {1: node}, 1000, 1000)
        closed = producer.health()
        assert (closed.ready, closed.state, closed.error) == (False, "closed", None)

    play(act)


def test_health_counts_pending_batches_and_names_what_the_oldest_waits_for() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.warm_up(["t", "u"])
            stage.faults.add(Fault(ConnectionFault(delay_ms=2000), api=ApiKey.PRODUCE))
            deliveries = [await producer.send("t", b"v")]
            await asyncio.sleep(0.1)
            deliveries += [await producer.send(topic, b"v") for topic in ("t", "u")]
            found = producer.health()
            assert found.ready
            assert found.batches_pending == 3
            assert found.nodes[1].in_flight == 1
            assert found.buffer_available < found.buffer_total == 1000
            assert "response" in (found.waiting_for or "")
            for delivery in deliveries:
                await delivery

    play(act)


def test_health_names_what_a_record_waits_for_that_is_older_than_a_split_batch() -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("at-2", (2,))
        faults = FaultScript(stage.faults)
        async with stage.producer as producer:
            await producer.warm_up(["t", "at-2"])
            faults.next("produce", node_id=1).is_never_answered()
            faults.next("produce", topic="at-2").answers("MESSAGE_TOO_LARGE")
            faults.every("produce", topic="at-2", after=1).answers("NOT_ENOUGH_REPLICAS")
            deliveries = [await producer.send("t", b"v")]
            await asyncio.sleep(0.1)
            deliveries += [await producer.send("at-2", b"v") for _ in range(2)]
            await asyncio.sleep(0.1)
            assert producer.metrics()["batch_split_total"] == 1
            assert producer.health().waiting_for == "waiting for the broker's response"
            faults.clear()
            for delivery in deliveries:
                await delivery

    play(act, brokers=2, request_timeout_ms=1000)


def test_health_in_a_transaction_names_what_its_oldest_record_waits_for() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer, producer.transaction():
            await producer.send_and_wait("t", b"v")
            assert producer.health().waiting_for is None
            stage.faults.add(Fault(ConnectionFault(delay_ms=2000), api=ApiKey.PRODUCE))
            delivery = await producer.send("t", b"v")
            await asyncio.sleep(0.1)
            assert "response" in (producer.health().waiting_for or "")
            await delivery

    play(act, transactional_id="txn")


def test_health_names_the_last_failure_to_reach_a_broker_until_it_is_back() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            stage.crash()
            await asyncio.sleep(1)
            found = producer.health()
            assert (found.ready, found.state) == (False, "running")
            assert "no broker is connected: connection failures: broker 1" in (found.error or "")
            assert "connection refused" in (found.error or "")
            assert found.nodes[1].state != "ready"
            assert "connection refused" in (found.nodes[1].last_error or "")
            stage.revive()
            await producer.send_and_wait("t", b"v")
            found = producer.health()
            assert (found.ready, found.error) == (True, None)
            assert found.nodes[1].last_error is None

    play(act)


def test_health_says_that_there_is_no_producer_id() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.INIT_PRODUCER_ID, COORDINATOR_LOAD_IN_PROGRESS, times=3)
        async with stage.producer as producer:
            delivery = await producer.send("t", b"v")
            await asyncio.sleep(0.2)
            found = producer.health()
            assert (found.ready, found.state) == (False, "running")
            assert "there is no producer id yet: COORDINATOR_LOAD_IN_PROGRESS" in str(found.error)
            assert str(found.error).count(" -> ") == 1
            await delivery
            assert (producer.health().ready, producer.health().error) == (True, None)

    play(act)


def test_a_producer_whose_broker_was_down_is_ready_again_without_a_send() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            stage.crash()
            await asyncio.sleep(60)
            assert not producer.health().ready
            stage.revive()
            await asyncio.sleep(3)
            assert producer.health().ready

    play(act)


def test_a_producer_that_has_sent_nothing_is_ready_again_after_its_connection_was_reset() -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await asyncio.sleep(60)
            stage.crash()
            await asyncio.sleep(1)
            assert not producer.health().ready
            stage.revive()
            await asyncio.sleep(3)
            assert producer.health().ready

    play(act)


@pytest.mark.parametrize("all_topics", [True, False])
def test_a_producer_is_ready_again_after_its_only_connected_broker_left(all_topics: bool) -> None:
    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            for node_id in (1, 2):
                stage.crash(node_id)
            await asyncio.sleep(1)
            for node_id in (1, 2):
                stage.revive(node_id)
            await producer.send_and_wait("t", b"v")
            await asyncio.sleep(5)  # until all metadata requests are answered
            assert [each.state for each in producer.health().nodes.values()].count("ready") == 1
            stage.world.cluster.unlisted.add(1)
            if all_topics:
                producer.engine.metadata.request_update()
            else:
                await producer.partitions_for("u")
            await asyncio.sleep(1)
            found = producer.health()
            assert found.ready
            assert {each: node.state for each, node in found.nodes.items()} == {2: "ready"}

    play(act, brokers=2)


def test_a_producer_that_has_failed_is_not_ready_although_it_is_connected() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("t", b"v")
        (task,) = tasks_named(stage.loop, "aioproducer-sender")
        task.cancel()
        with pytest.raises(KafkaError, match="was cancelled from outside"):
            await producer.send_and_wait("t", b"v")
        found = producer.health()
        assert found.nodes[1].state == "ready"
        assert (found.ready, found.state) == (False, "failed")
        text = "the producer's sender task was cancelled from outside"
        assert found.error == f"{text} -> {ADVICE['task-cancelled']}"
        await producer.close()

    play(act)
