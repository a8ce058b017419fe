"""Timeouts and partitions that callers give: what is refused, and what a bound of 0 means."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
from support.stage import Stage, play

from aioproducer import ProducerConfig, TopicPartition
from aioproducer._util.arguments import index_of, seconds_of, timeout_of
from aioproducer.blocking import Producer as BlockingProducer
from aioproducer.client.source_position import SourcePosition
from aioproducer.errors import (
    BootstrapError,
    BufferExhaustedError,
    ConfigError,
    InvalidPartitionError,
    KafkaTimeoutError,
    MetadataTimeoutError,
)
from aioproducer.serializers import SchemaRegistry
from aioproducer.starlette import ProducerLifespan
from aioproducer.testing import (
    MockProducer,
    ThreadedCluster,
    create_topic,
    delete_topic,
    end_offsets,
    list_topics,
    read_topic,
    run_virtual,
    stream_topic,
)
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.maven import fetch_jar
from aioproducer.transaction_admin import TransactionAdmin

BAD = [-1, -0.001, -inf, nan]
SERVERS = "broker-1.sim:9092"


@pytest.mark.parametrize("bad", BAD)
def test_a_timeout_that_is_negative_or_no_number_names_none(bad: float) -> None:
    with pytest.raises(ValueError, match=r"timeout must be .*from 0, not .*pass None for no bound"):
        timeout_of(bad)
    with pytest.raises(ValueError, match="timeout_s must be a finite number of seconds from 0"):
        seconds_of(bad, "timeout_s")


@pytest.mark.parametrize("bad", ["1", True, [], object()])
def test_a_timeout_is_a_number(bad: Any) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        timeout_of(bad)
    with pytest.raises(TypeError, match="timeout must be a number of seconds"):
        seconds_of(bad, "timeout")


def test_infinity_is_no_bound_where_that_is_allowed() -> None:
    assert timeout_of(inf) is None
    assert timeout_of(None) is None
    assert [timeout_of(0), timeout_of(1.5)] == [0, 1.5]
    with pytest.raises(ValueError, match="finite"):
        seconds_of(inf, "timeout_s")


@pytest.mark.parametrize("bad", BAD)
def test_calls_of_a_producer_refuse_such_a_timeout_and_change_nothing(bad: float) -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        stage.broker.freeze()
        delivery = await producer.send("t", b"v") if producer.engine.metadata.topic("t") else None
        for call in (producer.close, producer.flush, producer.client_instance_id):
            with pytest.raises(ValueError, match="from 0"):
                await call(bad)
        stage.broker.thaw()
        await producer.send_and_wait("t", b"v")
        assert delivery is None or (await delivery).offset == 0
        assert await producer.flush(inf) == 0
        await producer.close(inf)
        with pytest.raises(ValueError, match="from 0"):  # also where nothing is left to do
            await producer.close(bad)

    play(act, enable_metrics_push=True)


@pytest.mark.parametrize("bad", [-1, nan])
def test_calls_of_the_blocking_producer_refuse_such_a_timeout(bad: float) -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = BlockingProducer(bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(ValueError, match="pass None"):
            producer.close(bad)
        with pytest.raises(ValueError, match="exit_timeout"):
            producer.exit_timeout = bad
        producer.start()
        handle = producer.send("t", b"v")
        calls: list[Callable[[float], object]] = [
            producer.close,
            producer.flush,
            producer.client_instance_id,
            handle.result,
            handle.exception,
        ]
        for call in calls:
            with pytest.raises(ValueError, match="from 0"):
                call(bad)
        assert handle.result(inf).offset == 0
        assert producer.flush(inf) == 0
        producer.close()


async def test_calls_of_a_mock_refuse_such_a_timeout() -> None:
    async with MockProducer() as producer:
        for call in (producer.close, producer.flush, producer.client_instance_id):
            with pytest.raises(ValueError, match="from 0"):
                await call(-1)


@pytest.mark.parametrize("bad", [-1.0, nan, inf])
async def test_tools_for_tests_refuse_such_a_timeout(bad: float) -> None:
    calls = [
        lambda: create_topic(SERVERS, "t", timeout_s=bad),
        lambda: delete_topic(SERVERS, "t", timeout_s=bad),
        lambda: list_topics(SERVERS, timeout_s=bad),
        lambda: read_topic(SERVERS, "t", timeout_s=bad),
        lambda: end_offsets(SERVERS, "t", timeout_s=bad),
        lambda: anext(stream_topic(SERVERS, "t", timeout_s=bad)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="timeout_s must be a finite number of seconds"):
            await call()
    with pytest.raises(ValueError, match="ready_timeout_s"):
        KafkaCluster(ready_timeout_s=bad)
    with pytest.raises(ValueError, match="timeout_s"):
        fetch_jar("group:artifact:1", timeout_s=bad)


async def nothing(kafka: object) -> None:
    pass


@pytest.mark.parametrize("bad", [-1.0, nan, inf])
def test_run_virtual_refuses_such_a_bound(bad: float) -> None:
    with pytest.raises(ValueError, match="longest_s"):
        run_virtual(nothing, longest_s=bad)


def test_a_lifespan_refuses_such_a_timeout() -> None:
    with pytest.raises(ValueError, match="close_timeout_s"):
        ProducerLifespan(bootstrap_servers="a:1", close_timeout_s=-1)


@pytest.mark.parametrize("bad", [-1, nan, inf])
def test_a_schema_registry_refuses_such_a_timeout(bad: Any) -> None:
    with pytest.raises(ConfigError, match="request_timeout_ms"):
        SchemaRegistry("http://r", request_timeout_ms=bad)


# -- partitions ------------------------------------------------------------------------------------


def test_a_bool_is_no_index() -> None:
    assert index_of(3) == 3
    with pytest.raises(TypeError, match="a bool is no number"):
        index_of(True)


def test_a_bool_is_no_partition_of_an_offset() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        transaction = producer.transaction()
        with pytest.raises(TypeError, match="a bool is no number"):
            async with transaction:
                await transaction.send_offsets({TopicPartition("t", True): 1}, "g")
        with pytest.raises(TypeError, match="a bool is no number"):
            async with producer.transaction() as other:
                await SourcePosition("g", "t", True).write(other, 1)
        await producer.close()

    play(act, transactional_id="x")


async def test_a_bool_is_no_partition_of_a_group() -> None:
    async with TransactionAdmin(ProducerConfig(bootstrap_servers="a:1")) as admin:
        with pytest.raises(TypeError, match="a bool is no number"):
            await admin.committed_offsets("g", [TopicPartition("t", True)])


@pytest.mark.parametrize("bad", [True, False, 1.0, "0", -1])
async def test_a_mock_takes_the_partitions_a_producer_takes(bad: Any) -> None:
    async with MockProducer(topics={"t": 2}) as producer:
        with pytest.raises(InvalidPartitionError):
            await producer.send("t", b"v", partition=bad)
        result = await producer.send_many("t", [b"v"], partition=bad)
        assert len(result.failed) == 1


@pytest.mark.parametrize("bad", [True, False])
def test_the_blocking_producer_refuses_a_bool_as_partition_at_once(bad: bool) -> None:
    with (
        ThreadedCluster(brokers=1, topics={"t": 2}) as cluster,
        BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        producer.send_and_wait("t", b"v", partition=1)
        with pytest.raises(InvalidPartitionError):
            producer.send("t", b"v", partition=bad)
        assert len(producer.send_many("t", [b"v"], partition=bad).failed) == 1


# -- max_block_ms=0 --------------------------------------------------------------------------------


def test_with_max_block_ms_0_no_send_waits_and_other_calls_do() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        began = stage.loop.time()
        with pytest.raises(MetadataTimeoutError):
            await producer.send("t", b"v")
        assert stage.loop.time() == began
        await producer.warm_up(["t"])
        assert [each.partition for each in await producer.partitions_for("u")] == [0]
        await producer.send_and_wait("t", b"v")
        stage.broker.freeze()
        began = stage.loop.time()
        with pytest.raises(BufferExhaustedError, match="max_block_ms=0"):
            for _ in range(100):
                await producer.send("t", b"v" * 50)
        assert stage.loop.time() == began
        stage.broker.thaw()
        await producer.flush()
        result = await producer.send_many("t", [b"v" * 50] * 3)
        assert result.delivered == 3
        await producer.close()

    play(act, max_block_ms=0)


def test_with_max_block_ms_0_transactions_work() -> None:
    async def act(stage: Stage) -> None:
        producer = stage.producer
        await producer.start()
        await producer.warm_up(["t"])
        async with producer.transaction() as transaction:
            await producer.send("t", b"a")
            await transaction.send_offsets({TopicPartition("t", 0): 1}, "g")
        await producer.begin_transaction()
        await producer.send("t", b"b")
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"c")
        stage.broker.freeze()
        began = stage.loop.time()
        with pytest.raises(KafkaTimeoutError, match="within request_timeout_ms=30000"):
            await producer.commit_transaction()
        assert stage.loop.time() - began == pytest.approx(30)
        stage.broker.thaw()
        await producer.commit_transaction()
        await producer.close()

    play(act, transactional_id="x", max_block_ms=0, delivery_timeout_ms=120_000)


def test_with_max_block_ms_0_a_start_without_brokers_ends() -> None:
    async def act(stage: Stage) -> None:
        stage.lose()
        began = stage.loop.time()
        with pytest.raises(BootstrapError):
            await stage.producer.start()
        assert stage.loop.time() - began == pytest.approx(30)

    play(act, max_block_ms=0)
