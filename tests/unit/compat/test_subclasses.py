"""Subclasses of the drop-ins, which use names that the other clients leave free."""

from __future__ import annotations

import threading
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.confluent import AIOProducer, Producer, SerializingProducer
from aioproducer.compat.kafka import KafkaProducer
from aioproducer.testing import ThreadedCluster

WAIT_S = 20.0
KAFKA_PYTHON = {"_closed", "_metadata", "_sender"}
"""The private names of its producer that the drop-in has as well."""


def private_names(producer: Any) -> set[str]:
    names = {*dir(type(producer)), *vars(producer)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def assert_names_are_known_or_have_a_prefix(producer: Any, known: set[str]) -> None:
    added = private_names(producer) - known - {"_is_protocol"}  # of `Generic`
    assert {name for name in added if not name.startswith("_own_")} == set()


def test_private_names_of_blocking_drop_ins_have_a_prefix() -> None:
    servers = {"bootstrap.servers": "127.0.0.1:1"}
    known = private_names(confluent_kafka.SerializingProducer(servers))
    for client in (Producer, SerializingProducer):
        with client(servers) as producer:
            assert_names_are_known_or_have_a_prefix(producer, known)
    with KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(4, 0)) as blocking:
        assert_names_are_known_or_have_a_prefix(blocking, KAFKA_PYTHON)


async def test_private_names_of_asyncio_drop_ins_are_those_of_the_client_or_have_a_prefix() -> None:
    theirs, ours = aiokafka.AIOKafkaProducer(), AIOKafkaProducer()
    assert_names_are_known_or_have_a_prefix(ours, private_names(theirs))
    theirs._closed = ours._closed = True  # they were never started
    async with AIOProducer({"bootstrap.servers": "127.0.0.1:1"}) as producer:
        assert_names_are_known_or_have_a_prefix(producer, set())


@pytest.mark.parametrize("client", [Producer, confluent_kafka.Producer])
def test_subclass_may_have_a_thread_that_polls_and_a_callback(client: Any) -> None:
    class Polled(client):  # type: ignore[misc]
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            self.delivered: list[Any] = []
            self._closed = threading.Event()
            self._thread = threading.Thread(target=self._serve)
            self._thread.start()

        def _serve(self) -> None:
            while not self._closed.is_set():
                self.poll(0.01)

        def _on_delivery(self, error: Any, message: Any) -> None:
            self.delivered.append(message.value())

        def send(self, value: bytes) -> None:
            self.produce("t", value, on_delivery=self._on_delivery)

        def end(self) -> None:
            self.flush(WAIT_S)
            self._closed.set()
            self._thread.join()

    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = Polled({"bootstrap.servers": cluster.bootstrap_servers})
        producer.send(b"v")
        producer.end()
        assert producer.delivered == [b"v"]
        producer.close()
