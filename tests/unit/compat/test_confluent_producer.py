"""confluent-kafka's producer here: its calls, callbacks and errors, on an embedded cluster."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from typing import Any

import confluent_kafka
import numpy
import pytest

from aioproducer import ConsumerGroupMetadata
from aioproducer.compat import confluent
from aioproducer.compat.confluent import KafkaError, KafkaException, Message, Producer
from aioproducer.compat.confluent._codes import NAMES
from aioproducer.compat.confluent._loop_side import LoopSide
from aioproducer.compat.confluent._reports import Record, Reports
from aioproducer.compat.confluent._settings import settings_of
from aioproducer.compat.confluent._statistics import STATES
from aioproducer.errors import ForkedError
from aioproducer.net.context import NodeState
from aioproducer.testing import ThreadedCluster, TopicSpec

WAIT_S = 20.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    topics = {"t": 2, "one": 1, "exit": 1, "small": TopicSpec(1, 1, {"max.message.bytes": "200"})}
    with ThreadedCluster(brokers=1, topics=topics) as running:
        yield running


@pytest.fixture
def producer(cluster: ThreadedCluster) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as running:
        yield running


class Outcomes:
    """A delivery callback that keeps what it gets, and in which threads."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        self.messages: list[Any] = []
        self.threads: set[int] = set()

    def __call__(self, error: Any, message: Any) -> None:
        self.errors.append(error)
        self.messages.append(message)
        self.threads.add(threading.get_ident())


class Collected(list[Any]):
    """A delivery callback that is false until it was called."""

    def __call__(self, error: Any, message: Any) -> None:
        self.append((error, message))


# -- callbacks -------------------------------------------------------------------------------------


def test_message_has_what_was_sent_and_where_it_is(producer: Producer) -> None:
    seen = Outcomes()
    producer.produce(
        "t", "value", b"key", 1, seen, timestamp=1_700_000_000_000, headers={"h": "x", "n": None}
    )
    assert producer.flush(WAIT_S) == 0
    (message,) = seen.messages
    assert seen.errors == [None]
    assert message.error() is None
    assert (message.topic(), message.partition()) == ("t", 1)
    assert message.offset() >= 0
    assert (message.key(), message.value(), len(message)) == (b"key", b"value", 5)
    assert message.headers() == [("h", b"x"), ("n", None)]
    assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_000)
    assert 0 < message.latency() < WAIT_S
    assert message.leader_epoch() is None
    assert isinstance(message, Message)
    assert isinstance(message, confluent_kafka.Message)


@pytest.mark.parametrize("client", [Producer, confluent_kafka.Producer])
def test_callback_may_be_false(cluster: ThreadedCluster, client: Any) -> None:
    of_all, one, other, of_message = Collected(), Collected(), Collected(), Collected()
    given = client({"bootstrap.servers": cluster.bootstrap_servers, "on_delivery": of_all})
    given.produce("t", b"v")
    given.produce("t", b"v", on_delivery=one)
    given.produce("t", b"v", callback=other)
    given.produce_batch("t", [{"value": b"v", "callback": of_message}], on_delivery=of_all)
    assert given.flush(WAIT_S) == 0
    assert [len(each) for each in (of_all, one, other, of_message)] == [1, 1, 1, 1]


class Topic(StrEnum):
    ONE = "one"


@pytest.mark.parametrize("client", [Producer, confluent_kafka.Producer])
def test_topic_of_a_message_is_a_plain_text(cluster: ThreadedCluster, client: Any) -> None:
    given, seen = client({"bootstrap.servers": cluster.bootstrap_servers}), Outcomes()
    given.produce(Topic.ONE, b"v", on_delivery=seen)
    assert given.flush(WAIT_S) == 0
    assert type(seen.messages[0].topic()) is str


@pytest.mark.parametrize("client", [Producer, confluent_kafka.Producer])
def test_value_and_key_may_be_arrays_of_numpy(cluster: ThreadedCluster, client: Any) -> None:
    given, seen = client({"bootstrap.servers": cluster.bootstrap_servers}), Outcomes()
    given.produce("one", numpy.array([1, 2], "<i2"), numpy.int16(3), on_delivery=seen)
    assert given.flush(WAIT_S) == 0
    assert seen.messages[0].value() == b"\x01\0\x02\0"
    assert len(seen.messages[0].key()) == 2


def test_timestamp_of_a_consumed_message_without_one_is_now(producer: Producer) -> None:
    seen, before = Outcomes(), int(time.time() * 1000)
    producer.produce("one", b"v", timestamp=-1, on_delivery=seen)
    assert producer.flush(WAIT_S) == 0
    assert seen.errors == [None]
    assert seen.messages[0].timestamp()[1] >= before


class Duration:
    def __float__(self) -> float:
        return WAIT_S


@pytest.mark.parametrize("client", [Producer, confluent_kafka.Producer])
def test_timeout_is_any_real_number(cluster: ThreadedCluster, client: Any) -> None:
    given = client({"bootstrap.servers": cluster.bootstrap_servers})
    assert given.flush(Duration()) == 0
    for wrong in ("1", numpy.str_("1"), None):
        with pytest.raises(TypeError, match="must be real number"):
            given.poll(wrong)


def test_callbacks_come_in_the_order_of_offsets_in_the_thread_that_polls(
    producer: Producer,
) -> None:
    seen = Outcomes()
    for number in range(500):
        producer.produce("t", str(number), partition=number % 2, on_delivery=seen)
    assert producer.flush(WAIT_S) == 0
    assert seen.threads == {threading.get_ident()}
    for partition in (0, 1):
        here = [m for m in seen.messages if m.partition() == partition]
        assert [int(m.value()) for m in here] == list(range(partition, 500, 2))
        assert [m.offset() for m in here] == list(range(here[0].offset(), here[0].offset() + 250))


def test_no_callback_is_called_before_poll(cluster: ThreadedCluster, producer: Producer) -> None:
    seen = Outcomes()
    before = len(cluster.values("one"))
    producer.produce("one", "v", callback=seen)
    deadline = time.monotonic() + WAIT_S
    while len(cluster.values("one")) == before:
        assert time.monotonic() < deadline
    assert seen.messages == []
    assert len(producer) == 1
    assert producer.poll(WAIT_S) == 1
    assert len(seen.messages) == 1
    assert len(producer) == 0


def test_poll_returns_at_once_when_nothing_is_due(producer: Producer) -> None:
    assert producer.poll(0) == 0


def test_poll_ends_after_its_timeout_while_a_test_stops_the_clock(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_577_836_800.0)  # as freezegun does
    assert producer.poll(0.05) == 0


def test_flush_ends_after_its_timeout_while_a_test_stops_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Producer(NOWHERE) as producer:
        producer.produce("t", b"1")
        monkeypatch.setattr(time, "monotonic", lambda: 1_577_836_800.0)
        assert producer.flush(0.05) == 1
        producer.purge()


def test_poll_ends_with_the_outcome_of_a_record_without_callback(producer: Producer) -> None:
    producer.produce("one", "v")
    assert producer.poll() == 1
    assert len(producer) == 0


def test_callback_of_the_configuration_is_called_for_records_without_one(
    cluster: ThreadedCluster,
) -> None:
    seen, own = Outcomes(), Outcomes()
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}, on_delivery=seen) as producer:
        producer.produce("one", "a")
        producer.produce("one", "b", on_delivery=own)
    assert [m.value() for m in seen.messages] == [b"a"]
    assert [m.value() for m in own.messages] == [b"b"]


@pytest.mark.parametrize("client", [Producer, confluent_kafka.Producer])
def test_callback_counts_before_on_delivery(cluster: ThreadedCluster, client: Any) -> None:
    given, first, second = client({"bootstrap.servers": cluster.bootstrap_servers}), [], []
    both = {"callback": lambda *_: first.append(1), "on_delivery": lambda *_: second.append(1)}
    given.produce("one", b"v", **both)
    given.produce_batch("one", [{"value": b"v"}], **both)
    given.produce_batch("one", [{"value": b"v"} | both])
    assert given.flush(WAIT_S) == 0
    assert (len(first), second) == (3, [])


@pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])
def test_error_of_a_record_may_be_raised_by_the_callback(client: Any) -> None:
    def fail(error: Any, message: Any) -> None:
        raise error

    producer = client.Producer(NOWHERE, on_delivery=fail)
    producer.produce("t", "v")
    producer.purge()
    caught = None
    try:
        producer.flush(WAIT_S)
    except client.KafkaError as error:
        caught = error
    assert isinstance(caught, confluent_kafka.KafkaError)
    assert caught.code() == KafkaError._PURGE_QUEUE


@pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])
def test_handler_for_kafka_error_leaves_other_exceptions_as_they_are(client: Any) -> None:
    def produce() -> None:
        try:
            client.Producer(NOWHERE).produce("t", 5)
        except client.KafkaError as error:
            raise AssertionError from error

    with pytest.raises(TypeError, match="int"):
        produce()


def test_exception_of_a_callback_leaves_poll_and_the_others_are_called(producer: Producer) -> None:
    seen = Outcomes()

    def failing(error: Any, message: Any) -> None:
        raise ZeroDivisionError("in a callback")

    producer.produce("one", "a", on_delivery=failing)
    producer.produce("one", "b", on_delivery=seen)
    with pytest.raises(ZeroDivisionError, match="in a callback"):
        producer.flush(WAIT_S)
    assert producer.flush(WAIT_S) == 0
    assert [m.value() for m in seen.messages] == [b"b"]


def test_thread_with_a_running_event_loop_gets_no_warning(cluster: ThreadedCluster) -> None:
    async def ask() -> None:
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            assert "one" in producer.list_topics(timeout=WAIT_S).topics

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(ask())


def test_callback_may_produce_and_flush_waits_for_that_too(producer: Producer) -> None:
    seen = Outcomes()

    def again(error: Any, message: Any) -> None:
        producer.produce("one", "again", on_delivery=seen)

    producer.produce("one", "first", on_delivery=again)
    assert producer.flush(WAIT_S) == 0
    assert [m.value() for m in seen.messages] == [b"again"]


def test_threads_produce_while_another_polls(producer: Producer) -> None:
    seen = Outcomes()

    def produce(tag: int) -> None:
        for number in range(200):
            producer.produce("one", f"{tag}:{number}", on_delivery=seen)

    threads = [threading.Thread(target=produce, args=(tag,)) for tag in range(3)]
    for thread in threads:
        thread.start()
    while len(seen.messages) < 600:
        assert producer.poll(WAIT_S) > 0
    for thread in threads:
        thread.join()
    assert seen.threads == {threading.get_ident()}
    for tag in range(3):
        values = [m.value().decode() for m in seen.messages if m.value().startswith(b"%d:" % tag)]
        assert values == [f"{tag}:{number}" for number in range(200)]


def test_flush_of_one_thread_ends_when_another_has_served_the_callbacks(
    producer: Producer,
) -> None:
    seen = Outcomes()
    for _ in range(200):
        producer.produce("one", "v", on_delivery=seen)
    other = threading.Thread(target=producer.flush, args=(WAIT_S,))
    other.start()
    producer.flush(WAIT_S)
    other.join(WAIT_S)
    assert not other.is_alive()
    assert len(seen.messages) == 200


def test_flush_without_a_limit_ends_when_other_threads_have_served_what_failed() -> None:
    producer = Producer({"message.timeout.ms": 10})  # no server: nothing ever starts
    seen = Outcomes()

    def produce() -> None:
        for _ in range(2):
            producer.produce("t", "v", on_delivery=seen)
            producer.flush()

    threads = [threading.Thread(target=produce, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen.errors) == 8
    producer.close()


# -- failures --------------------------------------------------------------------------------------


def test_default_topic_config_overrides_the_options_beside_it() -> None:
    topic_config = {"message.timeout.ms": 50}
    config = {"message.timeout.ms": 600_000, "default.topic.config": topic_config}
    with_one, with_none = Producer(config), Producer({"default.topic.config": None} | NOWHERE)
    assert with_one._own_settings.config.delivery_timeout_ms == 50
    with_one.close()
    with_none.close()


@pytest.mark.parametrize("call", [Producer.poll, Producer.flush])
def test_statistics_are_reported_while_a_call_waits_and_without_servers(
    call: Callable[..., int],
) -> None:
    texts: list[str] = []
    config = {"bootstrap.servers": None, "statistics.interval.ms": 10, "stats_cb": texts.append}
    producer = Producer(config | {"message.timeout.ms": 60_000})
    producer.produce("t", "v")
    call(producer, 0.2)
    assert texts
    assert json.loads(texts[0])["brokers"] == {}
    producer.purge()
    producer.close()


def test_record_that_no_broker_takes_in_time_fails_with_msg_timed_out() -> None:
    seen = Outcomes()
    producer = Producer(NOWHERE | {"message.timeout.ms": 100, "linger.ms": 0})
    producer.produce("t", "v", "k", on_delivery=seen)
    assert len(producer) == 1
    assert producer.flush(WAIT_S) == 0
    (error,), (message,) = seen.errors, seen.messages
    assert error.code() == confluent_kafka.KafkaError._MSG_TIMED_OUT
    assert (error.name(), error.fatal()) == ("_MSG_TIMED_OUT", False)
    assert message.error() is error
    assert (message.offset(), message.partition(), message.key()) == (None, None, b"k")
    producer.close()


def test_many_records_without_a_callback_that_are_not_sent_are_few_lines_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = Producer(NOWHERE | {"message.timeout.ms": 50, "linger.ms": 0})
    for _ in range(500):
        producer.produce("t", "v")
    assert producer.flush(WAIT_S) == 0
    lines = [each for each in caplog.messages if "a record of topic t was not sent" in each]
    assert 1 <= len(lines) < 10
    producer.close()


def test_record_that_the_broker_refuses_fails_with_its_code(producer: Producer) -> None:
    seen = Outcomes()
    producer.produce("small", b"x" * 1000, on_delivery=seen)
    producer.produce("small", b"x", on_delivery=seen)
    assert producer.flush(WAIT_S) == 0
    pairs = zip(seen.errors, seen.messages, strict=True)
    codes = {len(message): error and error.code() for error, message in pairs}
    assert codes == {1000: confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE, 1: None}


@pytest.mark.parametrize("partition", [7, -5])
def test_partition_that_a_new_topic_does_not_have_is_reported_in_the_callback(
    producer: Producer, partition: int
) -> None:
    seen = Outcomes()
    producer.produce("one", "v", partition=partition, on_delivery=seen)
    producer.produce("one", "v", partition=0, on_delivery=seen)
    assert producer.flush(WAIT_S) == 0  # less than the 60 s of `max.block.ms`
    assert [e and e.code() for e in seen.errors] == [KafkaError._UNKNOWN_PARTITION, None]


CLIENTS = pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])


@CLIENTS
@pytest.mark.parametrize("partition", [7, -5])
def test_partition_that_a_known_topic_does_not_have_is_refused_at_once(
    cluster: ThreadedCluster, client: Any, partition: int
) -> None:
    seen = Outcomes()
    producer = client.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("one", "v", on_delivery=seen)
    assert producer.flush(WAIT_S) == 0
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.produce("one", "v", partition=partition, on_delivery=seen)
    error = raised.value.args[0]
    assert error.name() == "_UNKNOWN_PARTITION"
    assert error.str() == "Unable to produce message: Local: Unknown partition"
    producer.produce("one", "v", on_delivery=seen)
    assert producer.flush(WAIT_S) == 0
    assert seen.errors == [None, None]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": ""}, KafkaError.TOPIC_EXCEPTION),
        ({"topic": "a/b"}, KafkaError.TOPIC_EXCEPTION),
        ({"partition": -5}, KafkaError._UNKNOWN_PARTITION),
        ({"timestamp": -5}, KafkaError._INVALID_ARG),
    ],
    ids=str,
)
def test_value_that_cannot_be_sent_is_reported_in_the_callback(
    producer: Producer, wrong: dict[str, Any], code: int
) -> None:
    seen = Outcomes()
    producer.produce(**({"topic": "one", "value": "v", "on_delivery": seen} | wrong))
    producer.produce("one", "v", on_delivery=seen)
    assert producer.flush(WAIT_S) == 0
    assert sorted(error.code() if error else 0 for error in seen.errors) == sorted([code, 0])


def test_records_that_were_purged_do_not_take_later_ones_along() -> None:
    producer = Producer(NOWHERE)
    for _ in range(50):
        producer.produce("t", "v")
        producer.purge(blocking=False)
    producer.produce("t", "v")
    producer.purge()
    assert producer.flush(WAIT_S) == 0
    producer.close()


def test_topic_that_does_not_appear_in_time_is_reported_in_the_callback(
    cluster: ThreadedCluster,
) -> None:
    seen = Outcomes()
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "max.block.ms": 200,
        "allow.auto.create.topics": False,
    }
    with Producer(options) as producer:
        for _ in range(3):
            producer.produce("missing", "v", on_delivery=seen)
        assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in seen.errors] == [KafkaError._UNKNOWN_TOPIC] * 3


def test_topic_that_does_not_exist_does_not_hold_up_others(cluster: ThreadedCluster) -> None:
    seen = Outcomes()
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "message.timeout.ms": 1000,
        "allow.auto.create.topics": False,
    }
    with Producer(options) as producer:
        for _ in range(3):
            producer.produce("missing", "v", on_delivery=seen)
        producer.produce("one", "v", on_delivery=seen)
        assert producer.flush(WAIT_S) == 0
    assert [m.topic() for m in seen.messages] == ["one", "missing", "missing", "missing"]
    assert seen.errors[0] is None
    assert all(error.code() < 0 for error in seen.errors[1:])


def test_full_queue_is_a_buffer_error_until_outcomes_were_served() -> None:
    producer = Producer(NOWHERE | {"queue.buffering.max.messages": 2, "message.timeout.ms": 100})
    seen = Outcomes()
    for _ in range(2):
        producer.produce("t", "v", on_delivery=seen)
    with pytest.raises(BufferError, match="Local: Queue full"):
        producer.produce("t", "v")
    assert len(producer) == 2
    assert producer.flush(WAIT_S) == 0
    producer.produce("t", "v")
    producer.close()


def test_full_memory_is_a_buffer_error() -> None:
    producer = Producer(NOWHERE | {"queue.buffering.max.kbytes": 40, "message.timeout.ms": 100})
    producer.produce("t", b"x" * 30_000)
    with pytest.raises(BufferError, match="Queue full"):
        producer.produce("t", b"x" * 30_000)
    producer.close()


def test_record_larger_than_allowed_is_refused_by_produce(producer: Producer) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.produce("t", b"x" * 2_000_000)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert len(producer) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": 5},
        {"key": 5},
        {"topic": 5},
        {"partition": "1"},
        {"timestamp": "now"},
        {"headers": 5},
        {"headers": [("name", 5)]},
        {"headers": [("name",)]},
        {"headers": [("name", b"x", b"y")]},
        {"headers": ["ab"]},
        {"headers": [1]},
        {"headers": [["name", b"x"]]},
        {"headers": (("name", b"x"),)},
        {"headers": ()},
        {"headers": [("name", bytearray(b"x"))]},
        {"headers": {"name": {"nested": 1}}},
        {"topic": None},
    ],
    ids=str,
)
def test_wrong_type_is_the_type_error_that_confluent_kafka_raises(
    producer: Producer, wrong: dict[str, Any]
) -> None:
    theirs = confluent_kafka.Producer({})
    raised = []
    for each in (theirs, producer):
        with pytest.raises(TypeError) as error:
            each.produce(**({"topic": "t", "value": "v"} | wrong))
        raised.append(str(error.value))
    assert raised[0] == raised[1]


# -- flush, purge, close ---------------------------------------------------------------------------


def test_calls_of_a_log_handler_in_the_producer_s_thread_do_not_wait() -> None:
    with Producer(NOWHERE) as producer:
        producer.produce("t", b"v")
        done: Future[tuple[int, int]] = Future()
        producer._own_thread.post(lambda: done.set_result((producer.poll(60), producer.flush())))
        assert done.result(WAIT_S) == (0, 1)
        producer.purge()


def test_flush_returns_what_is_left_when_its_timeout_ends() -> None:
    producer = Producer(NOWHERE)
    for _ in range(3):
        producer.produce("t", "v")
    assert producer.flush(0.05) == 3
    producer.purge()
    assert producer.flush(WAIT_S) == 0
    producer.close()


def test_purged_record_gets_the_error_purged() -> None:
    seen = Outcomes()
    producer = Producer(NOWHERE)
    producer.produce("t", "v", on_delivery=seen)
    producer.purge(in_queue=False)
    assert len(producer) == 1
    producer.purge()
    assert seen.errors == []
    assert producer.poll(WAIT_S) == 1
    assert seen.errors[0].code() == KafkaError._PURGE_QUEUE
    producer.close()


def test_close_delivers_calls_the_callbacks_and_ends_the_producer(
    cluster: ThreadedCluster,
) -> None:
    seen = Outcomes()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000})
    producer.produce("one", "v", on_delivery=seen)
    assert producer.close() is True
    assert seen.errors == [None]
    assert producer.close() is True
    for call in (producer.poll, producer.flush, lambda: producer.produce("one", "v")):
        with pytest.raises(RuntimeError, match="Producer has been closed"):
            call()


def test_dropped_producer_delivers_in_the_background(cluster: ThreadedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000})
    producer.produce("t", "of a dropped producer")
    del producer
    deadline = time.monotonic() + WAIT_S
    while b"of a dropped producer" not in cluster.values("t"):
        assert time.monotonic() < deadline


def test_dropped_producer_delivers_at_the_interpreters_exit(cluster: ThreadedCluster) -> None:
    program = f"""
from aioproducer.compat.confluent import Producer
def main():
    producer = Producer({{"bootstrap.servers": {cluster.bootstrap_servers!r}}})
    for number in range(5_000):
        producer.produce("exit", b"%d" % number)
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(cluster.values("exit")) == 5_000


def test_flush_in_a_finalizer_at_the_interpreters_exit_calls_callbacks(
    cluster: ThreadedCluster,
) -> None:
    program = f"""
from aioproducer.compat.confluent import Producer
class Wrapper:
    def __init__(self):
        self.producer = Producer({{"bootstrap.servers": {cluster.bootstrap_servers!r}}})
    def __del__(self):
        print(self.producer.flush())
wrapper = Wrapper()
wrapper.producer.produce("one", b"v", on_delivery=lambda error, message: print(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.stdout.split(), done.stderr) == ([b"None", b"0"], b"")


def test_producer_is_true_though_it_has_no_records(producer: Producer) -> None:
    assert len(producer) == 0
    assert producer


def test_records_that_were_produced_before_the_cluster_was_there_are_delivered(
    cluster: ThreadedCluster,
) -> None:
    cluster.freeze_broker(1)
    try:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("one", "early")
        assert producer.flush(0.05) == 1
    finally:
        cluster.thaw_broker(1)
    assert producer.flush(WAIT_S) == 0
    producer.close()
    assert cluster.values("one")[-1] == b"early"


# -- batches ---------------------------------------------------------------------------------------


def test_batch_counts_what_was_taken_and_marks_the_rest(producer: Producer) -> None:
    seen, own = Outcomes(), Outcomes()
    messages: list[dict[str, Any]] = [
        {"value": "a", "key": "k"},
        {"value": "b", "callback": own, "headers": [("h", b"x")]},
        {"value": b"x" * 2_000_000},
    ]
    assert producer.produce_batch("one", messages, 0, on_delivery=seen) == 2
    assert producer.flush(WAIT_S) == 0
    assert [m.value() for m in seen.messages] == [b"a"]
    assert [m.value() for m in own.messages] == [b"b"]
    assert [m.get("_error") for m in messages] == [None, None, KafkaError.MSG_SIZE_TOO_LARGE]


def test_batch_marks_what_finds_no_room() -> None:
    producer = Producer(NOWHERE | {"queue.buffering.max.messages": 1})
    messages: list[dict[str, Any]] = [{"value": "a"}, {"value": "b"}]
    assert producer.produce_batch("t", messages) == 1
    assert messages[1]["_error"].code() == KafkaError._QUEUE_FULL
    producer.purge()
    producer.close()


@pytest.mark.parametrize(
    "wrong",
    [
        ({"value": "a"},),
        [{"value": "a"}, "a"],
        [{"value": 5}],
        [{"value": "a", "key": []}],
        [{"value": "a", "partition": "1"}],
    ],
    ids=str,
)
def test_wrong_batch_is_the_type_error_that_confluent_kafka_raises(
    producer: Producer, wrong: Any
) -> None:
    raised = []
    for each in (confluent_kafka.Producer({}), producer):
        with pytest.raises(TypeError) as error:
            each.produce_batch("t", wrong)
        raised.append(str(error.value))
    assert raised[0] == raised[1]
    assert len(producer) == 0


@pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])
def test_none_in_a_batch_is_left_out(cluster: ThreadedCluster, client: Any) -> None:
    producer, seen = client.Producer({"bootstrap.servers": cluster.bootstrap_servers}), Outcomes()
    unset = dict.fromkeys(("key", "partition", "timestamp", "headers", "callback", "on_delivery"))
    messages: list[dict[str, Any]] = [{"value": "a"}, {"value": "b"} | unset]
    assert producer.produce_batch("one", messages, 0, on_delivery=seen) == 2
    assert producer.flush(WAIT_S) == 0
    assert [(m.value(), m.partition()) for m in seen.messages] == [(b"a", 0), (b"b", 0)]


@pytest.mark.parametrize(
    "wrong", [{"partition": 2**31}, {"timestamp": "now"}, {"headers": ("a", b"b")}], ids=str
)
def test_no_message_of_a_batch_is_taken_if_one_cannot_be_sent(
    producer: Producer, wrong: dict[str, Any]
) -> None:
    with pytest.raises((OverflowError, TypeError)):
        producer.produce_batch("one", [{"value": "a"}, {"value": "b"} | wrong])
    assert len(producer) == 0


def test_producer_without_servers_only_times_out() -> None:
    seen = Outcomes()
    with Producer({"message.timeout.ms": 10}) as producer:
        producer.produce("t", on_delivery=seen)
        assert producer.flush(WAIT_S) == 0
    assert seen.errors[0].code() == KafkaError._MSG_TIMED_OUT
    assert "Message timed out" in seen.errors[0].str()


# -- transactions ----------------------------------------------------------------------------------


@pytest.fixture
def transactional(cluster: ThreadedCluster) -> Iterator[Producer]:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "tx"}
    with Producer(options) as running:
        running.init_transactions(WAIT_S)
        yield running


def test_committed_records_stay_and_aborted_ones_do_not(
    cluster: ThreadedCluster, transactional: Producer
) -> None:
    seen = Outcomes()
    transactional.begin_transaction()
    transactional.produce("t", "committed", on_delivery=seen)
    transactional.commit_transaction(WAIT_S)
    assert seen.errors == [None]
    transactional.begin_transaction()
    transactional.produce("t", "aborted", on_delivery=seen)
    transactional.abort_transaction()
    assert len(seen.errors) == 2
    assert seen.errors[1] in (None, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
    values = cluster.values("t")
    assert b"committed" in values
    assert b"aborted" not in values


def test_record_outside_a_transaction_is_refused_by_produce(transactional: Producer) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        transactional.produce("t", "v")
    assert raised.value.args[0].code() == KafkaError._STATE
    assert len(transactional) == 0


def test_commit_after_a_record_has_failed_requires_an_abort(transactional: Producer) -> None:
    transactional.begin_transaction()
    transactional.produce("small", b"x" * 1000)
    with pytest.raises(KafkaException) as raised:
        transactional.commit_transaction(WAIT_S)
    assert raised.value.args[0].txn_requires_abort()
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    transactional.abort_transaction(WAIT_S)
    transactional.begin_transaction()
    transactional.produce("t", "after")
    transactional.commit_transaction(WAIT_S)


def test_commit_after_a_record_found_no_topic_requires_an_abort(cluster: ThreadedCluster) -> None:
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "transactional.id": "lost",
        "message.timeout.ms": 300,
        "allow.auto.create.topics": False,
    }
    with Producer(options) as producer:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("missing", "v")
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(WAIT_S)
        assert raised.value.args[0].txn_requires_abort()
        producer.abort_transaction(WAIT_S)
        producer.begin_transaction()
        producer.produce("t", "after the lost one")
        producer.commit_transaction(WAIT_S)


def test_fenced_producer_gets_the_error_fenced(
    cluster: ThreadedCluster, transactional: Producer
) -> None:
    options = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "tx"}
    transactional.begin_transaction()
    with Producer(options) as other:
        other.init_transactions(WAIT_S)
        transactional.produce("t", "v")
        with pytest.raises(KafkaException) as raised:
            transactional.commit_transaction(WAIT_S)
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert raised.value.args[0].fatal()
    for call, code in (
        (transactional.begin_transaction, KafkaError._FENCED),
        (lambda: transactional.produce("t", "v"), KafkaError._FATAL),
    ):
        with pytest.raises(KafkaException) as raised:
            call()
        error = raised.value.args[0]
        assert (error.code(), error.fatal(), error.txn_requires_abort()) == (code, True, False)


def test_offsets_are_part_of_the_transaction(transactional: Producer) -> None:
    transactional.begin_transaction()
    transactional.produce("t", "v")
    positions = [
        confluent_kafka.TopicPartition("one", 0, 5),
        confluent_kafka.TopicPartition("one", 1),
    ]
    transactional.send_offsets_to_transaction(positions, ConsumerGroupMetadata("group"), WAIT_S)
    transactional.commit_transaction(WAIT_S)


def test_transactional_call_ends_with_its_timeout_and_may_be_repeated() -> None:
    producer = Producer(NOWHERE | {"transactional.id": "nowhere"})
    for _ in range(2):
        with pytest.raises(KafkaException) as raised:
            producer.init_transactions(0.05)
        assert raised.value.args[0].code() == KafkaError._TIMED_OUT
        assert raised.value.args[0].retriable()
    producer.close()


def test_transactional_call_needs_a_transactional_id(producer: Producer) -> None:
    theirs = confluent_kafka.Producer({})
    raised = []
    for each in (theirs, producer):
        with pytest.raises(confluent_kafka.KafkaException) as error:
            each.begin_transaction()
        raised.append(str(error.value.args[0]))
    assert raised[0] == raised[1]


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"foo": 1}, {"acks": "7x"}, {"linger.ms": "soon"}], ids=str)
def test_wrong_property_is_an_invalid_argument(wrong: dict[str, Any]) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        Producer(NOWHERE | wrong)
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG


@pytest.mark.parametrize("arguments", [(), (5,), ("127.0.0.1:1",)], ids=str)
def test_configuration_is_a_mapping(arguments: Any) -> None:
    with pytest.raises(TypeError, match="expected configuration dict"):
        Producer(*arguments)


def test_callback_of_the_configuration_is_callable() -> None:
    with pytest.raises(TypeError, match="error_cb"):
        Producer(NOWHERE, error_cb=5)


def test_keys_go_where_librdkafka_puts_them(producer: Producer) -> None:
    seen = Outcomes()
    for key in (b"a", b"b", b"c", b"some key"):
        producer.produce("t", "v", key, on_delivery=seen)
    producer.flush(WAIT_S)
    for message in seen.messages:
        assert message.partition() == confluent_kafka.consistent(message.key(), 2)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("broker", ["broker:9092"]),
        ("PLAINTEXT://broker:9093, other", ["broker:9093", "other:9092"]),
        ("[::1]", ["[::1]:9092"]),
        ("[::1]:9093", ["[::1]:9093"]),
    ],
)
def test_addresses_are_those_of_librdkafka(given: str, read: list[str]) -> None:
    settings = settings_of({"bootstrap.servers": given})
    assert list(settings.config.bootstrap_servers) == read


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, (300_000, 30_000, 5)),
        ({"message.timeout.ms": 0}, (2**31 - 1, 30_000, 5)),
        ({"message.timeout.ms": 100}, (100, 50, 5)),
        ({"delivery.timeout.ms": "10", "linger.ms": 100}, (10, 5, 5)),
        ({"message.timeout.ms": 100_000, "request.timeout.ms": 60_000}, (100_000, 50_000, 5)),
        ({"transactional.id": "tx"}, (60_000, 30_000, 5)),
        ({"transactional.id": "tx", "transaction.timeout.ms": 1000}, (1000, 500, 5)),
        ({"transactional.id": "tx", "message.timeout.ms": 40_000}, (40_000, 20_000, 5)),
        ({"transaction.timeout.ms": 1000}, (300_000, 30_000, 5)),
    ],
    ids=str,
)
def test_time_limit_of_messages_shortens_the_others(
    given: dict[str, Any], limits: tuple[int, int, int]
) -> None:
    config = settings_of(NOWHERE | given).config
    assert (config.delivery_timeout_ms, config.request_timeout_ms, config.linger_ms) == limits


def test_records_without_a_key_share_the_partition_of_their_batch(
    cluster: ThreadedCluster,
) -> None:
    seen = Outcomes()
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 200}) as producer:
        for _ in range(50):
            producer.produce("t", "v", on_delivery=seen)
    assert len({message.partition() for message in seen.messages}) == 1


def test_empty_key_goes_to_any_partition(producer: Producer) -> None:
    seen = Outcomes()
    for _ in range(64):  # all in one: once in 2**63
        producer.produce("t", "v", b"", on_delivery=seen)
    producer.flush(WAIT_S)
    assert {message.partition() for message in seen.messages} == {0, 1}


def test_error_callback_reports_that_no_broker_answers() -> None:
    reported: list[Any] = []
    producer = Producer(NOWHERE | {"error_cb": reported.append, "logger": None})
    while not reported:
        producer.poll(WAIT_S)
    assert reported[0].code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN
    assert isinstance(reported[0], confluent_kafka.KafkaError)
    producer.close()


def test_error_callback_reports_once_each_time_that_the_last_broker_is_lost() -> None:
    reported: list[Any] = []
    with ThreadedCluster(brokers=2, topics={"t": 2}) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "error_cb": reported.append}
        with Producer(config) as producer:
            for times in (1, 2):
                producer.produce("t", b"v")
                assert producer.flush(WAIT_S) == 0
                cluster.stop_broker(1)
                producer.poll(1)
                assert len(reported) == times - 1
                cluster.stop_broker(2)
                deadline = time.monotonic() + WAIT_S
                while len(reported) < times and time.monotonic() < deadline:
                    producer.poll(0.1)
                producer.poll(1)
                codes = [error.code() for error in reported]
                assert codes == [confluent_kafka.KafkaError._ALL_BROKERS_DOWN] * times
                cluster.start_broker(1)
                cluster.start_broker(2)


def test_each_state_of_a_broker_has_a_name_of_librdkafka() -> None:
    assert {state.name.lower() for state in NodeState} == set(STATES)
    assert STATES["ready"] == STATES["throttled"] == "UP"
    assert (STATES["disconnected"], STATES["backing_off"]) == ("INIT", "DOWN")


def test_statistics_are_json_and_come_from_poll() -> None:
    reported: list[str] = []
    producer = Producer(NOWHERE | {"stats_cb": reported.append, "statistics.interval.ms": 1})
    producer.produce("t", b"v")
    deadline = time.monotonic() + WAIT_S
    while not reported or json.loads(reported[-1])["msg_cnt"] != 1:
        producer.poll(0.01)
        assert time.monotonic() < deadline
    producer.purge()
    producer.close()


def test_statistics_have_the_totals_of_librdkafka(cluster: ThreadedCluster) -> None:
    found, expected = (
        last_statistics(kind, cluster.bootstrap_servers)
        for kind in (Producer, confluent_kafka.Producer)
    )
    assert set(expected) - set(found) == {"metadata_cache_cnt"}
    assert found["txmsgs"] == expected["txmsgs"] == 1
    assert 0 < found["txmsg_bytes"] < found["tx_bytes"]
    assert 0 < found["rx"] <= found["tx"]
    assert "UP" in {broker["state"] for broker in found["brokers"].values()}
    shape = next(iter(expected["brokers"].values()))
    for name, broker in found["brokers"].items():
        assert broker["name"] == name
        assert set(broker) <= set(shape)
        assert set(broker["rtt"]) <= set(shape["rtt"])


def last_statistics(kind: Callable[[dict[str, Any]], Any], servers: str) -> dict[str, Any]:
    """Return what is reported after a record was acknowledged."""
    texts: list[str] = []
    config = {"bootstrap.servers": servers, "statistics.interval.ms": 10, "stats_cb": texts.append}
    producer = kind(config)
    producer.produce("t", b"v")
    producer.flush(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while not texts or json.loads(texts[-1])["txmsgs"] == 0:
        assert time.monotonic() < deadline
        producer.poll(0.01)
    producer.close()
    return dict(json.loads(texts[-1]))


def test_other_names_come_from_confluent_kafka() -> None:
    assert confluent.Consumer is confluent_kafka.Consumer
    with pytest.raises(AttributeError, match="has 'Nothing'"):
        confluent.Nothing  # noqa: B018


# -- errors ----------------------------------------------------------------------------------------


def test_constants_are_those_of_confluent_kafka() -> None:
    theirs = confluent_kafka.KafkaError
    for name in dir(theirs):
        if isinstance(getattr(theirs, name), int):
            assert getattr(KafkaError, name) == getattr(theirs, name)
            assert KafkaError(getattr(theirs, name)).name() == name


COMMON_CODES = (
    *(0, -1, 2, 3, 10, 17, 29, -144, -145, -150, -151, -152, -161, -162, -169, -172, -181),
    *(-184, -185, -186, -187, -188, -190, -192, -193, -195, -196, -197, -199, 9999, -9999),
)


@pytest.mark.parametrize("code", sorted({*NAMES, *COMMON_CODES}))
def test_text_of_an_error_is_that_of_confluent_kafka(code: int) -> None:
    assert str(KafkaError(code)) == str(confluent_kafka.KafkaError(code))


@pytest.mark.parametrize("code", COMMON_CODES)
def test_text_of_a_common_error_needs_no_confluent_kafka(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    theirs = str(confluent_kafka.KafkaError(code))
    monkeypatch.delitem(sys.modules, "confluent_kafka")
    assert str(KafkaError(code)) == theirs


def test_error_has_flags_is_equal_to_its_code_and_pickles() -> None:
    error = KafkaError(3, "reason", fatal=True, retriable=True, txn_requires_abort=True)
    theirs = confluent_kafka.KafkaError(3, "reason", True, True, True)
    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (True, True, True)
    assert error.str() == "reason"
    assert str(error) == str(theirs)
    assert error == 3
    assert error == theirs
    assert theirs == error
    assert isinstance(error, confluent_kafka.KafkaError)
    assert error < 4
    assert len({error, KafkaError(3)}) == 1
    copy = pickle.loads(pickle.dumps(error))
    assert (copy, copy.str(), copy.fatal()) == (error, "reason", True)


def test_exception_pickles_with_its_error(producer: Producer) -> None:
    with pytest.raises(KafkaException) as raised:
        producer.begin_transaction()
    copy = pickle.loads(pickle.dumps(raised.value))
    assert isinstance(copy, KafkaException)
    assert copy.args[0].code() == KafkaError._NOT_CONFIGURED


# -- fork ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_each_record_of_a_forked_child_is_refused_and_the_parent_goes_on(
    cluster: ThreadedCluster,
) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce("one", "before")
        assert producer.flush(WAIT_S) == 0
        child = os.fork()
        if child == 0:
            refused = 0
            for value in (b"1", b"2", "3"):
                try:
                    producer.produce("one", value)
                except KafkaException as error:
                    refused += error.args[0].code() == KafkaError._STATE
            try:
                producer.poll()
            except KafkaException:
                refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        producer.produce("one", "after")
        assert producer.flush(WAIT_S) == 0
    assert cluster.values("one")[-2:] == [b"before", b"after"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_call_that_a_forked_child_is_refused_leaves_no_coroutine(producer: Producer) -> None:
    child = os.fork()
    if child == 0:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with suppress(KafkaException):
                producer.list_topics(timeout=1)
            gc.collect()
            os._exit(len(seen))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.timeout(30)
def test_record_is_refused_in_a_child_that_was_forked_while_records_were_handed_on() -> None:
    reports = Reports(None, 10, 1000)
    loop_side = LoopSide(settings_of(NOWHERE), Ended(), reports)
    loop_side._draining = True  # as at the fork
    holder = threading.Thread(target=reports._lock.acquire)  # which does not exist in the child
    holder.start()
    holder.join()
    loop_side.after_fork_in_child()
    for _ in range(2):
        with pytest.raises(KafkaException):
            loop_side.put(Record("t", b"v", None, None, None, None, 1, 0.0, None))
    assert (reports.count, len(loop_side._inbox)) == (0, 0)


class Ended:
    """The thread of a parent process."""

    def post(self, callback: Callable[[], object]) -> bool:
        return False

    def check_alive(self) -> None:
        raise ForkedError("the thread is the parent's")
