"""kafka-python's producer here: its calls, its future, its errors, on an embedded cluster."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import signal
import ssl
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from support.hanging import Hanging
from support.signals import SignalAt
from support.waiting import until

from aioproducer.compat import kafka as ours
from aioproducer.compat.kafka import KafkaProducer, Partitioner
from aioproducer.compat.kafka import _errors as errors
from aioproducer.compat.kafka._settings import producer_config
from aioproducer.compat.kafka.future import Failed, FutureRecordMetadata
from aioproducer.config import ProducerConfig
from aioproducer.errors import InvalidTopicError
from aioproducer.testing import ThreadedCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka
    import kafka.errors
    import kafka.serializer

    from aioproducer.compat.kafka.structs import OffsetAndMetadata, TopicPartition

WAIT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(brokers=1, topics={"t": 2, "one": 1}) as running:
        yield running


@pytest.fixture
def producer(cluster: ThreadedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as running:
        yield running


# -- the future ------------------------------------------------------------------------------------


class Watched:
    """An object of a caller that can be watched."""


def test_failure_that_was_raised_does_not_keep_its_callers_frames(
    cluster: ThreadedCluster, producer: KafkaProducer
) -> None:
    def caller() -> weakref.ref[Watched]:
        local = Watched()
        with suppress(errors.KafkaError):
            future.get(WAIT_S)
        return weakref.ref(local)

    refused = cluster.faults.next("produce").answers("POLICY_VIOLATION")
    future = producer.send("t", b"v")
    producer.flush()
    assert refused.struck == 1
    gc.disable()
    try:
        assert caller()() is None
    finally:
        gc.enable()


def test_metadata_has_the_fields_of_the_kafka_python_that_is_imported(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = list(kafka.producer.future.RecordMetadata._fields)
    fields.insert(5, "log_start_offset")  # before kafka-python 2.2
    former = namedtuple("RecordMetadata", fields)
    monkeypatch.setattr(kafka.producer.future, "RecordMetadata", former)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        metadata: Any = producer.send("t", b"value", b"key", None, 1).get(timeout=WAIT_S)
    assert isinstance(metadata, former)
    assert (metadata.log_start_offset, metadata.serialized_value_size) == (None, 5)


def test_metadata_is_kafka_pythons_named_tuple(producer: KafkaProducer) -> None:
    future = producer.send("t", b"value", b"key", [("name", b"abc")], 1, 1_700_000_000_000)
    metadata = future.get(timeout=WAIT_S)
    assert isinstance(metadata, kafka.producer.future.RecordMetadata)
    assert metadata.topic_partition == kafka.TopicPartition("t", 1)
    assert metadata[3:] == (metadata.offset, 1_700_000_000_000, None, 3, 5, 7)
    assert (future.is_done, future.succeeded(), future.failed()) == (True, True, False)
    assert future.value == metadata
    assert future.exception is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_callback_is_added_in_a_child_that_was_forked_while_a_thread_added_one(
    producer: KafkaProducer,
) -> None:
    future = producer.send("t", b"v")
    future.get(WAIT_S)
    # In a thread that does not exist in the child.
    with ThreadPoolExecutor(1) as holder:
        holder.submit(future._handle._lock.acquire).result()
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            seen: list[object] = []
            future.add_callback(seen.append)
            os._exit(len(seen))
        holder.submit(future._handle._lock.release).result()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_callbacks_run_in_order_and_before_get_returns(producer: KafkaProducer) -> None:
    seen: list[Any] = []
    future = producer.send("t", b"v")
    future.add_callback(lambda tag, metadata: seen.append((tag, metadata)), "first")
    future.add_both(lambda outcome, tag: seen.append((tag, outcome)), tag="second")
    future.add_errback(seen.append)
    metadata = future.get(WAIT_S)
    assert seen == [("first", metadata), ("second", metadata)]
    future.add_callback(seen.append)
    assert seen[2:] == [metadata]


def test_signal_handler_may_flush_wherever_it_interrupts_send_and_get(
    producer: KafkaProducer,
) -> None:
    handled: list[None] = []
    seen: list[Any] = []
    producer.send("one", b"v").get(WAIT_S)
    for point in range(1, 1000):
        with SignalAt(point, lambda: handled.append(producer.flush(WAIT_S))) as signal:
            future = producer.send("one", b"v").add_callback(seen.append).add_callback(seen.append)
            metadata = future.get(WAIT_S)
        assert seen == [metadata, metadata]
        seen.clear()
        if not signal.is_handled:
            break
    assert len(handled) == point - 1 > 20


def test_callbacks_have_run_when_flush_returns(producer: KafkaProducer) -> None:
    seen: list[Any] = []
    for _ in range(50):
        producer.send("t", b"v").add_callback(seen.append)
    producer.flush(WAIT_S)
    assert len(seen) == 50


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_callback_that_raises_is_logged_and_the_others_run(
    producer: KafkaProducer, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def fail(_: object) -> None:
        raise error

    seen: list[Any] = []
    future = producer.send("t", b"v").add_callback(fail).add_callback(seen.append)
    future.get(WAIT_S)
    assert len(seen) == 1
    assert error.__name__ in caplog.text


def test_get_ends_when_a_callback_has_exited() -> None:
    class Pending(Failed):
        def done(self) -> bool:
            return bool(ended)

        def add_done_callback(self, callback: Callable[[Any], object]) -> None:
            added.append(callback)

    ended: list[bool] = []
    added: list[Callable[[Any], object]] = []
    future = FutureRecordMetadata(Pending(InvalidTopicError("no")), -1)
    future.add_errback(lambda _: sys.exit(1))
    ended.append(True)
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(added[0], None).exception(), SystemExit)
    began = time.monotonic()
    with pytest.raises(errors.InvalidTopicError):
        future.get(WAIT_S)
    assert time.monotonic() - began < WAIT_S / 2


@pytest.mark.parametrize(
    ("headers", "size"), [(None, -1), ([], -1), ([("", b"")], 0), ([("é", b"bc"), ("f", b"")], 5)]
)
def test_header_size_is_that_of_names_and_values(
    producer: KafkaProducer, headers: Any, size: int
) -> None:
    metadata = producer.send("t", b"v", headers=headers).get(WAIT_S)
    assert metadata.serialized_header_size == size


def test_outcome_goes_to_a_chained_future(producer: KafkaProducer) -> None:
    chained = kafka.future.Future()
    metadata = producer.send("t", b"v").chain(chained).get(WAIT_S)
    assert chained.value == metadata


def test_partition_is_known_where_opentelemetry_reads_it(producer: KafkaProducer) -> None:
    def chosen(topic: str, **arguments: Any) -> tuple[Any, int]:
        future: Any = producer.send(topic, b"v", **arguments)
        return future._produce_future.topic_partition, future.get(WAIT_S).partition

    for topic, arguments in (("t", {"partition": 1}), ("t", {"key": b"two"}), ("one", {})):
        read, written = chosen(topic, **arguments)
        assert read == (topic, written)
    assert chosen("t")[0] == ("t", None)


def test_callback_may_send_and_close(cluster: ThreadedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    futures: list[Any] = []

    def again(_: object) -> None:
        futures.append(producer.send("one", b"again"))
        producer.close()

    producer.send("one", b"first").add_callback(again).get(WAIT_S)
    assert futures[0].get(WAIT_S).offset >= 0
    with pytest.raises(kafka.errors.IllegalStateError, match="already closed"):
        producer.send("one", b"late")


def test_record_that_is_given_up_at_close_fails(cluster: ThreadedCluster) -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as gone:
        producer = KafkaProducer(bootstrap_servers=gone.bootstrap_servers)
        producer.send("t", b"v").get(WAIT_S)
    future = producer.send("t", b"v")
    with pytest.raises(kafka.errors.KafkaTimeoutError, match=r"after waiting for 0.01 secs"):
        future.get(timeout=0.01)
    assert not future.is_done
    assert future.exception is None
    for none in (0, -1):
        with pytest.raises(errors.KafkaTimeoutError, match=rf"not delivered within {none} secs"):
            producer.flush(none)
    producer.close(0)
    assert future.failed()
    assert isinstance(future.exception, kafka.errors.IllegalStateError)
    assert not future.retriable()


def test_record_that_runs_out_of_time_fails_as_a_timeout(cluster: ThreadedCluster) -> None:
    with ThreadedCluster(brokers=1, topics={"t": 1}) as gone:
        producer = KafkaProducer(
            bootstrap_servers=gone.bootstrap_servers,
            request_timeout_ms=100,
            delivery_timeout_ms=200,
        )
        producer.send("t", b"v").get(WAIT_S)
    seen: list[Any] = []
    future = producer.send("t", b"v").add_errback(seen.append).add_callback(seen.append)
    with pytest.raises(kafka.errors.KafkaTimeoutError) as caught:
        future.get(WAIT_S)
    assert seen == [caught.value]
    assert future.retriable()
    producer.close(0)


# -- arguments and errors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "t"}, ValueError),
        ({"topic": 1, "value": b"v"}, TypeError),
        ({"topic": "no topic", "value": b"v"}, ValueError),
        ({"topic": "t", "value": 1}, TypeError),
        ({"topic": "t", "value": b"v", "key": "text"}, TypeError),
        ({"topic": "t", "value": b"v", "partition": 2}, ValueError),
        ({"topic": "t", "value": b"v", "partition": -1}, ValueError),
        ({"topic": "t", "value": b"v", "headers": {"a": b"b"}}, TypeError),
        ({"topic": "t", "value": b"v", "headers": [("a", None)]}, TypeError),
        ({"topic": "t", "value": bytes(2_000_000)}, kafka.errors.MessageSizeTooLargeError),
        ({"topic": "t", "value": bytes(2_000_000)}, errors.BrokerResponseError),
    ],
)
def test_mistake_is_raised_by_send(
    producer: KafkaProducer, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        producer.send(**arguments)


def test_topic_that_does_not_appear_is_a_timeout(cluster: ThreadedCluster) -> None:
    with (
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            allow_auto_create_topics=False,
            max_block_ms=50,
        ) as producer,
        pytest.raises(kafka.errors.KafkaTimeoutError),
    ):
        producer.send("missing", b"v")


@pytest.mark.parametrize("code", [code for code in kafka.errors.kafka_errors if code is not None])
def test_code_has_the_class_of_kafka_python(code: int) -> None:
    ours, theirs = errors.for_code(code), kafka.errors.for_code(code)
    for fact in ("__name__", "errno", "message", "retriable", "invalid_metadata"):
        assert getattr(ours, fact) == getattr(theirs, fact)
    assert str(ours("why")) == str(theirs("why"))
    raised = errors.shared_class(ours)("why")
    assert isinstance(raised, ours)
    assert isinstance(raised, theirs)
    assert isinstance(pickle.loads(pickle.dumps(raised)), ours)


def test_unknown_code_is_an_unknown_error_of_both() -> None:
    raised = errors.shared_class(errors.for_code(9999))("why")
    assert isinstance(raised, kafka.errors.UnknownError)
    assert raised.errno == 9999  # type: ignore[attr-defined]


# -- options ---------------------------------------------------------------------------------------


def test_default_options_are_kafka_pythons() -> None:
    theirs = kafka.KafkaProducer.DEFAULT_CONFIG
    objects = {"kafka_client", "partitioner"}
    assert KafkaProducer.DEFAULT_CONFIG.keys() == theirs.keys()
    assert {
        name for name, value in KafkaProducer.DEFAULT_CONFIG.items() if value != theirs[name]
    } <= objects


def test_all_default_options_may_be_given(cluster: ThreadedCluster) -> None:
    options = {**KafkaProducer.DEFAULT_CONFIG, "bootstrap_servers": [cluster.bootstrap_servers]}
    with KafkaProducer(**options) as producer:
        assert producer.send("t", b"v").get(WAIT_S).topic == "t"
        assert producer.config["client_id"].startswith("kafka-python-producer-")
        assert producer.max_usable_produce_magic(producer.config["api_version"]) == 2
        assert producer.bootstrap_connected()


@pytest.mark.parametrize(
    "options",
    [
        {"no_such_option": 1},
        {"acks": 7},
        {"compression_type": "zip"},
        {"enable_idempotence": True, "acks": 1},
        {"transactional_id": "x", "enable_idempotence": False},
        {"kafka_client": object()},
        {"ssl_crlfile": "crl.pem"},
        {"sasl_kerberos_domain_name": "elsewhere"},
        {"api_version": "new"},
    ],
)
def test_wrong_option_is_a_configuration_error(options: dict[str, Any]) -> None:
    with pytest.raises(kafka.errors.KafkaConfigurationError) as caught:
        KafkaProducer(bootstrap_servers="127.0.0.1:1", **options)
    assert isinstance(caught.value, ValueError)


def test_constructor_gives_up_after_the_bootstrap_timeout() -> None:
    with pytest.raises(kafka.errors.KafkaTimeoutError, match="bootstrap_timeout_ms=100"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100)


def test_error_without_brokers_is_that_of_kafka_python_2_where_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoBrokersAvailable(kafka.errors.KafkaError):  # type: ignore[misc]
        pass

    monkeypatch.setattr(kafka.errors, "NoBrokersAvailable", NoBrokersAvailable, raising=False)
    with pytest.raises(NoBrokersAvailable) as caught:
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100)
    assert isinstance(caught.value, errors.KafkaTimeoutError)


def test_time_limit_of_sends_is_none_of_the_constructor(cluster: ThreadedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=1) as producer:
        assert producer.bootstrap_connected()
    with pytest.raises(kafka.errors.KafkaTimeoutError, match="bootstrap_timeout_ms=300"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", max_block_ms=1, bootstrap_timeout_ms=300)


def test_constructor_waits_for_a_name_that_cannot_be_resolved_yet() -> None:
    with pytest.raises(kafka.errors.KafkaTimeoutError, match="bootstrap_timeout_ms=300"):
        KafkaProducer(bootstrap_servers="broker.invalid:9092", bootstrap_timeout_ms=300)


@pytest.mark.parametrize("off", [0, False, numpy.int64(0), numpy.bool_(False)], ids=repr)
def test_truth_of_an_option_may_be_a_number(cluster: ThreadedCluster, off: Any) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers, "enable_idempotence": off}
    with KafkaProducer(**options) as producer:
        assert producer.config["enable_idempotence"] is False


def test_with_api_version_the_first_call_connects_and_waits_as_long_as_any_other() -> None:
    producer = KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(3, 9), max_block_ms=100)
    assert not producer.bootstrap_connected()
    begin = time.monotonic()
    with pytest.raises(kafka.errors.KafkaTimeoutError, match="not present in metadata"):
        producer.send("t", b"v")
    assert time.monotonic() - begin < WAIT_S
    producer.close()


def test_close_of_another_thread_while_the_first_call_connects_leaves_nothing_open() -> None:
    class ClosesWhenConfigured:
        def init(self, metrics: object) -> None:
            producer.close()  # in the thread of the loop

    producer = KafkaProducer(
        bootstrap_servers="127.0.0.1:1",
        api_version=(3, 9),
        client_id="closed early",
        metric_reporters=[ClosesWhenConfigured()],
    )
    with pytest.raises(kafka.errors.IllegalStateError, match="already closed"):
        producer.send("t", b"v")
    assert not [each for each in threading.enumerate() if "closed early" in each.name]


def test_bootstrap_timeout_has_another_name_before_kafka_python_3() -> None:
    with pytest.raises(kafka.errors.KafkaTimeoutError, match="bootstrap_timeout_ms=100"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version_auto_timeout_ms=100)


# -- serializers and partitioners ------------------------------------------------------------------


class OlderSerializer:
    def serialize(self, topic: str, data: str) -> bytes:
        return f"{topic}:{data}".encode()


@pytest.mark.parametrize(
    ("serializer", "stored"),
    [
        (str.encode, b"text"),
        (lambda text: bytearray(text.encode()), b"text"),
        (OlderSerializer(), b"one:text"),
        (kafka.serializer.DefaultSerializer(), b"text"),
        (kafka.serializer.JsonSerializer(), b'"text"'),
    ],
)
def test_serializers_of_every_kind_are_called(
    cluster: ThreadedCluster, serializer: Any, stored: bytes
) -> None:
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, value_serializer=serializer
    ) as producer:
        producer.send("one", "text").get(WAIT_S)
    assert cluster.values("one")[-1] == stored


def test_what_a_serializer_raises_reaches_the_caller(cluster: ThreadedCluster) -> None:
    with (
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, value_serializer=str.encode
        ) as producer,
        pytest.raises(TypeError, match="descriptor 'encode'"),
    ):
        producer.send("t", 5)


class ByValue(Partitioner):
    def partition(  # type: ignore[no-untyped-def]
        self, topic, key, serialized_key, value, serialized_value, cluster
    ) -> int:
        assert serialized_value == str(value).encode()
        assert cluster.partitions_for_topic(topic) == {0, 1}
        assert cluster.available_partitions_for_topic(topic) == {0, 1}
        return int(value) % 2


class OlderPartitioner:
    def partition(self, topic: str, key: bytes | None, cluster: Any) -> int:
        return max(cluster.partitions_for_topic(topic))


def test_metadata_has_the_controller_that_elastic_apm_reads(cluster: ThreadedCluster) -> None:
    servers = cluster.bootstrap_servers
    with KafkaProducer(bootstrap_servers=servers, api_version=(4, 0)) as producer:
        assert producer._metadata.controller is None
        producer.partitions_for("t")
        assert producer._metadata.controller is not None
        assert ":".join(map(str, producer._metadata.controller[1:3])) == servers


def test_programs_read_the_brokers_and_have_the_metadata_updated(cluster: ThreadedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        (broker,) = producer._metadata.brokers()
        assert f"{broker.host}:{broker.port}" == cluster.bootstrap_servers
        assert broker.nodeId == broker.node_id == 1
        assert producer._metadata.cluster_id
        asked = cluster.faults.next("metadata").is_answered_late(1)
        producer._metadata.request_update()
        asyncio.run(until(lambda: asked.struck == 1))


def test_health_checks_see_whether_the_sender_is_alive(cluster: ThreadedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    assert producer._sender.is_alive()
    producer.close()
    assert not producer._sender.is_alive()


def test_opentelemetry_can_replace_the_method_that_takes_new_metadata(
    producer: KafkaProducer,
) -> None:
    cluster: Any = producer._metadata
    cluster.update_metadata = [cluster.update_metadata].append
    cluster._otel_cluster_id_patched = True
    producer.send("t", b"v").get(timeout=10)
    assert cluster.cluster_id


@pytest.mark.parametrize(
    "partitioner", [ByValue(), OlderPartitioner(), lambda key, every, available: every[-1]]
)
def test_partitioners_of_every_kind_are_asked(cluster: ThreadedCluster, partitioner: Any) -> None:
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        value_serializer=lambda value: str(value).encode(),
        partitioner=partitioner,
    ) as producer:
        assert producer.send("t", 3).get(WAIT_S).partition == 1


def test_keys_go_where_kafka_python_sends_them(producer: KafkaProducer) -> None:
    from kafka.partitioner.default import murmur2

    for number in range(20):
        key = b"key-%d" % number
        expected = (murmur2(key) & 0x7FFFFFFF) % 2
        assert producer.send("t", b"v", key).get(WAIT_S).partition == expected


CONTEXT = ssl.create_default_context()


@pytest.mark.parametrize(
    "options",
    [
        {"delivery_timeout_ms": float("inf")},
        {"linger_ms": 0.5},
        {"max_block_ms": float("inf")},
        {"max_in_flight_requests_per_connection": 6},
        {"request_timeout_ms": 1_000.5},
        {"sasl_kerberos_service_name": "kafka"},
        {"security_protocol": "SSL", "ssl_context": CONTEXT, "ssl_check_hostname": False},
        {"security_protocol": "SSL", "ssl_context": CONTEXT, "ssl_cafile": "/nowhere/ca.pem"},
        {"security_protocol": "SSL", "ssl_cafile": "", "ssl_certfile": "", "ssl_crlfile": ""},
        {"ssl_check_hostname": True},
    ],
    ids=" ".join,
)
def test_options_of_kafka_python_are_taken(options: dict[str, Any]) -> None:
    KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(2, 8), **options).close()


@pytest.mark.parametrize("client", [kafka, ours], ids=["theirs", "ours"])
@pytest.mark.parametrize("form", ["PLAINTEXT://{}", "kafka+ssl://{}", "{},", " {} , {}"])
def test_servers_may_have_a_scheme_and_commas_without_a_server(
    cluster: ThreadedCluster, client: Any, form: str
) -> None:
    servers = form.format(*[cluster.bootstrap_servers] * 2)
    producer = client.KafkaProducer(bootstrap_servers=servers)
    assert producer.send("one", b"v").get(WAIT_S).partition == 0
    producer.close()


@pytest.mark.parametrize("more", [{"enable_idempotence": True}, {"transactional_id": "t"}], ids=str)
def test_many_requests_in_flight_contradict_idempotence(more: dict[str, Any]) -> None:
    with pytest.raises(kafka.errors.KafkaConfigurationError):
        KafkaProducer(max_in_flight_requests_per_connection=6, **more)


def config_of(**options: Any) -> ProducerConfig:
    return producer_config(options, {**KafkaProducer.DEFAULT_CONFIG, **options})


def test_token_provider_that_hangs_does_not_delay_the_end_of_the_loop() -> None:
    hanging = Hanging()
    ask: Any = config_of(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=SimpleNamespace(token=hanging),
    ).sasl_oauthbearer_token
    hanging.check_that_the_loop_ends(ask)


def test_float_is_rounded_up_and_infinity_is_the_longest_time() -> None:
    config = config_of(linger_ms=0.5, delivery_timeout_ms=float("inf"), retries=float("inf"))
    assert config.linger_ms == 1
    assert config.delivery_timeout_ms == config.retries == 2**31 - 1


@pytest.mark.parametrize(
    ("options", "is_idempotent"),
    [
        ({}, True),
        ({"acks": "all"}, True),
        ({"transactional_id": "x"}, True),
        ({"acks": 1}, False),
        ({"retries": 0}, False),
        ({"max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": False}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("client", [kafka.KafkaProducer, KafkaProducer], ids=["theirs", "ours"])
def test_config_says_whether_idempotence_is_on(
    cluster: ThreadedCluster, client: Any, options: dict[str, Any], is_idempotent: bool
) -> None:
    with client(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        assert producer.config["enable_idempotence"] is is_idempotent


def test_many_requests_in_flight_switch_idempotence_off() -> None:
    assert not config_of(max_in_flight_requests_per_connection=6).effective_idempotence
    assert config_of(max_in_flight_requests_per_connection=5).effective_idempotence


def test_context_of_the_caller_replaces_other_options_of_tls() -> None:
    config = config_of(
        security_protocol="SSL", ssl_context=CONTEXT, ssl_check_hostname=False, ssl_ciphers="x"
    )
    assert config.ssl_context is CONTEXT
    assert config.ssl_cipher_suites == ()


def test_brokers_of_kerberos_are_named_as_kafka_python_names_them() -> None:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    assert config_of(**given).sasl_kerberos_service_name == "kafka"
    named = config_of(**given, sasl_kerberos_service_name="broker")
    assert named.sasl_kerberos_service_name == "broker"


# -- transactions ----------------------------------------------------------------------------------


def test_transactions_commit_and_abort(cluster: ThreadedCluster) -> None:
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="compat-kafka"
    ) as producer:
        producer.init_transactions()
        producer.init_transactions()
        with pytest.raises(kafka.errors.IllegalStateError):
            producer.send("one", b"outside")
        producer.begin_transaction()
        producer.send("one", b"committed").get(WAIT_S)
        producer.send_offsets_to_transaction({TopicPartition("t", 0): OffsetAndMetadata(3)}, "g")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("one", b"aborted").get(WAIT_S)
        producer.abort_transaction()
    values = cluster.values("one")
    assert b"committed" in values
    assert b"outside" not in values


def test_transactional_calls_without_an_id_are_illegal(producer: KafkaProducer) -> None:
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        producer.abort_transaction,
    ):
        with pytest.raises(kafka.errors.IllegalStateError):
            call()


def test_group_of_another_type_is_a_type_error(cluster: ThreadedCluster) -> None:
    options = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "typed"}
    with KafkaProducer(**options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(TypeError, match="a ConsumerGroupMetadata or a group_id str"):
            producer.send_offsets_to_transaction({}, None)


# -- life ------------------------------------------------------------------------------------------


def test_thread_with_a_running_event_loop_gets_no_warning(cluster: ThreadedCluster) -> None:
    async def send() -> None:
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("one", b"v").get(WAIT_S)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(send())


def test_threads_share_one_producer(producer: KafkaProducer) -> None:
    futures: list[Any] = []

    def send() -> None:
        futures.extend(producer.send("one", b"v") for _ in range(200))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    offsets = {future.get(WAIT_S).offset for future in futures}
    assert len(offsets) == 800


def test_subclass_may_override_send(cluster: ThreadedCluster) -> None:
    class Loud(KafkaProducer):
        def send(self, topic: str, *args: Any, **kwargs: Any) -> Any:
            return super().send(topic.lower(), *args, **kwargs)

    with Loud(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert producer.send("T", b"v").get(WAIT_S).topic == "t"


def test_dropped_producer_delivers_without_a_warning(cluster: ThreadedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1000)
    future = producer.send("one", b"dropped")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del producer
    assert future.get(WAIT_S).topic == "one"


def test_close_refuses_a_negative_timeout(producer: KafkaProducer) -> None:
    with pytest.raises(ValueError, match="Invalid timeout"):
        producer.close(-1)


def test_each_topic_and_broker_has_a_group_of_metrics(cluster: ThreadedCluster) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for topic, count in (("one", 2), ("t", 1)):
            for _ in range(count):
                producer.send(topic, b"v").get(WAIT_S)
        metrics = producer.metrics()
    assert metrics is not None
    assert metrics["producer-topic-metrics.one"]["record-send-total"] == 2
    assert metrics["producer-topic-metrics.t"]["record-send-total"] == 1
    assert metrics["producer-node-metrics.node-1"]["request-total"] >= 3


def test_metrics_are_grouped_and_can_be_off(cluster: ThreadedCluster) -> None:
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
    with KafkaProducer(**options) as producer:
        producer.send("t", b"v").get(WAIT_S)
        metrics = producer.metrics()
        raw = producer.metrics(raw=True)
    assert metrics is not None
    assert raw is not None
    assert metrics["producer-metrics"]["record-send-total"] == 1
    assert {name.group for name in raw} == set(metrics)
    with KafkaProducer(**options, metrics_enabled=False) as producer:
        assert producer.metrics() is None


def test_other_names_are_kafka_pythons() -> None:
    from aioproducer.compat import kafka as whole

    assert whole.KafkaConsumer is kafka.KafkaConsumer
    assert whole.admin is kafka.admin
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = whole.no_such_name


def test_other_names_without_kafka_python_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from aioproducer.compat._forwarding import forwarded

    with pytest.raises(ImportError, match="install no-such-client to use its 'Consumer'"):
        forwarded("Consumer", "here", "no_such_client", "no-such-client")


def test_metrics_are_read_after_close(cluster: ThreadedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    producer.send("t", b"v").get(WAIT_S)
    producer.close()
    assert producer.metrics()["producer-metrics"]["record-send-total"] == 1


def test_flush_after_close_does_nothing(cluster: ThreadedCluster) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    producer.close()
    started = time.monotonic()
    producer.flush()
    producer.close()
    assert time.monotonic() - started < WAIT_S


def test_logging_handler_flushes_after_the_interpreters_exit_has_closed_its_producer(
    cluster: ThreadedCluster,
) -> None:
    program = f"""
import logging
from aioproducer.compat.kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers={cluster.bootstrap_servers!r})
class Handler(logging.Handler):
    def emit(self, record):
        producer.send("logs", record.getMessage().encode())
    def close(self):
        producer.flush()
        producer.close()
        print("closed")
handler = Handler()
logging.getLogger("app").addHandler(handler)
logging.getLogger("app").error("line")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"closed\n", b"")
    assert cluster.values("logs") == [b"line"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copy_is_refused_with_what_to_do(duplicate: Callable[[Any], object]) -> None:
    lazy = KafkaProducer(bootstrap_servers="127.0.0.1:1", api_version=(3, 0))
    with pytest.raises(TypeError, match="create one in each process"):
        duplicate(lazy)
