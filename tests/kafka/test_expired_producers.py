"""Brokers that expire an idle producer keep its records in order, and report no loss.

The brokers expire a producer after 5 s. Then the first batch of a partition is refused, because too
few replicas are in sync, and later ones, which a slow network delivers later, are not. Runs with
AIOPRODUCER_TEST_FAULTS=1 (`make faults`) on separate brokers.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from support.clusters import unique_topic
from support.confluent import create_topic_confluent, read_all_confluent
from support.faults import FaultGround, fault_ground
from support.faults.proxy import NetworkFault
from support.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from aioproducer import Producer, TopicPartition
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing import admin
from aioproducer.testing.wire_client import WireClient
from aioproducer.types import Persistence, RecordMetadata

FULL = bool(os.environ.get("AIOPRODUCER_TEST_FAULTS"))
CONFIG = {
    "producer.id.expiration.ms": "5000",
    "producer.id.expiration.check.interval.ms": "500",
}
IDLE_S = 8.0
SETTLED_S = 0.4
"""After that long the leader goes by a changed option."""
A_DAY_MS = 86_400_000
ROUNDS = 3
WARM = 3
RECORDS = 8
EACH_S = 0.05
DELAY_S = 1.0
RELAXED_AFTER_S = 1.3
"""The first request of a burst arrives before, those that were sent meanwhile after 2 s."""
OPTIONS: dict[str, Any] = {
    "batch_max_records": 1,  # several batches, whenever they are sent
    "linger_ms": 0,
    "retry_backoff_ms": 1500,  # later batches have a chance to be written before the first one
    "delivery_timeout_ms": 60_000,
}
TOPIC = 2
"""The kind of a resource with options."""
Outcomes = dict[bytes, RecordMetadata | BaseException]

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.faults,
    pytest.mark.skipif(not FULL, reason="takes minutes: AIOPRODUCER_TEST_FAULTS=1 runs it"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground() -> AsyncIterator[FaultGround]:
    async with fault_ground(config=CONFIG) as ground:
        yield ground


class Case(NamedTuple):
    """The way in which the brokers expire the producer.

    Attributes:
        pause_s: Before the burst.
        age_ms: How old the records say that they are.
        may_fail: Whether a record may fail to keep the order.
    """

    pause_s: float
    age_ms: int
    may_fail: bool


async def require_replicas(ground: FaultGround, topic: str, count: int) -> None:
    """So many replicas have to be in sync for a batch to be written."""
    option = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(count))
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[option])
    async with WireClient(ground.bootstrap_servers, timeout_s=30) as client:
        answer = await client.ask(None, IncrementalAlterConfigsRequest(resources=[resource]), 0, 1)
    assert [each.error_code for each in answer.responses] == [0]


async def wait_for_replicas(ground: FaultGround, topic: str, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            topics = await admin.list_topics(ground.bootstrap_servers)
            parts = [part for each in topics if each.name == topic for part in each.partitions]
            if [len(part.isr_nodes) for part in parts] == [count]:
                return
            await asyncio.sleep(0.2)


async def one_round(
    producer: Producer, ground: FaultGround, topic: str, round_: int, case: Case
) -> Outcomes:
    """Return the outcomes of records: some are written, the first ones of a burst are refused."""

    async def send(name: str) -> tuple[bytes, Delivery]:
        value = f"{round_}/{name}".encode()
        stamp = int(time.time() * 1000) - case.age_ms
        return value, await producer.send(topic, value, partition=0, timestamp_ms=stamp)

    deliveries = dict([await send(f"warm/{number}") for number in range(WARM)])
    await asyncio.gather(*deliveries.values())
    await asyncio.sleep(max(0.0, case.pause_s - SETTLED_S))
    await require_replicas(ground, topic, 3)
    await asyncio.sleep(SETTLED_S)
    retries_before = retries_of(producer)
    let_network(ground, NetworkFault.DELAY)
    relaxing = asyncio.create_task(relax(ground, topic))
    for number in range(RECORDS):
        deliveries |= dict([await send(f"{number:02}")])
        await asyncio.sleep(EACH_S)
    await relaxing
    let_network(ground, NetworkFault.NONE)
    outcomes = await asyncio.gather(*deliveries.values(), return_exceptions=True)
    failures = sum(isinstance(each, BaseException) for each in outcomes)
    assert failures or retries_of(producer) > retries_before, "no batch was refused"
    return dict(zip(deliveries, outcomes, strict=True))


def let_network(ground: FaultGround, fault: NetworkFault) -> None:
    for proxy in ground.proxies.values():
        proxy.fault, proxy.delay_s = fault, DELAY_S


async def relax(ground: FaultGround, topic: str) -> None:
    await asyncio.sleep(RELAXED_AFTER_S)
    await require_replicas(ground, topic, 2)


def retries_of(producer: Producer) -> float:
    return float(producer.metrics()["record_retry_total"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(IDLE_S, 0, may_fail=False), id="while it is idle"),
        pytest.param(Case(SETTLED_S, A_DAY_MS, may_fail=True), id="while it sends"),
    ],
)
async def test_records_are_in_order_or_fail_and_no_loss_is_reported(
    ground: FaultGround, case: Case
) -> None:
    topic, servers = unique_topic(), ground.bootstrap_servers
    await create_topic_confluent(
        servers, topic, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"}
    )
    await wait_for_replicas(ground, topic, 3)
    leader = (await ground.leaders(topic))[0]
    follower = next(node for node in ground.cluster.node_ids if node != leader)
    losses: list[TopicPartition] = []
    outcomes: Outcomes = {}
    await ground.stop(follower)
    try:
        await wait_for_replicas(ground, topic, 2)
        async with Producer(
            bootstrap_servers=ground.proxied_bootstrap_servers,
            on_data_loss=losses.append,
            **OPTIONS,
        ) as producer:
            for round_ in range(ROUNDS):
                outcomes |= await one_round(producer, ground, topic, round_, case)
    finally:
        await ground.start(follower)
        await ground.wait_ready()
    await wait_for_replicas(ground, topic, 3)
    log = [record.value for record in await read_all_confluent(servers, topic)]
    failed = {value: each for value, each in outcomes.items() if isinstance(each, BaseException)}
    assert losses == []
    assert log == [value for value in outcomes if value not in failed]
    for value, outcome in outcomes.items():
        if isinstance(outcome, RecordMetadata):
            assert outcome.offset is not None
            assert log[outcome.offset] == value
    if case.may_fail:
        reported = {getattr(error, "persistence", None) for error in failed.values()}
        assert reported <= {Persistence.NOT_PERSISTED}, failed
    else:
        assert failed == {}
