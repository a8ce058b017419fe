"""Events that have the sender act without delay, and what ends its task."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest
from net.virtual import virtual_time
from support.stage import Stage, play

from aioproducer.errors import DeliveryTimeoutError, ProducerFailedError
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.metadata import MetadataRequest, MetadataResponse
from aioproducer.wire.messages.produce import ProduceRequest, ProduceResponse

from ..test_legacy_brokers import KAFKA_0_10, KAFKA_4, Broker, producer_at

COORDINATOR_LOAD_IN_PROGRESS = 14


def test_records_leave_as_soon_as_the_only_request_for_a_producer_id_is_answered() -> None:
    async def act(stage: Stage) -> None:
        asked = stage.faults.delay(500, ApiKey.INIT_PRODUCER_ID, times=None)
        await stage.producer.start()
        first = asyncio.create_task(stage.producer.send_and_wait("t", b"v"))
        await asyncio.sleep(0.1)
        await stage.producer.send_and_wait("u", b"v")
        await first
        assert 0.5 < stage.loop.time() < 0.7
        assert asked.struck == 1
        await stage.producer.close()

    play(act, enable_idempotence=True)


def test_a_producer_id_that_is_refused_once_is_requested_again_after_the_backoff() -> None:
    async def act(stage: Stage) -> None:
        stage.faults.error(ApiKey.INIT_PRODUCER_ID, COORDINATOR_LOAD_IN_PROGRESS)
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"v")
        assert stage.loop.time() < 0.3
        await stage.producer.close()

    play(act, enable_idempotence=True)


def test_a_start_that_is_cancelled_logs_no_failure_to_get_a_producer_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(stage: Stage) -> None:
        asked = stage.faults.delay(500, ApiKey.INIT_PRODUCER_ID)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stage.producer.start()
        assert asked.struck == 1
        await stage.producer.close()

    play(act, enable_idempotence=True)
    assert not caplog.messages


def test_a_request_that_was_lost_is_repeated_after_the_backoff() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"v")
        began = stage.loop.time()
        stage.faults.drop(ApiKey.PRODUCE)
        await stage.producer.send_and_wait("t", b"v")
        assert stage.loop.time() - began < 0.5
        await stage.producer.close()

    play(act)


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_record_does_not_wait_for_another_broker(linger_ms: int) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("two", leaders=(1, 2))
        producer = stage.producer
        await producer.start()
        for partition in (0, 1):
            await producer.send_and_wait("two", b"v", partition=partition)
        await asyncio.sleep(1)
        stage.world.brokers[1].freeze()
        producer.send_nowait("two", b"v", partition=0)
        began = stage.loop.time()
        await producer.send_nowait("two", b"v", partition=1)
        assert stage.loop.time() - began < 0.1
        stage.world.brokers[1].thaw()
        await producer.close()

    play(act, brokers=2, linger_ms=linger_ms)


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_record_of_a_broker_that_cannot_be_reached_expires_in_time(linger_ms: int) -> None:
    async def act(stage: Stage) -> None:
        stage.create_topic("two", leaders=(1, 2))
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("two", b"v", partition=0)
        await asyncio.sleep(1)
        stage.lose(2)
        began = stage.loop.time()
        delivery = producer.send_nowait("two", b"v", partition=1)
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        assert stage.loop.time() - began == pytest.approx(2, abs=0.05)
        await producer.close()

    play(act, brokers=2, linger_ms=linger_ms, request_timeout_ms=1_900, delivery_timeout_ms=2_000)


async def with_a_record_in_flight(stage: Stage) -> None:
    """Start the producer; broker 2 does not answer a record of `two-1`."""
    stage.create_topic("two", leaders=(1, 2))
    await stage.producer.start()
    for partition in (0, 1):
        await stage.producer.send_and_wait("two", b"v", partition=partition)
    await asyncio.sleep(1)
    stage.world.brokers[2].freeze()
    stage.producer.send_nowait("two", b"v", partition=1)
    await asyncio.sleep(1)


async def requests_of_three_records(stage: Stage) -> int:
    before = stage.engine.stats.requests_sent
    sent = [stage.producer.send_nowait("two", b"v", partition=0) for _ in range(3)]
    for delivery in sent:
        await delivery
    return stage.engine.stats.requests_sent - before


def test_records_that_follow_one_that_left_at_once_are_gathered() -> None:
    async def act(stage: Stage) -> None:
        await with_a_record_in_flight(stage)
        assert await requests_of_three_records(stage) == 2
        stage.world.brokers[2].thaw()
        await stage.producer.close()

    play(act, brokers=2, linger_ms=0, compression_type="gzip")


def test_records_that_follow_an_acknowledgement_are_gathered() -> None:
    async def act(stage: Stage) -> None:
        await with_a_record_in_flight(stage)
        await stage.producer.send_nowait("two", b"v", partition=0)
        assert await requests_of_three_records(stage) == 1
        stage.world.brokers[2].thaw()
        await stage.producer.close()

    play(act, brokers=2, linger_ms=0, compression_type="gzip")


@virtual_time
async def test_a_topic_without_an_id_is_written_to_with_the_last_version_that_has_names() -> None:
    broker = Broker({**KAFKA_4, ApiKey.PRODUCE: (3, 13)})
    dialer, producer = producer_at(broker, enable_idempotence=False)
    async with producer:
        await producer.send_and_wait("t", b"v")
    assert broker.versions == [12]
    await dialer.shut_down()


class BrokerWithTopicIds(Broker):
    """One whose topics have an id, which requests have in place of the name."""

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = super()._metadata(request)
        for topic in response.topics:
            topic.topic_id = UUID(int=7)
        return response

    def _take(self, body: memoryview, version: int) -> ProduceResponse:
        response = super()._take(body, version)
        (topic,) = ProduceRequest.decode(body, version).topic_data
        response.responses[0].topic_id = topic.topic_id
        return response


@virtual_time
async def test_a_topic_with_an_id_is_written_to_by_its_id() -> None:
    broker = BrokerWithTopicIds({**KAFKA_4, ApiKey.PRODUCE: (3, 13), ApiKey.METADATA: (0, 12)})
    dialer, producer = producer_at(broker, enable_idempotence=False)
    async with producer:
        await producer.send_and_wait("t", b"v")
    assert broker.versions == [13]
    await dialer.shut_down()


@pytest.mark.parametrize(("acks", "offset"), [(0, None), (1, 0), ("all", 0)])
def test_only_with_acks_0_no_response_is_waited_for(acks: int | str, offset: int | None) -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        written = await stage.producer.send_and_wait("t", b"v")
        assert written.offset == offset
        await asyncio.sleep(0.1)
        assert stage.values("t") == [b"v"]
        await stage.producer.close()

    play(act, acks=acks, enable_idempotence=False, compression_type="gzip")


@virtual_time
async def test_without_sequences_a_broker_of_version_2_is_written_to() -> None:
    broker = Broker(KAFKA_0_10)
    dialer, producer = producer_at(broker, enable_idempotence=False)
    async with producer:
        await producer.send_and_wait("t", b"v")
    assert broker.versions == [2]
    await dialer.shut_down()


def test_a_producer_that_was_closed_has_not_failed() -> None:
    async def act(stage: Stage) -> None:
        await stage.producer.start()
        await stage.producer.send_and_wait("t", b"v")
        await stage.producer.close()
        assert stage.engine.failure is None

    play(act)


class BrokenClock(VirtualLoop):
    """A loop whose clock cannot be read by one task."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.broken_for: str | None = None

    def time(self) -> float:
        if self.broken_for is not None:
            task = asyncio.current_task(self)
            if task is not None and task.get_name() == self.broken_for:
                self.broken_for = None
                raise ZeroDivisionError
        return super().time()


def test_a_defect_in_a_turn_of_the_sender_is_the_failure_of_the_producer() -> None:
    loop = BrokenClock()

    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.send_and_wait("t", b"v")
        await asyncio.sleep(1)
        loop.broken_for = "aioproducer-sender"
        delivery = await producer.send("t", b"v")
        with pytest.raises(ProducerFailedError, match="sender task failed with ZeroDivisionError"):
            await delivery
        failure = stage.engine.failure
        assert isinstance(failure, ProducerFailedError)
        assert isinstance(failure.__cause__, ZeroDivisionError)
        assert producer.health().state == "failed"
        await producer.close()

    play(act, loop=loop)
