"""Producers that outlive tasks."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Iterator

import pytest
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.blocking import Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaTimeoutError
from aioproducer.spark.exactly_once.writes import ExactlyOnce, TaskAttempt
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.pool import POOL, Kind, ProducerPool
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka


@pytest.fixture
def servers(kafka: EmbeddedKafka) -> str:
    return kafka.servers


@pytest.fixture
def pool() -> Iterator[ProducerPool]:
    pool = ProducerPool()
    yield pool
    pool.close()


def options(servers: str, **more: str) -> SourceOptions:
    named = {f"kafka.{name}": value for name, value in more.items()}
    return SourceOptions.parse({"kafka.bootstrap.servers": servers, **named}, "write")


def used(pool: ProducerPool, servers: str, prefix: str | None = None, **more: str) -> Producer:
    with pool.producer(options(servers, **more), prefix) as producer:
        return producer


def test_the_next_task_gets_the_same_producer(pool: ProducerPool, servers: str) -> None:
    first = used(pool, servers)
    assert used(pool, servers) is first
    assert used(pool, servers, linger_ms="7") is not first


def test_tasks_beside_each_other_have_one_each(pool: ProducerPool, servers: str) -> None:
    with (
        pool.producer(options(servers)) as first,
        pool.producer(options(servers)) as second,
    ):
        assert first is not second


def test_a_closed_producer_is_not_handed_out_again(pool: ProducerPool, servers: str) -> None:
    first = used(pool, servers)
    first.close()
    second = used(pool, servers)
    assert second is not first
    assert second.health().state == "running"


def test_few_idle_ones_are_kept(pool: ProducerPool, servers: str) -> None:
    found = [used(pool, servers, linger_ms=str(each)) for each in range(6)]
    states = [each.health().state for each in found]
    assert states == ["closed"] * 2 + ["running"] * 4


def test_transactional_ids_begin_alike_and_differ(pool: ProducerPool, servers: str) -> None:
    with (
        pool.producer(options(servers), "orders") as first,
        pool.producer(options(servers), "orders") as second,
    ):
        names = {first.config.transactional_id, second.config.transactional_id}
    assert len(names) == 2
    assert all(name is not None and name.startswith("orders-") for name in names)


def test_a_producer_whose_commit_has_no_outcome_is_not_handed_out_again(
    pool: ProducerPool, kafka: EmbeddedKafka
) -> None:
    found = []
    fault = kafka.faults.swallow(ApiKey.END_TXN, times=None)
    with (
        pytest.raises(KafkaTimeoutError, match="commit_transaction"),
        pool.producer(options(kafka.servers, max_block_ms="500"), "orders") as producer,
    ):
        found.append(producer)
        with producer.transaction():
            producer.send("t", b"1")
    kafka.faults.remove(fault)
    with pool.producer(options(kafka.servers, max_block_ms="500"), "orders") as producer:
        assert producer is not found[0]
        with producer.transaction():
            producer.send("t", b"2")
    assert found[0].health().state == "closed"


@pytest.mark.usefixtures("interrupts")
def test_an_attempt_that_is_interrupted_as_it_begins_closes_its_producer(
    kafka: EmbeddedKafka,
) -> None:
    config = ProducerConfig(bootstrap_servers=kafka.servers)
    kind, plan = Kind(frozenset({("interrupted", "")}), ""), ExactlyOnce(config, "q", "t").plan()

    def attempt() -> TaskAttempt:
        return TaskAttempt(plan, 0, lambda: config, partition=0, owner="me", kind=kind)

    with attempt() as first:
        first.prepare(rows=0)
    fault = kafka.faults.swallow(ApiKey.INIT_PRODUCER_ID, times=None)
    interrupt = threading.Timer(0.5, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        attempt().__enter__()
    kafka.faults.remove(fault)
    interrupt.join()
    assert first.producer.health().state == "closed"
    assert POOL.take(kind) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_with_none(servers: str) -> None:
    from aioproducer.spark.pool import POOL

    with POOL.producer(options(servers)) as producer:
        pass
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with POOL.producer(options(servers)) as own:
            own.send_and_wait("t", b"of the child")
            os.write(writing, b"own" if own is not producer else b"parent's")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 20) == b"own"
    os.close(reading), os.close(writing)
    POOL.close()
