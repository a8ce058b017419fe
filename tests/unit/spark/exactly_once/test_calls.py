"""Calls of drivers and the connections they leave."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, IllegalStateError
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.exactly_once.calls import CallerPool
from aioproducer.spark.exactly_once.ledger import Ledger
from aioproducer.spark.exactly_once.writes import ExactlyOnce
from aioproducer.spark.pool import Kind

KIND = Kind(frozenset())


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka


@pytest.fixture
def pool() -> Iterator[CallerPool]:
    pool = CallerPool()
    yield pool
    pool.close()


def config(kafka: EmbeddedKafka) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers=kafka.servers)


async def itself(client: CoordinatorClient) -> CoordinatorClient:
    return client


def test_the_next_call_of_a_kind_has_the_same_client(
    pool: CallerPool, kafka: EmbeddedKafka
) -> None:
    first = pool.call(KIND, config(kafka), itself)
    assert pool.call(KIND, config(kafka), itself) is first
    assert pool.call(Kind(frozenset({("linger.ms", "7")})), config(kafka), itself) is not first
    assert pool.call(None, config(kafka), itself) is not first


def test_the_client_of_a_call_that_has_failed_is_not_used_again(
    pool: CallerPool, kafka: EmbeddedKafka
) -> None:
    async def failing(_: CoordinatorClient) -> None:
        raise IllegalStateError("something is wrong")

    first = pool.call(KIND, config(kafka), itself)
    with pytest.raises(IllegalStateError, match="something is wrong"):
        pool.call(KIND, config(kafka), failing)
    assert pool.call(KIND, config(kafka), itself) is not first


def test_a_call_whose_client_cannot_be_made_leaves_no_thread(pool: CallerPool) -> None:
    wrong = ProducerConfig(
        bootstrap_servers="localhost:1",
        security_protocol="SSL",
        ssl_truststore_location="/nowhere.pem",
    )
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="cannot be read"):
        pool.call(KIND, wrong, itself)
    assert set(threading.enumerate()) <= before


def test_a_ledger_over_a_kept_client_finds_coordinators_anew_and_leaves_it_open(
    pool: CallerPool, kafka: EmbeddedKafka
) -> None:
    topic = kafka.topic()

    async def asking(client: CoordinatorClient) -> set[str]:
        async with Ledger(config(kafka), "kept", topic, client) as ledger:
            before = dict(client._coordinators)
            assert await ledger.last_decision() is None
        assert before == {}
        return {key.name for key in client._coordinators}

    assert pool.call(KIND, config(kafka), asking) == {"kept"}
    assert pool.call(KIND, config(kafka), asking) == {"kept"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_calls_over_new_connections(kafka: EmbeddedKafka) -> None:
    from aioproducer.spark.exactly_once.calls import CALLERS

    driver = ExactlyOnce(config(kafka), "forked", kafka.topic(), kind=KIND)
    before = driver.plan().driver.epoch
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"%d" % (driver.plan().driver.epoch - before))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 20) == b"1"
    os.close(reading), os.close(writing)
    CALLERS.close()
