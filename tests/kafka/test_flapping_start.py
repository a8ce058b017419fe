"""A producer that starts while all real brokers die and come back delivers what it accepted.

One round runs by default, and 50 with AIOPRODUCER_TEST_FAULTS=1 (`make faults`), or as many as
AIOPRODUCER_TEST_FLAPS says.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

import pytest
from support.clusters import ClusterUnderTest
from support.confluent import read_all_confluent

from aioproducer import Producer
from aioproducer.errors import BootstrapError
from aioproducer.testing.kafka import KafkaBackend

FLAPS = int(
    os.environ.get("AIOPRODUCER_TEST_FLAPS")
    or (50 if os.environ.get("AIOPRODUCER_TEST_FAULTS") else 0)
)
RECORDS = 30
SLOWEST_RECOVERY_S = 30.0
"""Beyond the moment in which every broker answers: elections and coordinators' loading included."""


async def restart_everything(cluster: KafkaBackend) -> None:
    """Every broker is killed, and started again."""
    for node_id in cluster.node_ids:
        cluster.kill(node_id)
    await asyncio.gather(*(asyncio.to_thread(cluster.start, node) for node in cluster.node_ids))
    await asyncio.to_thread(cluster.wait_ready)


async def started(bootstrap_servers: str) -> Producer:
    while True:
        producer = Producer(bootstrap_servers=bootstrap_servers)
        try:
            await producer.start()
        except BootstrapError:
            continue
        return producer


async def one_flap(kafka: ClusterUnderTest, topic: str, round_: int, rng: random.Random) -> float:
    """Seconds from the moment all brokers are back to the last acknowledgement."""
    starting = asyncio.create_task(started(kafka.bootstrap_servers))
    await asyncio.sleep(rng.uniform(0.0, 0.6))
    flapping = asyncio.create_task(restart_everything(kafka.handle))
    producer = await starting
    try:
        deliveries = []
        for number in range(RECORDS):
            deliveries.append(await producer.send(topic, b"%d/%d" % (round_, number)))
            await asyncio.sleep(rng.uniform(0.0, 0.1))
        await flapping
        back_at = time.monotonic()
        await asyncio.gather(*deliveries)
        return time.monotonic() - back_at
    finally:
        await producer.close()


async def flap(kafka: ClusterUnderTest, rounds: int) -> None:
    if not kafka.handle.disturbable:
        pytest.skip("this cluster is not ours to disturb")
    topic, rng = await kafka.create_topic(3), random.Random(rounds)
    recoveries = [await one_flap(kafka, topic, each, rng) for each in range(rounds)]
    assert max(recoveries) < SLOWEST_RECOVERY_S, recoveries
    records: list[Any] = await read_all_confluent(kafka.bootstrap_servers, topic)
    wanted = [b"%d/%d" % (each, number) for each in range(rounds) for number in range(RECORDS)]
    assert sorted(record.value for record in records) == sorted(wanted)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(240)
async def test_records_sent_while_all_brokers_restart_are_delivered(
    kafka: ClusterUnderTest,
) -> None:
    await flap(kafka, 1)


@pytest.mark.kafka
@pytest.mark.faults
@pytest.mark.skipif(not FLAPS, reason="takes half an hour: AIOPRODUCER_TEST_FAULTS=1 runs it")
@pytest.mark.timeout(60 * max(FLAPS, 1))
async def test_every_start_among_flapping_brokers_delivers_everything(
    kafka: ClusterUnderTest,
) -> None:
    await flap(kafka, FLAPS)
