"""Epochs that the driver writes itself, beside those of tasks: embedded brokers and real ones."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest
import pytest_asyncio
from support.clusters import ClusterUnderTest
from support.confluent import read_all_confluent

from aioproducer.spark.direct import DirectEpochs
from aioproducer.spark.errors import SupersededError
from aioproducer.spark.exactly_once.calls import CALLERS
from aioproducer.spark.plan import SinkPlan, TaskPlace
from aioproducer.spark.pool import POOL
from aioproducer.spark.task import commit, write_task
from aioproducer.testing.embedded import EmbeddedCluster

FIELDS = [("value", "string")]


def plan_of(servers: str, topic: str, epoch: int) -> SinkPlan:
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "job.id": topic,
        "job.epoch": str(epoch),
    }
    return SinkPlan.of_batch(options, FIELDS, overwrite=False)


def batch(epoch: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [f"{epoch}-{row}" for row in range(5)]})


def by_driver(driver: DirectEpochs, servers: str, topic: str, epoch: int) -> bool:
    plan = plan_of(servers, topic, epoch)
    return driver.write(plan, plan.epoch, [batch(epoch)]) is not None


def by_tasks(servers: str, topic: str, epoch: int) -> bool:
    plan = pickle.loads(pickle.dumps(plan_of(servers, topic, epoch).begun()))
    report = write_task(plan, TaskPlace(0, 0), plan.epoch, iter([batch(epoch)]))
    commit(plan, epoch, [report])
    return report.rows > 0


async def alternate(servers: str, topic: str) -> None:
    """Both ways, with every epoch asked for twice, and with drivers that shut each other out."""

    def working() -> None:
        one, two = DirectEpochs(), DirectEpochs()
        try:
            assert by_driver(one, servers, topic, 0)
            assert by_driver(one, servers, topic, 1)
            assert not by_driver(two, servers, topic, 1)
            assert by_driver(two, servers, topic, 2)
            with pytest.raises(SupersededError):
                by_driver(one, servers, topic, 2)
            assert not by_tasks(servers, topic, 2)
            assert by_tasks(servers, topic, 3)
            with pytest.raises(SupersededError):
                by_driver(two, servers, topic, 3)
            assert not by_driver(one, servers, topic, 3)
            assert by_driver(one, servers, topic, 4)
        finally:
            one.leave()
            two.leave()
            POOL.close()
            CALLERS.close()

    await asyncio.to_thread(working)
    wanted = [f"{epoch}-{row}" for epoch in range(5) for row in range(5)]
    async with asyncio.timeout(30):
        while True:  # markers are written after a commit's answer
            found = await read_all_confluent(servers, topic)
            values = sorted((record.value or b"").decode() for record in found)
            if len(values) >= len(wanted):
                break
            await asyncio.sleep(0.05)
    assert values == wanted


async def test_both_ways_write_each_epoch_once(cluster: ClusterUnderTest) -> None:
    await alternate(cluster.bootstrap_servers, await cluster.create_topic(3))


@pytest_asyncio.fixture(params=[1, 2])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 3}) as cluster:
        cluster.set_transaction_version(request.param)
        yield cluster


async def test_both_ways_do_so_with_either_version_of_transactions(
    brokers: EmbeddedCluster,
) -> None:
    await alternate(brokers.bootstrap_servers, "t")
