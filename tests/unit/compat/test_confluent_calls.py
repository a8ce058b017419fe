"""Calls of confluent-kafka's producer that both clients make, or refuse in the same way."""

from __future__ import annotations

import copy
import gc
import pickle
import time
import types
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from support.hanging import Hanging
from support.signals import SignalAt, interrupt

from aioproducer.compat import confluent
from aioproducer.compat.confluent import KafkaError, Message, Producer
from aioproducer.compat.confluent._reports import Group, Reports
from aioproducer.compat.confluent._settings import settings_of
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.testing import ThreadedCluster, TopicSpec
from aioproducer.testing.broker.settings import ClusterSettings
from aioproducer.testing.security import ListenerSecurity
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey

WAIT_S = 20.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
CLIENTS = pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    topics = {"t": 2, "one": 1, "many": 7, "small": TopicSpec(1, 1, {"max.message.bytes": "200"})}
    with ThreadedCluster(brokers=1, topics=topics) as running:
        yield running


def code_of(raised: pytest.ExceptionInfo[Any]) -> str:
    return str(raised.value.args[0].name())


# -- fatal errors ----------------------------------------------------------------------------------


def fenced(client: Any, name: str, servers: str) -> Any:
    """Return a producer that a newer one has fenced, with a record in its queue."""
    options = {"bootstrap.servers": servers, "transactional.id": name, "log_level": 0}
    old, new = client.Producer(options), client.Producer(options)
    old.init_transactions(WAIT_S)
    old.begin_transaction()
    old.produce("t", "v")
    old.poll(0.1)
    new.init_transactions(WAIT_S)
    old.produce("t", "v")
    return old


@CLIENTS
def test_poll_raises_a_fatal_error_once(client: Any, cluster: ThreadedCluster) -> None:
    old = fenced(client, f"polls {client.__name__}", cluster.bootstrap_servers)
    raised, ends = [], time.monotonic() + WAIT_S
    while not raised and time.monotonic() < ends:
        try:
            old.poll(0.1)
        except confluent_kafka.KafkaException as error:
            raised.append(error.args[0])
    assert [(error.name(), error.fatal()) for error in raised] == [("_FENCED", True)]
    for _ in range(3):
        old.poll(0.01)


def test_flush_raises_a_fatal_error_after_the_callbacks(cluster: ThreadedCluster) -> None:
    old = fenced(confluent, "flushes", cluster.bootstrap_servers)
    seen = []
    old.produce("t", "v", on_delivery=lambda error, _: seen.append(error.fatal()))
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        old.flush(WAIT_S)
    assert (code_of(raised), seen, old.flush(WAIT_S)) == ("_FENCED", [True], 0)


# -- transactions out of order ---------------------------------------------------------------------

LATER = {
    "begin_transaction": (),
    "commit_transaction": (1,),
    "abort_transaction": (1,),
}


@CLIENTS
@pytest.mark.parametrize("call", LATER)
def test_call_before_init_transactions_is_a_wrong_state(client: Any, call: str) -> None:
    producer = client.Producer(NOWHERE | {"transactional.id": "early"})
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        getattr(producer, call)(*LATER[call])
    assert code_of(raised) == "_STATE"
    assert raised.value.args[0].str() == "Operation not valid in state Init"


@CLIENTS
@pytest.mark.parametrize("call", LATER)
def test_call_after_init_transactions_has_timed_out_is_a_conflict(client: Any, call: str) -> None:
    producer = client.Producer(NOWHERE | {"transactional.id": "early"})
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.init_transactions(0.2)
    assert code_of(raised) == "_TIMED_OUT"
    began = time.monotonic()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        getattr(producer, call)(*LATER[call])
    assert time.monotonic() - began < 1
    assert code_of(raised) == "_CONFLICT"
    assert raised.value.args[0].retriable()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.produce("t", b"v")
    assert code_of(raised) == "_STATE"
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.init_transactions(0.2)
    assert code_of(raised) == "_TIMED_OUT"


async def test_asyncio_calls_out_of_order_are_refused_as_well() -> None:
    from aioproducer.compat.confluent.aio import AIOProducer

    async with AIOProducer(NOWHERE | {"transactional.id": "early"}) as producer:
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await producer.begin_transaction()
        assert code_of(raised) == "_STATE"
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await producer.init_transactions(0.1)
        assert code_of(raised) == "_TIMED_OUT"
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            await producer.begin_transaction()
        assert code_of(raised) == "_CONFLICT"


# -- a producer that was not made ------------------------------------------------------------------

CALLS: dict[str, tuple[Any, ...]] = {
    "produce": ("t",),
    "poll": (0,),
    "flush": (0,),
    "purge": (),
    "list_topics": (),
    "cluster_id": (),
    "set_sasl_credentials": ("user", "password"),
    "init_transactions": (),
    "begin_transaction": (),
    "commit_transaction": (),
    "abort_transaction": (),
    "send_offsets_to_transaction": ([], None),
}


@CLIENTS
@pytest.mark.parametrize("call", CALLS)
def test_subclass_without_the_constructor_and_closed_producer_raise_runtime_error(
    client: Any, call: str
) -> None:
    class Forgetful(client.Producer):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

    closed = client.Producer(NOWHERE)
    closed.close()
    for producer in (Forgetful(), closed):
        with pytest.raises(RuntimeError, match="has been closed"):
            getattr(producer, call)(*CALLS[call])
        assert len(producer) == 0
        assert producer
        assert producer.close()
        with producer:
            pass


@CLIENTS
def test_constructor_runs_once(client: Any) -> None:
    producer = client.Producer(NOWHERE)
    with pytest.raises(RuntimeError, match="Producer already"):
        producer.__init__(NOWHERE)


# -- wrong arguments -------------------------------------------------------------------------------


@CLIENTS
@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        ("poll", ("1",), TypeError("must be real number, not str")),
        ("poll", (None,), TypeError("must be real number, not NoneType")),
        ("flush", (None,), TypeError("must be real number, not NoneType")),
        ("list_topics", (1,), TypeError("argument 1 must be str or None, not int")),
        ("set_sasl_credentials", ("u", None), TypeError("argument 2 must be str, not None")),
        ("set_sasl_credentials", (1, "p"), TypeError("argument 1 must be str, not int")),
        (
            "produce",
            ("t", b"v", None, 2**31),
            OverflowError("signed integer is greater than maximum"),
        ),
        ("produce", ("t", b"v", None, 0, None, None, 2**63), OverflowError("int too big to conv")),
    ],
    ids=str,
)
def test_wrong_argument_is_the_error_that_confluent_kafka_raises(
    client: Any, call: str, arguments: tuple[Any, ...], error: Exception
) -> None:
    producer = client.Producer(NOWHERE)
    with pytest.raises(type(error), match=str(error)):
        getattr(producer, call)(*arguments)


@CLIENTS
def test_throttle_callback_is_callable(client: Any) -> None:
    with pytest.raises(ValueError, match="throttle_cb property as a callable"):
        client.Producer(NOWHERE | {"throttle_cb": 5})


def test_throttle_callback_is_taken_with_a_warning_that_says_what_to_do_instead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Producer(NOWHERE | {"throttle_cb": print}).close()
    assert "produce-throttle-time-avg" in caplog.text


# -- the cluster -----------------------------------------------------------------------------------


def parts_of(described: Any) -> Any:
    """A description without the objects, and without what the broker chooses."""
    if isinstance(described, dict):
        return {name: parts_of(each) for name, each in described.items()}
    if hasattr(described, "__dict__") and not isinstance(described, KafkaError):
        return {name: parts_of(each) for name, each in vars(described).items()}
    return described


@pytest.mark.parametrize("arguments", [(), ("t",), ("t", WAIT_S), ("a/b",)], ids=str)
def test_list_topics_describes_the_cluster_as_confluent_kafka_does(
    cluster: ThreadedCluster, arguments: tuple[Any, ...]
) -> None:
    described = []
    for client in (confluent_kafka, confluent):
        producer = client.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        found = producer.list_topics(*(arguments or (None, WAIT_S)))
        assert isinstance(found, confluent_kafka.admin.ClusterMetadata)
        described.append(parts_of(found))
        for origin in ("orig_broker_id", "orig_broker_name"):  # by chance a bootstrap server
            described[-1].pop(origin)
        assert producer.cluster_id(WAIT_S) == found.cluster_id
        producer.close()
    assert described[0] == described[1]
    if "t" in arguments:
        assert list(described[1]["topics"]) == ["t"]


def test_list_topics_describes_all_topics_of_old_brokers() -> None:
    """As of Kafka 0.9, whose Metadata requests have version 0."""
    settings = ClusterSettings(api_versions={ApiKey.METADATA: (0, 0)})
    with ThreadedCluster(brokers=1, topics={"t": 2, "u": 1}, settings=settings) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        assert sorted(producer.list_topics(timeout=WAIT_S).topics) == ["t", "u"]
        producer.close()


@CLIENTS
def test_questions_about_a_cluster_that_does_not_answer_end_in_time(client: Any) -> None:
    producer = client.Producer(NOWHERE)
    with pytest.raises(confluent_kafka.KafkaException, match="Failed to get metadata") as raised:
        producer.list_topics(timeout=0.2)
    assert code_of(raised) == "_TRANSPORT"
    with pytest.raises(confluent_kafka.KafkaException, match="Failed to retrieve") as raised:
        producer.cluster_id(0.2)
    assert code_of(raised) == "_TIMED_OUT"


@CLIENTS
def test_a_broker_that_is_asked_and_does_not_answer_is_a_timeout(client: Any) -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = client.Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        producer.produce("t", "v")
        assert producer.flush(WAIT_S) == 0
        cluster.freeze_broker(1)
        with pytest.raises(confluent_kafka.KafkaException, match="Failed to get") as raised:
            producer.list_topics(timeout=0.2)
        assert code_of(raised) == "_TIMED_OUT"
        cluster.thaw_broker(1)
        producer.close()


async def test_asyncio_producer_describes_the_cluster(cluster: ThreadedCluster) -> None:
    from aioproducer.compat.confluent.aio import AIOProducer

    async with AIOProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        found = await producer.list_topics("one", WAIT_S)
        assert await producer.cluster_id() == found.cluster_id
        assert len(found.topics["one"].partitions) == 1
        await producer.set_sasl_credentials("user", "password")


def test_changed_credentials_are_those_of_the_next_authentication() -> None:
    settings = settings_of(
        NOWHERE
        | {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "before",
            "sasl.password": "secret",
        }
    )
    ask = settings.config.sasl_credentials
    assert ask is not None
    assert ask() == ("before", "secret")
    settings.credentials.change("after", "other")
    assert ask() == ("after", "other")
    assert "secret" not in repr(settings.config)
    assert "other" not in repr(settings)


@pytest.mark.parametrize("given", [{}, {"sasl.oauthbearer.config": "principal=alice"}])
@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_oauth_cb_gives_the_token(given: dict[str, str], kind: str) -> None:
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "a-token", time.time() + 3600

    async def token_later(config: str) -> tuple[str, float]:
        return token(config)

    security = ListenerSecurity(
        None, ("OAUTHBEARER",), check_token=lambda text: 60_000 if text == "a-token" else None
    )
    delivered: list[Any] = []
    with ThreadedCluster(brokers=1, topics={"one": 1}, security=security) as secured:
        options = {
            "bootstrap.servers": secured.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": token if kind == "function" else token_later,
        }
        with Producer(options | given) as producer:
            producer.produce("one", b"v", on_delivery=lambda error, _: delivered.append(error))
            producer.flush(WAIT_S)
    assert delivered == [None]
    assert set(asked) == {given.get("sasl.oauthbearer.config", "")}


def test_oauth_cb_that_hangs_does_not_delay_the_end_of_the_loop() -> None:
    hanging = Hanging()
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": hanging,
    }
    ask: Any = settings_of(NOWHERE | options).config.sasl_oauthbearer_token
    hanging.check_that_the_loop_ends(ask)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_producer_with_a_wrong_password_delivers_after_it_was_changed(mechanism: str) -> None:
    security = ListenerSecurity(None, (mechanism,), {"alice": "right"})
    refused: list[Any] = []
    delivered: list[Any] = []
    with ThreadedCluster(brokers=1, topics={"one": 1}, security=security) as secured:
        options = {
            "bootstrap.servers": secured.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": mechanism,
            "sasl.username": "alice",
            "sasl.password": "wrong",
            "message.timeout.ms": 30_000,
            "error_cb": refused.append,
        }
        with Producer(options) as producer:
            producer.produce("one", b"v", on_delivery=lambda error, _: delivered.append(error))
            producer.poll(WAIT_S)
            producer.set_sasl_credentials("alice", "right")
            assert producer.flush(WAIT_S) == 0
        assert refused[0].code() == KafkaError._AUTHENTICATION
        assert delivered == [None]


def test_batches_are_as_large_as_memory_allows() -> None:
    assert settings_of(NOWHERE).config.batch_size == 131_072
    small = settings_of(NOWHERE | {"queue.buffering.max.kbytes": 40}).config
    assert small.batch_size == small.buffer_memory == 40 * 1024
    assert settings_of(NOWHERE | {"batch.size": 1_000_000}).config.batch_size == 1_000_000


@CLIENTS
def test_a_copy_is_refused_and_does_not_close_the_producer(
    client: Any, cluster: ThreadedCluster
) -> None:
    producer = client.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    with pytest.raises(TypeError, match=r"cannot .*pickle"):
        copy.copy(producer)
    gc.collect()
    producer.produce("t", b"v")
    assert producer.flush(WAIT_S) == 0


# -- outcomes --------------------------------------------------------------------------------------


def test_message_keeps_what_was_set_and_pickles(cluster: ThreadedCluster) -> None:
    seen: list[Any] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("one", b"v", b"k", on_delivery=lambda _, message: seen.append(message))
    (message,) = seen
    message.set_value(b"decoded")
    assert message.value() == b"decoded"
    assert (message.key(), message.topic(), message.partition()) == (b"k", "one", 0)
    assert message.offset() is not None
    copied = pickle.loads(pickle.dumps(message))
    assert isinstance(copied, Message)
    assert (copied.value(), copied.offset()) == (b"decoded", message.offset())
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        message.colour  # noqa: B018


def test_a_version_that_makes_no_messages_for_others_gets_ours(
    monkeypatch: pytest.MonkeyPatch, cluster: ThreadedCluster
) -> None:
    monkeypatch.setattr(confluent_kafka, "Message", types.GeneratorType)  # nor of this type
    seen: list[Any] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("one", b"v", on_delivery=lambda *outcome: seen.append(outcome))
    ((error, message),) = seen
    assert (error, message.value()) == (None, b"v")


def test_message_of_a_failure_pickles(cluster: ThreadedCluster) -> None:
    seen: list[Any] = []
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000}
    with Producer(config) as producer:
        producer.produce("one", b"v", on_delivery=lambda _, message: seen.append(message))
        producer.purge()
        producer.flush()
    (message,) = seen
    copied = pickle.loads(pickle.dumps(message))
    assert isinstance(copied, Message)
    assert (copied.value(), copied.error()) == (b"v", message.error())
    assert copied.error().code() in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


def test_callback_may_flush_in_the_middle_of_its_batch(cluster: ThreadedCluster) -> None:
    seen: list[int] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:

        def reported(error: Any, message: Any) -> None:
            seen.append(int(message.value()))
            if len(seen) == 2:
                assert producer.flush(WAIT_S) == 0

        for number in range(5):
            producer.produce("one", str(number), on_delivery=reported)
        assert producer.flush(WAIT_S) == 0
    assert seen == [0, 1, 2, 3, 4]


def test_exception_in_the_middle_of_a_batch_leaves_the_rest_for_the_next_poll(
    cluster: ThreadedCluster,
) -> None:
    seen: list[int] = []

    def reported(error: Any, message: Any) -> None:
        seen.append(int(message.value()))
        if seen[-1] in (1, 4):
            raise ZeroDivisionError(seen[-1])

    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(5):
            producer.produce("one", str(number), on_delivery=reported)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                producer.poll(WAIT_S)
        assert len(producer) == 0
        assert producer.poll(0.1) == 0
    assert seen == [0, 1, 2, 3, 4]


def test_report_of_a_record_does_not_count_as_an_await_of_it() -> None:
    batch = ProducerBatch(TopicPartition("t", 0), bytearray(100), 100, now=0.0)
    delivery: Any = type("Delivery", (), {"_batch": batch})()
    Reports(None, 10, 1000).group(delivery)
    assert (len(batch.listeners), batch.watchers) == (1, 0)


def test_outcome_is_reported_once_though_the_batch_reports_it_twice() -> None:
    reports = Reports(None, 10, 1000)
    batch: Any = type("Batch", (), {"outcome": None, "parts": ()})()
    group = Group(batch)
    reports.groups[batch] = group
    group.silent, reports.count = 1, 1
    for _ in range(2):
        reports._on_batch(group)
    assert reports.count == 0
    assert reports.serve(0) == 1


class Index:
    """A number as those of numpy are."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


@CLIENTS
@pytest.mark.parametrize("number", [Index(1), True], ids=["index", "bool"])
def test_numbers_of_other_types_are_taken_for_partition_and_timestamp(
    cluster: ThreadedCluster, client: Any, number: Any
) -> None:
    seen: list[Any] = []
    producer = client.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(
        "t", "v", partition=number, timestamp=number, on_delivery=lambda e, m: seen.append(m)
    )
    assert producer.flush(WAIT_S) == 0
    assert [(m.partition(), m.timestamp()[1]) for m in seen] == [(1, 1)]


@CLIENTS
def test_error_of_a_record_is_not_retriable_and_does_not_ask_for_an_abort(client: Any) -> None:
    seen: list[Any] = []
    producer = client.Producer(NOWHERE | {"message.timeout.ms": 100, "linger.ms": 0})
    producer.produce("t", "v", on_delivery=lambda error, message: seen.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = seen
    assert error.name() == "_MSG_TIMED_OUT"
    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (False, False, False)


# -- exceptions of callbacks -----------------------------------------------------------------------


@CLIENTS
def test_flush_calls_every_callback_before_it_raises_what_one_has_raised(
    cluster: ThreadedCluster, client: Any
) -> None:
    seen: list[Any] = []

    def failing(error: Any, message: Any) -> None:
        seen.append(message.value())
        raise ZeroDivisionError(message.value())

    producer = client.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    for number in range(3):
        producer.produce("one", str(number), on_delivery=failing)
    producer.produce("t", "last", partition=0, on_delivery=failing)
    with pytest.raises(ZeroDivisionError):
        producer.flush(WAIT_S)
    assert sorted(seen) == [b"0", b"1", b"2", b"last"]
    assert len(producer) == 0
    assert producer.flush(WAIT_S) == 0


def test_close_after_a_callback_has_raised_has_delivered_all(cluster: ThreadedCluster) -> None:
    def failing(error: Any, message: Any) -> None:
        raise ZeroDivisionError

    before = len(cluster.values("one"))
    options = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000}
    producer = Producer(options)
    producer.produce("t", "v", on_delivery=failing)
    producer.produce("one", "v", on_delivery=failing)
    with pytest.raises(ZeroDivisionError):
        producer.close()
    assert len(cluster.values("one")) == before + 1


# -- messages --------------------------------------------------------------------------------------


@CLIENTS
def test_message_has_every_method_and_each_setter_changes_what_its_getter_returns(
    client: Any,
) -> None:
    message = client.Message(
        "t", 1, 2, b"k", b"v", [("h", b"x")], None, (1, 5), 0.5, 3, delivery_count=4
    )
    assert isinstance(message, confluent_kafka.Message)
    got = {
        name: getattr(message, name)()
        for name in dir(confluent_kafka.Message)
        if not name.startswith(("_", "set_"))
    }
    assert got == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "key": b"k",
        "value": b"v",
        "deserialized_key": b"k",
        "deserialized_value": b"v",
        "headers": [("h", b"x")],
        "error": None,
        "timestamp": (1, 5),
        "latency": 0.5,
        "leader_epoch": 3,
        "delivery_count": 4,
    }
    error = client.KafkaError(3)
    for name, value in {
        "topic": "u",
        "key": b"l",
        "value": b"w",
        "headers": [("i", b"y")],
        "error": error,
    }.items():
        getattr(message, f"set_{name}")(value)
        assert getattr(message, name)() == value
    assert {f"set_{name}" for name in ("topic", "key", "value", "headers", "error")} == {
        name for name in dir(confluent_kafka.Message) if name.startswith("set_")
    }


@CLIENTS
def test_message_without_a_timestamp_has_none(client: Any) -> None:
    assert client.Message().timestamp() == (confluent_kafka.TIMESTAMP_NOT_AVAILABLE, 0)


@pytest.mark.timeout(60)
def test_partitioner_that_raises_fails_its_record_and_no_other(cluster: ThreadedCluster) -> None:
    seen: list[Any] = []

    def partitioner(topic: str, key: bytes | None, value: bytes | None, meta: Any) -> int:
        if value == b"wrong":
            raise KeyError(topic)
        return 1

    options = {"bootstrap.servers": cluster.bootstrap_servers, "partitioner": partitioner}
    with Producer(options) as producer:
        for _ in ("the topic is new", "it is known"):
            for value in ("wrong", "right"):
                producer.produce("t", value, on_delivery=lambda e, m: seen.append((m.value(), e)))
            assert producer.flush(WAIT_S) == 0
    outcomes = sorted((value, error and error.name()) for value, error in seen)
    assert outcomes == [(b"right", None)] * 2 + [(b"wrong", "_FAIL")] * 2
    assert "KeyError at test_confluent_calls.py" in next(error.str() for _, error in seen if error)


@CLIENTS
@pytest.mark.parametrize("partitioner", ["fnv1a", "fnv1a_random", "FNV1A"])
def test_fnv1a_sends_keys_to_the_partitions_of_librdkafka(
    cluster: ThreadedCluster, client: Any, partitioner: str
) -> None:
    if client is confluent_kafka:
        partitioner = partitioner.lower()
    keys = [b"", b"a", b"kafka", b"\xff" * 9, *(b"%d" % number for number in range(40))]
    found: dict[Any, int] = {}
    producer = client.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "partitioner": partitioner}
    )
    for key in keys:
        producer.produce(
            "many", "v", key, on_delivery=lambda e, m: found.update({m.key(): m.partition()})
        )
    producer.produce("many", "v", on_delivery=lambda e, m: found.update({None: m.partition()}))
    assert producer.flush(WAIT_S) == 0
    without_key = found.pop(None)
    assert found == {key: confluent_kafka.fnv1a(key, 7) for key in keys}
    if partitioner.lower() == "fnv1a":
        assert without_key == confluent_kafka.fnv1a(b"", 7)


@CLIENTS
@pytest.mark.parametrize("only_errors", [True, False])
def test_callbacks_can_be_for_errors_alone(
    cluster: ThreadedCluster, client: Any, only_errors: bool
) -> None:
    seen: list[Any] = []
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "delivery.report.only.error": only_errors,
        "linger.ms": 0,
    }
    producer = client.Producer(options)
    for topic in ("one", "small"):
        producer.produce(topic, b"x" * 500, on_delivery=lambda e, m: seen.append((m.topic(), e)))
    assert producer.flush(WAIT_S) == 0
    assert len(producer) == 0
    names = {topic: error and error.name() for topic, error in seen}
    delivered = {} if only_errors else {"one": None}
    assert names == {"small": "MSG_SIZE_TOO_LARGE"} | delivered


def test_property_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        Producer(NOWHERE | {"delivery.report.only.error": "perhaps"})
    assert code_of(raised) == "_INVALID_ARG"


def test_flush_ends_wherever_an_interrupt_has_ended_poll(cluster: ThreadedCluster) -> None:
    """As by a signal handler, an interrupt is raised after the first call, the second..."""

    def is_here(frame: types.FrameType) -> bool:
        return frame.f_code.co_filename == Reports.__init__.__code__.co_filename

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    after = 0
    for point in range(1, 1000):
        producer.produce("one", b"v", on_delivery=lambda *_: None)
        producer.produce("one", b"v", on_delivery=lambda *_: None)
        while not producer._own_reports.ready:
            pass
        try:
            with SignalAt(point, interrupt, events=("c_return",), counts=is_here):
                producer.poll(0)
        except KeyboardInterrupt:
            after = point
        assert producer.flush(5) == 0, point
        if after < point:
            break
    assert after > 5
    producer.close()


def test_signal_handler_may_flush_wherever_it_interrupts_a_produce_without_callback(
    cluster: ThreadedCluster,
) -> None:
    counts: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for point in range(1, 1000):
        producer.produce("one", b"v")
        with SignalAt(point, lambda: counts.append(producer.flush(5))) as signal:
            producer.produce("one", b"v")
        assert producer.flush(5) == 0
        if not signal.is_handled:
            break
    assert counts == [0] * (point - 1)
    assert len(counts) > 5
    producer.close()


@pytest.mark.parametrize("topic", ["one", "no topic"])
def test_signal_handler_may_flush_wherever_it_interrupts_produce_and_poll(
    cluster: ThreadedCluster, topic: str
) -> None:
    counts: list[int] = []
    seen: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for point in range(1, 1000):
        producer.produce(topic, "without a callback")
        for value in ("first", "second"):
            producer.produce(topic, value, on_delivery=lambda _, m: seen.append(m.value()))
        while not producer._own_reports.ready:
            pass
        with SignalAt(point, lambda: counts.append(producer.flush(WAIT_S))) as signal:
            producer.produce(topic, "third", on_delivery=lambda _, m: seen.append(m.value()))
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert len(seen) == 3 * point
        if not signal.is_handled:
            break
    assert counts == [0] * (point - 1)
    assert len(counts) > 10
    producer.close()
