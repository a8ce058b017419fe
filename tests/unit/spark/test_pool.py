"""Producers that outlive tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.spark import embedded_kafka

from aioproducer.blocking import Producer
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.pool import ProducerPool


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with embedded_kafka() as kafka:
        yield kafka.servers


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
