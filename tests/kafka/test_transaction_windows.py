"""Ends of transactions in narrow windows, on real brokers: markers that take long, a lost answer.

The internal topics have one replica: with more of them a frozen broker would hold up the decision
on an end, and not its markers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, TypeVar, cast

import pytest
import pytest_asyncio
from support.clusters import unique_topic
from support.confluent import create_topic_confluent, read_all_confluent
from support.faults import FaultGround, fault_ground
from support.faults.proxy import NetworkFault

from aioproducer import Producer, TopicPartition
from aioproducer.errors import KafkaError
from aioproducer.errors.base import raise_for_code
from aioproducer.testing.wire_client import WireClient
from aioproducer.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

TestFunction = TypeVar("TestFunction", bound=Callable[..., object])
Work = Callable[[Producer, "Place"], Awaitable[None]]

FULL = bool(os.environ.get("AIOPRODUCER_TEST_FAULTS"))
CONFIG = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "broker.session.timeout.ms": "30000",
}
FROZEN_S = 1.0
REQUESTED_S = 0.05


class Place(NamedTuple):
    """The places of a test: a partition of the broker to be frozen, one of another, a group."""

    topic: str
    name: str
    coordinator: int
    frozen: int
    frozen_partition: int
    live_partition: int
    group: str


def full(test: TestFunction) -> TestFunction:
    """Marks a test of the long form."""
    for mark in (
        pytest.mark.kafka,
        pytest.mark.faults,
        pytest.mark.skipif(not FULL, reason="takes minutes: AIOPRODUCER_TEST_FAULTS=1 runs it"),
        pytest.mark.timeout(300),
        pytest.mark.asyncio(loop_scope="module"),
    ):
        test = mark(test)
    return test


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[2, 1], ids="V{}".format)
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[FaultGround]:
    async with fault_ground(config=CONFIG, features={"transaction.version": request.param}) as it:
        yield it


@pytest.fixture
def level(ground: FaultGround, request: pytest.FixtureRequest) -> int:
    return int(request.node.callspec.params["ground"])


async def find_place(ground: FaultGround) -> Place:
    topic = unique_topic()
    servers = ground.bootstrap_servers
    await create_topic_confluent(servers, topic, partitions=6, replication_factor=1, configs={})
    coordinator = await ground.coordinator(topic)
    leaders = await ground.leaders(topic)
    frozen = next(node for node in leaders.values() if node != coordinator)
    parts = {node: partition for partition, node in leaders.items()}
    async with WireClient(servers, timeout_s=60) as client:
        number = 0
        while await _group_coordinator(client, group := f"{topic}-{number}") == frozen:
            number += 1
    return Place(topic, topic, coordinator, frozen, parts[frozen], parts[coordinator], group)


async def _group_coordinator(client: WireClient, group: str) -> int:
    async def ask() -> int:
        request = FindCoordinatorRequest(key=group, key_type=0)
        answer = cast(FindCoordinatorResponse, await client.ask(None, request, 1, 3))
        raise_for_code(answer.error_code, answer.error_message)
        return answer.node_id

    return await client.retry(ask)


async def sends(producer: Producer, place: Place) -> None:
    await producer.send_and_wait(place.topic, b"aborted", partition=place.live_partition)


async def sends_offsets(producer: Producer, place: Place) -> None:
    await producer.send_offsets_to_transaction({TopicPartition(place.topic, 0): 9}, place.group)


async def write(producer: Producer, place: Place, value: bytes) -> None:
    async with producer.transaction() as tx:
        for partition in (place.live_partition, place.frozen_partition):
            await producer.send(place.topic, value, partition=partition)
        await tx.send_offsets({TopicPartition(place.topic, 0): 1}, place.group)


async def visible(ground: FaultGround, place: Place) -> list[bytes]:
    records = await read_all_confluent(ground.bootstrap_servers, place.topic)
    return sorted(record.value or b"" for record in records)


def transactional(ground: FaultGround, place: Place, *, proxied: bool = False) -> Producer:
    return Producer(
        bootstrap_servers=ground.proxied_bootstrap_servers if proxied else ground.bootstrap_servers,
        transactional_id=place.name,
        request_timeout_ms=2_000 if proxied else 30_000,
        linger_ms=0,
    )


@asynccontextmanager
async def slow_markers(
    ground: FaultGround, producer: Producer, place: Place
) -> AsyncIterator[None]:
    """Commits a transaction, one of whose markers waits until the block is left."""
    await producer.begin_transaction()
    for partition in (place.live_partition, place.frozen_partition):
        await producer.send_and_wait(place.topic, b"second", partition=partition)
    await ground.pause(place.frozen)
    try:
        await producer.commit_transaction()
        yield
    finally:
        await ground.resume(place.frozen)


async def abort(producer: Producer) -> None:
    await producer.abort_transaction()


async def close(producer: Producer) -> None:
    await producer.close()


async def begun(producer: Producer, place: Place, work: Work) -> asyncio.Task[None]:
    await producer.begin_transaction()
    working = asyncio.ensure_future(work(producer, place))
    await asyncio.sleep(REQUESTED_S)
    return working


@full
@pytest.mark.parametrize("work", [sends, sends_offsets])
@pytest.mark.parametrize("end", [abort, close])
async def test_a_transaction_is_aborted_while_the_markers_of_the_one_before_are_written(
    ground: FaultGround, level: int, work: Work, end: Callable[[Producer], Awaitable[None]]
) -> None:
    place = await find_place(ground)
    producer = transactional(ground, place)
    await producer.start()
    try:
        await write(producer, place, b"first")
        async with slow_markers(ground, producer, place):
            working = await begun(producer, place, work)
            ending = asyncio.ensure_future(end(producer))
            await asyncio.wait([ending], timeout=FROZEN_S)
            # V1 has nothing to end: the transaction did not begin.
            assert ending.done() is (level == 1)
        await ending
        with suppress(KafkaError):
            await working
        if end is close:
            producer = transactional(ground, place)
            await producer.start()
        await write(producer, place, b"third")
    finally:
        await producer.close()
    values = [value for each in (b"first", b"second", b"third") for value in (each, each)]
    assert await visible(ground, place) == values


@full
@pytest.mark.parametrize("work", [sends, sends_offsets])
@pytest.mark.parametrize("end", [abort, close])
async def test_an_abort_after_a_lost_answer_leaves_a_producer_that_goes_on(
    ground: FaultGround, work: Work, end: Callable[[Producer], Awaitable[None]]
) -> None:
    place = await find_place(ground)
    producer = transactional(ground, place, proxied=True)
    await producer.start()
    proxies = ground.proxies.values()
    try:
        await write(producer, place, b"first")
        for proxy in proxies:
            proxy.fault = NetworkFault.SWALLOW_ANSWERS
        working = await begun(producer, place, work)
        ending = asyncio.ensure_future(end(producer))
        await asyncio.wait([ending], timeout=FROZEN_S)
        for proxy in proxies:
            proxy.fault = NetworkFault.NONE
        await ending
        with suppress(KafkaError):
            await working
        if end is close:
            producer = transactional(ground, place)
            await producer.start()
        await write(producer, place, b"second")
    finally:
        for proxy in proxies:
            proxy.fault = NetworkFault.NONE
        await producer.close()
    values = [value for each in (b"first", b"second") for value in (each, each)]
    assert await visible(ground, place) == values
