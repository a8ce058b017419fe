"""confluent-kafka's serializing producer here, on an embedded cluster."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.error
import confluent_kafka.serialization
import pytest

from aioproducer.compat import confluent
from aioproducer.compat.confluent import KafkaError, SerializingProducer
from aioproducer.compat.confluent.errors import KeySerializationError
from aioproducer.testing import ThreadedCluster

WAIT_S = 20.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as running:
        yield running


def failing(obj: Any, ctx: Any) -> bytes:
    raise ZeroDivisionError("no bytes")


def test_serializers_get_the_object_and_its_place(cluster: ThreadedCluster) -> None:
    calls: list[Any] = []
    seen: list[Any] = []

    def serialize(obj: Any, ctx: Any) -> bytes:
        calls.append((obj, ctx.topic, ctx.field, ctx.headers))
        assert isinstance(ctx, confluent_kafka.serialization.SerializationContext)
        return repr(obj).encode()

    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "key.serializer": serialize,
        "value.serializer": serialize,
    }
    with SerializingProducer(options) as producer:
        headers = {"h": b"x"}
        producer.produce("t", 1, [2], headers=headers, on_delivery=lambda e, m: seen.append((e, m)))
        assert producer.flush(WAIT_S) == 0
    ((error, message),) = seen
    assert error is None
    assert (message.key(), message.value(), message.headers()) == (b"1", b"[2]", [("h", b"x")])
    field = confluent_kafka.serialization.MessageField
    assert calls == [(1, "t", field.KEY, headers), ([2], "t", field.VALUE, headers)]


def test_serializers_of_confluent_kafka_work(cluster: ThreadedCluster) -> None:
    theirs = confluent_kafka.serialization
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "key.serializer": theirs.StringSerializer("utf_8"),
        "value.serializer": theirs.IntegerSerializer(),
    }
    seen: list[Any] = []
    with SerializingProducer(options) as producer:
        producer.produce(topic="t", key="k", value=7, on_delivery=lambda e, m: seen.append(m))
        producer.flush(WAIT_S)
    assert [(m.key(), m.value()) for m in seen] == [(b"k", b"\0\0\0\7")]


@pytest.mark.parametrize(
    ("part", "name", "code"),
    [
        ("key", "KeySerializationError", KafkaError._KEY_SERIALIZATION),
        ("value", "ValueSerializationError", KafkaError._VALUE_SERIALIZATION),
    ],
)
def test_serializer_that_fails_is_reported_as_in_confluent_kafka(
    part: str, name: str, code: int
) -> None:
    producer = SerializingProducer(NOWHERE | {f"{part}.serializer": failing})
    with pytest.raises(getattr(confluent_kafka.error, name)) as raised:
        producer.produce("t", "k", "v")
    error: Any = raised.value
    assert isinstance(error, confluent_kafka.serialization.SerializationError)
    assert isinstance(error, confluent.KafkaException)
    assert (error.code, error.args[0].str()) == (code, "no bytes")
    assert isinstance(error.exception, ZeroDivisionError)
    assert len(producer) == 0
    producer.close()


def test_serialization_error_pickles_with_its_error() -> None:
    copy = pickle.loads(pickle.dumps(KeySerializationError(ValueError("no"))))
    assert (copy.code, copy.args[0].str()) == (KafkaError._KEY_SERIALIZATION, "no")


def test_closed_producer_calls_no_serializer() -> None:
    producer = SerializingProducer(NOWHERE | {"value.serializer": failing})
    producer.close()
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        producer.produce("t", "k", "v")


def test_serializer_is_callable() -> None:
    with pytest.raises(TypeError, match="a serializer is callable"):
        SerializingProducer(NOWHERE | {"key.serializer": 5})


def test_nothing_of_confluent_kafka_is_needed() -> None:
    program = """
import sys
from aioproducer.compat.confluent import KafkaException, Producer, SerializingProducer
from aioproducer.compat.confluent.errors import KeySerializationError

seen = []
conf = {"bootstrap.servers": "127.0.0.1:1", "key.serializer": lambda obj, ctx: obj[ctx.field]}
producer = SerializingProducer(conf)
producer.produce("t", {"key": "k"}, "v", on_delivery=lambda e, m: seen.append((e.name(), m.key())))
try:
    producer.produce("t", {}, "v")
except KeySerializationError as error:
    seen.append(error.name)
try:
    producer.begin_transaction()
except KafkaException as error:
    seen.append(error.args[0].name())
producer.purge()
producer.flush()
producer.close()
print(seen, "confluent_kafka" in sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    expected = ["_KEY_SERIALIZATION", "_NOT_CONFIGURED", ("_PURGE_QUEUE", b"k")]
    assert run.stdout == f"{expected} False\n"
