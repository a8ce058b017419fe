"""confluent-kafka's serializing producer here, on an embedded cluster."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.error
import confluent_kafka.serialization
import pytest

from aioproducer.compat import confluent
from aioproducer.compat.confluent import KafkaError, SerializingProducer
from aioproducer.compat.confluent._errors import KeySerializationError
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


@pytest.mark.parametrize("client", [SerializingProducer, confluent_kafka.SerializingProducer])
def test_serializer_may_be_replaced_between_records(cluster: ThreadedCluster, client: Any) -> None:
    seen: list[Any] = []
    producer = client({"bootstrap.servers": cluster.bootstrap_servers, "value.serializer": failing})
    for number in (b"1", b"2"):
        producer._value_serializer = lambda value, ctx, number=number: value + number
        producer.produce("t", value=b"v", on_delivery=lambda e, m: seen.append(m.value()))
    assert producer.flush(WAIT_S) == 0
    assert seen == [b"v1", b"v2"]


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


@pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])
def test_batch_keeps_keys_and_values_and_calls_no_serializer(
    cluster: ThreadedCluster, client: Any
) -> None:
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "key.serializer": failing,
        "value.serializer": failing,
    }
    seen: list[Any] = []
    producer = client.SerializingProducer(options)
    messages = [{"key": b"k", "value": b"v"}]
    assert producer.produce_batch("t", messages, on_delivery=lambda e, m: seen.append(m)) == 1
    assert producer.flush(WAIT_S) == 0
    assert [(m.key(), m.value()) for m in seen] == [(b"k", b"v")]


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


# -- builders of serializers, as of confluent-kafka 2.16 -------------------------------------------

CLIENTS = pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])


class Built:
    """A serializer that a builder has made."""

    def __init__(self, text: str, *, fails: bool = False) -> None:
        self.text = text
        self.fails = fails
        self.closed = 0
        self.resolver: Any = None

    def __call__(self, obj: Any, ctx: Any) -> str:
        return f"{self.text} {obj}"

    def set_cluster_id_resolver(self, resolver: Any) -> None:
        self.resolver = resolver

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise ZeroDivisionError(self.text)


class Builder:
    """Builds a serializer from properties that begin with a prefix."""

    def __init__(self, prefix: str, made: Built) -> None:
        self.prefix, self.made = prefix, made
        self.is_key: bool | None = None
        self.seen: dict[str, Any] = {}

    def build(self, conf: dict[str, Any], is_key: bool) -> Any:
        self.seen, self.is_key = dict(conf), is_key
        return self.made, {k: v for k, v in conf.items() if not k.startswith(self.prefix)}


@CLIENTS
def test_builders_make_serializers_from_the_configuration_and_close_ends_them(
    cluster: ThreadedCluster, client: Any
) -> None:
    keys, values, seen = Builder("one.", Built("k")), Builder("two.", Built("v")), []
    plain = {"bootstrap.servers": cluster.bootstrap_servers, "one.x": 1, "two.x": 2}
    builders = {"key.serializer.builder": keys, "value.serializer.builder": values}
    with client.SerializingProducer(plain | builders) as producer:
        producer.produce("t", key=1, value=2, on_delivery=lambda e, m: seen.append(m))
        assert producer.flush(WAIT_S) == 0
        assert values.made.resolver() == producer.cluster_id(WAIT_S)
        assert (keys.made.closed, values.made.closed) == (0, 0)
    assert (keys.made.closed, values.made.closed) == (1, 1)
    assert [(m.key(), m.value()) for m in seen] == [(b"k 1", b"v 2")]
    assert (keys.is_key, values.is_key) == (True, False)
    assert keys.seen == values.seen == plain
    producer.close()
    assert values.made.closed == 1


@CLIENTS
def test_serializers_of_builders_are_closed_where_the_configuration_is_wrong(client: Any) -> None:
    builder = Builder("one.", Built("k"))
    with pytest.raises(confluent_kafka.KafkaException):
        client.SerializingProducer(NOWHERE | {"key.serializer.builder": builder, "nonsense": 1})
    assert builder.made.closed == 1


@CLIENTS
def test_every_serializer_of_a_builder_is_closed_although_one_fails(client: Any) -> None:
    keys, values = Built("k", fails=True), Built("v", fails=True)
    options = {
        "key.serializer.builder": Builder("one.", keys),
        "value.serializer.builder": Builder("two.", values),
    }
    producer = client.SerializingProducer(NOWHERE | options)
    with pytest.raises(ZeroDivisionError, match="k"):
        producer.close()
    assert (keys.closed, values.closed) == (1, 1)


@CLIENTS
@pytest.mark.parametrize("made", [None, (Built("k"),), (Built("k"), None)], ids=["a", "b", "c"])
def test_builder_that_returns_something_else_is_refused(client: Any, made: Any) -> None:
    builder = Builder("one.", Built("k"))
    builder.build = lambda conf, is_key: made  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"key.serializer.builder (must return|returned)"):
        client.SerializingProducer(NOWHERE | {"key.serializer.builder": builder})


@CLIENTS
def test_serializer_beside_its_builder_is_refused(client: Any) -> None:
    options = {"value.serializer": Built("v"), "value.serializer.builder": Builder("", Built("v"))}
    with pytest.raises(ValueError, match="Cannot configure both"):
        client.SerializingProducer(NOWHERE | options)


@CLIENTS
def test_serializing_producer_is_generic_and_takes_its_configuration_by_name(client: Any) -> None:
    client.SerializingProducer[str, bytes](conf=NOWHERE).close()


def test_serializer_does_not_keep_its_producer_alive() -> None:
    serializer = Built("v")
    producer = SerializingProducer(NOWHERE | {"value.serializer": serializer})
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
    with pytest.raises(RuntimeError, match="Producer has been closed"):
        serializer.resolver()


def test_nothing_of_confluent_kafka_is_needed() -> None:
    program = """
import sys
sys.modules["confluent_kafka"] = None  # not installed
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
print(seen)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    expected = ["_KEY_SERIALIZATION", "_NOT_CONFIGURED", ("_PURGE_QUEUE", b"k")]
    assert run.stdout == f"{expected}\n"
