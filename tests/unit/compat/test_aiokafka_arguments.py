"""Arguments that aiokafka refuses are refused with the same text; both clients are asked."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import ssl
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioproducer.compat._servers import servers_option
from aioproducer.compat.aiokafka import AIOKafkaProducer, TopicPartition
from aioproducer.compat.aiokafka._batch import BatchBuilder
from aioproducer.compat.aiokafka._offsets import checked_group, checked_offsets
from aioproducer.testing import EmbeddedCluster
from aioproducer.types import ConsumerGroupMetadata, OffsetAndMetadata

SASL = {"security_protocol": "SASL_PLAINTEXT"}


def silent(producer: Any) -> Any:
    """The same, not warning of having never been stopped."""
    producer._closed = True
    return producer


@pytest.mark.parametrize(
    "arguments",
    [
        {"acks": 2},
        {"acks": None},
        {"acks": "1"},
        {"acks": 0, "enable_idempotence": True},
        {"acks": 1, "transactional_id": "x"},
        {"compression_type": "none"},
        {"compression_type": "brotli"},
        {"security_protocol": "plaintext"},
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "X"},
        SASL,
        SASL | {"sasl_plain_username": "u"},
        SASL | {"sasl_mechanism": "X"},
        {"linger_ms": "a"},
        {"request_timeout_ms": "a"},
        {"unknown": 1},
    ],
    ids=str,
)
async def test_the_constructor_refuses_with_aiokafkas_type_and_text(
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(Exception) as theirs:
        aiokafka.AIOKafkaProducer(**arguments)
    with pytest.raises(type(theirs.value)) as here:
        AIOKafkaProducer(**arguments)
    assert type(here.value) is type(theirs.value)
    assert str(here.value) == str(theirs.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"acks": True},
        {"acks": "all"},
        {"linger_ms": 1.5},
        {"connections_max_idle_ms": None},
        {"client_id": 5},
        {"bootstrap_servers": ["a", "b:1"]},
        {"bootstrap_servers": "a:1,b:2"},
        {"sasl_mechanism": "X"},
        {"request_timeout_ms": 100, "linger_ms": 500, "retry_backoff_ms": 5_000},
        {"max_batch_size": 2**26},
        {"transaction_timeout_ms": None},
        SASL | {"sasl_mechanism": "GSSAPI"},
        SASL
        | {
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "u",
            "sasl_plain_password": "p",
        },
    ],
    ids=str,
)
async def test_the_constructor_takes_what_aiokafkas_takes(arguments: dict[str, Any]) -> None:
    silent(aiokafka.AIOKafkaProducer(**arguments))
    silent(AIOKafkaProducer(**arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {"bootstrap_servers": []},
        {"bootstrap_servers": "host:port"},
        {"metadata_max_age_ms": -1},
        {"request_timeout_ms": -1},
        {"max_batch_size": -1},
        {"transactional_id": ""},
        SASL | {"sasl_mechanism": "OAUTHBEARER"},
        SASL | {"sasl_mechanism": "GSSAPI", "sasl_kerberos_domain_name": "example.org"},
    ],
    ids=str,
)
async def test_the_constructor_refuses_what_cannot_work(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        AIOKafkaProducer(**arguments)


def test_no_running_loop_is_needed() -> None:
    silent(AIOKafkaProducer())


async def test_deprecated_parameters_warn_as_aiokafkas_do() -> None:
    loop = asyncio.get_running_loop()
    with pytest.warns(DeprecationWarning, match="loop") as caught:
        silent(AIOKafkaProducer(loop=loop))
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="api_version") as caught:
        silent(AIOKafkaProducer(api_version="auto"))
    assert caught[0].filename == __file__


async def test_starting_in_another_loop_is_refused_in_aiokafkas_words() -> None:
    producer = silent(AIOKafkaProducer())
    with pytest.raises(AssertionError, match="same loop as running with"):
        await asyncio.to_thread(asyncio.run, producer.start())


@pytest.mark.parametrize("debug", [False, True])
async def test_an_unclosed_producer_warns_and_reports_to_the_loop(debug: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(debug)
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    producer = AIOKafkaProducer()
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaProducer"):
        del producer
        gc.collect()
    (context,) = reported
    assert context["message"] == "Unclosed AIOKafkaProducer"
    assert ("source_traceback" in context) is debug


async def test_a_refused_constructor_does_not_warn_of_an_unclosed_producer() -> None:
    with pytest.raises(ValueError, match="Invalid ACKS"):
        AIOKafkaProducer(acks=7)
    gc.collect()


def test_without_asyncio_start_says_that_it_is_needed() -> None:
    producer = AIOKafkaProducer()
    with pytest.raises(RuntimeError, match=r"no asyncio event loop runs here .*trio"):
        producer.start().send(None)
    producer._closed = True


async def test_calls_before_start_and_after_stop_say_so() -> None:
    producer = AIOKafkaProducer()
    with pytest.raises(aiokafka.errors.IllegalStateError, match="not started"):
        await producer.send("t", b"v")
    await producer.flush()
    await producer.stop()
    await producer.stop()
    for call in (producer.send("t", b"v"), producer.partitions_for("t")):
        with pytest.raises(aiokafka.errors.ProducerClosed):
            await call


async def test_start_succeeds_after_one_that_failed_and_a_stop() -> None:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=500
        )
        await cluster.stop_broker(1)
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            await producer.start()
        await producer.stop()
        await cluster.start_broker(1)
        await producer.start()
        assert (await producer.send_and_wait("t", b"v")).offset == 0
        await producer.stop()
        for call in (producer.send("t", b"v"), producer.start()):
            with pytest.raises(aiokafka.errors.ProducerClosed):
                await call


async def test_of_several_starts_each_waits_for_the_one_that_connects() -> None:
    async with EmbeddedCluster(brokers=1, topics={"t": 1}) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

        async def start_and_send() -> int:
            await producer.start()
            return (await producer.send_and_wait("t", b"v")).offset

        async with producer:
            connection = producer._own_connection
            assert await asyncio.gather(start_and_send(), start_and_send()) == [0, 1]
            assert producer._own_connection is connection
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        assert await asyncio.gather(start_and_send(), start_and_send()) == [2, 3]
        await producer.stop()


@pytest.mark.parametrize(
    ("given_servers", "expected"),
    [
        ("localhost", ["localhost:9092"]),
        ("a, b:1 ", ["a:9092", "b:1"]),
        (["[::1]", "[::1]:1", "::2"], ["[::1]:9092", "[::1]:1", "[::2]:9092"]),
        ("a:1,", ["a:1"]),
        (["a:1", " ", ""], ["a:1"]),
    ],
)
def test_servers_without_a_port_have_kafkas(given_servers: Any, expected: list[str]) -> None:
    assert servers_option(given_servers) == expected


def test_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be addresses, not \['a:1', None\]"):
        AIOKafkaProducer(bootstrap_servers=["a:1", None])  # type: ignore[list-item]


def test_server_with_a_scheme_is_refused_as_it_was_given() -> None:
    with pytest.raises(ValueError, match=r"'SSL://broker:9093' has a scheme"):
        AIOKafkaProducer(bootstrap_servers="SSL://broker:9093")


def test_security_reaches_the_options() -> None:
    context = ssl.create_default_context()
    config = silent(
        AIOKafkaProducer(
            security_protocol="SASL_SSL",
            ssl_context=context,
            sasl_plain_username="u",
            sasl_plain_password="secret",
        )
    )._own_config
    assert config.ssl_context is context
    assert (config.sasl_mechanism, config.sasl_username) == ("PLAIN", "u")
    assert "secret" not in repr(config)


async def test_a_token_provider_is_asked_for_token_and_extensions() -> None:
    class Provider:
        async def token(self) -> str:
            return "t0ken"

        def extensions(self) -> dict[str, str]:
            return {"tenant": "a"}

    options = SASL | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    producer = silent(AIOKafkaProducer(**options))
    token = await producer._own_config.sasl_oauthbearer_token()
    assert (token.value, token.extensions) == ("t0ken", {"tenant": "a"})


async def test_a_token_provider_may_have_no_extensions() -> None:
    class Provider:
        async def token(self) -> str:
            return "t0ken"

    options = SASL | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    producer = silent(AIOKafkaProducer(**options))
    token = await producer._own_config.sasl_oauthbearer_token()
    assert (token.value, token.extensions) == ("t0ken", {})


def test_order_without_idempotence_is_kept_by_one_request_at_a_time() -> None:
    plain = silent(AIOKafkaProducer())._own_config
    assert (plain.acks_value, plain.max_in_flight_requests_per_connection) == (1, 1)
    safe = silent(AIOKafkaProducer(enable_idempotence=True))._own_config
    assert (safe.acks_value, safe.max_in_flight_requests_per_connection) == (-1, 5)
    assert (plain.delivery_timeout_ms, safe.delivery_timeout_ms) == (80_000, 120_000)


HERE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("offsets", "position"),
    [
        ({HERE: 5}, OffsetAndMetadata(5, "")),
        ({HERE: (5, "m")}, OffsetAndMetadata(5, "m")),
        ({HERE: OffsetAndMetadata(5, "m", 3)}, OffsetAndMetadata(5, "m", 3)),
        (
            {aiokafka.TopicPartition("t", 0): aiokafka.OffsetAndMetadata(5, "m")},
            OffsetAndMetadata(5, "m"),
        ),
    ],
)
def test_offsets_of_either_client_will_do(offsets: Any, position: OffsetAndMetadata) -> None:
    assert checked_offsets(offsets) == {HERE: position}


@pytest.mark.parametrize(
    ("offsets", "error", "text"),
    [
        ({}, ValueError, "{}"),
        (None, ValueError, "None"),
        ({("t", 0): 1}, TypeError, "Key should be TopicPartition instance"),
        ({HERE: "x"}, ValueError, "TopicPartition"),
        ({HERE: (1, 5)}, TypeError, "Metadata should be a string"),
        ({HERE: ("x", "m")}, TypeError, "str"),
    ],
)
def test_other_offsets_are_refused(offsets: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        checked_offsets(offsets)


@pytest.mark.parametrize("group", ["", None, 5])
def test_what_names_no_group_is_refused(group: Any) -> None:
    with pytest.raises(ValueError, match=f"^{group}$"):
        checked_group(group)
    assert checked_group("g") == ConsumerGroupMetadata("g")


# -- batches -------------------------------------------------------------------------------------

PARTS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
ROWS = st.lists(st.tuples(st.integers(0, 2**62), PARTS, PARTS, HEADERS), max_size=20)


def theirs(limit: int) -> Any:
    from aiokafka.producer.message_accumulator import BatchBuilder as Theirs

    return Theirs(limit, 0, is_transactional=False)


FILLS_200_BYTES = [(0, None, b"v" * 60, []), (0, None, b"v" * 63, [])]


@given(rows=ROWS, limit=st.sampled_from([0, 200, 1_000, 16_384]))
@example(rows=FILLS_200_BYTES, limit=200)
def test_a_batch_has_the_sizes_and_the_end_of_aiokafkas(rows: list[Any], limit: int) -> None:
    batches = (BatchBuilder(limit), theirs(limit))
    for timestamp, key, value, headers in rows:
        taken = [
            batch.append(timestamp=timestamp, key=key, value=value, headers=headers)
            for batch in batches
        ]
        facts = [each and (each.offset, each.size, each.timestamp) for each in taken]
        assert facts[0] == facts[1]
        assert batches[0].closed() == batches[1].closed()
        assert batches[0].record_count() == batches[1].record_count()
        assert batches[0].size() == batches[1].size()


@pytest.mark.parametrize(
    "record",
    [
        {"key": 1, "value": b"", "timestamp": None},
        {"key": None, "value": "text", "timestamp": None},
        {"key": None, "value": b"", "timestamp": "x"},
        {"key": None, "value": b"", "timestamp": None, "headers": [(1, b"")]},
        {"key": None, "value": b"", "timestamp": None, "headers": [("a", "b")]},
    ],
    ids=str,
)
def test_a_batch_refuses_a_record_with_aiokafkas_type_and_text(record: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as expected:
        theirs(1_000).append(**record)
    batch = BatchBuilder(1_000)
    with pytest.raises(TypeError) as refused:
        batch.append(**record)
    assert str(refused.value) == str(expected.value)
    assert batch.record_count() == 0


def test_a_batch_serializes_and_closes() -> None:
    batch = BatchBuilder(1_000, key_serializer=str.encode, value_serializer=str.encode)
    assert batch.append(key="k", value="v", timestamp=2.5) == (0, 9, 2)
    assert batch.parts()[0][:2] == (b"k", b"v")
    with pytest.raises(ValueError, match="negative"):
        batch.append(key="k", value="v", timestamp=-1)
    batch.close()
    assert batch.append(key="k", value="v", timestamp=None) is None
    assert batch.closed()


def test_record_in_a_batch_has_the_fields_of_aiokafkas() -> None:
    from aiokafka.record.default_records import DefaultRecordMetadata

    added = BatchBuilder(1_000).append(key=None, value=b"v", timestamp=5)
    theirs = DefaultRecordMetadata(0, 8, 5)
    fields = [name for name in dir(DefaultRecordMetadata) if not name.startswith("_")]
    assert [getattr(added, name) for name in fields] == [getattr(theirs, name) for name in fields]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_copy_is_refused_and_leaves_no_warning(duplicate: Callable[[Any], object]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(TypeError, match="create one in each process"):
        duplicate(producer)
    gc.collect()
    await producer.stop()
