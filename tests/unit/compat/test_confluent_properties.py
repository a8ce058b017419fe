"""Properties that confluent-kafka takes, with values in librdkafka's forms."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from ssl import TLSVersion
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest
from pydantic import SecretStr

from aioproducer.compat import confluent
from aioproducer.compat.confluent import KafkaError, KafkaException, Producer
from aioproducer.compat.confluent._properties import _UNSET_IF_EMPTY, as_ours
from aioproducer.compat.confluent._settings import _config_of, settings_of
from aioproducer.runtime.security_settings import tls_contexts

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
CLIENTS = pytest.mark.parametrize("client", [confluent_kafka, confluent], ids=["theirs", "ours"])


@CLIENTS
@pytest.mark.parametrize(
    "given",
    [
        {"acks": "All"},
        {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:1"},
        {"client.id": None},
        {"client.rack": None},
        {"compression.level": 0, "compression.type": "gzip"},
        {"compression.level": 12, "compression.type": "gzip"},
        {"compression.level": 5, "compression.type": "none"},
        {"compression.type": "Snappy"},
        {"delivery.timeout.ms": 0},
        {"enable.idempotence": 1},
        {"enable.idempotence": "t"},
        {"linger.ms": 0.5},
        {"max.in.flight": 10},
        {"metadata.broker.list": "127.0.0.1:2"},
        {"queue.buffering.max.messages": 0},
        {"queue.buffering.max.ms": "0.5"},
        {"ssl.cipher.suites": None, "security.protocol": "ssl"},
        {"topic.acks": 1},
        {"topic.message.timeout.ms": 5},
    ],
    ids=str,
)
def test_properties_of_confluent_kafka_are_taken(client: Any, given: dict[str, Any]) -> None:
    assert isinstance(client.Producer(NOWHERE | given), client.Producer)


@CLIENTS
@pytest.mark.parametrize(
    "given",
    [
        {"enable.idempotence": "yes"},
        {"enable.idempotence": True, "max.in.flight": 10},
        {"max.in.flight": 10, "transactional.id": "t"},
        {"linger.ms": None},
        {"linger.ms": "soon"},
        {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"},
        {"statistics.interval.ms": "often"},
        {"statistics.interval.ms": None},
        {"topic.acks": 1, "enable.idempotence": True},
        {"topic.client.id": "c"},
    ],
    ids=str,
)
def test_properties_that_confluent_kafka_refuses_are_invalid(
    client: Any, given: dict[str, Any]
) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        client.Producer(NOWHERE | given)
    assert raised.value.args[0].code() == KafkaError._INVALID_ARG


@pytest.mark.parametrize("more", [{}, {"client.id": "c", "queue.buffering.max.ms": 10}], ids=str)
def test_old_name_of_the_servers_does_not_mean_kafka_0_8(
    more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        config = settings_of({"metadata.broker.list": "127.0.0.1:1"} | more).config
    assert config.acks == "all"
    assert config.producer_type == "async"
    assert config.linger_ms == more.get("queue.buffering.max.ms", 5)
    # Others are of producers that earlier tests did not close.
    assert not [each for each in caplog.records if each.name == "aioproducer.producer"]


def test_acks_that_brokers_refuse_are_refused_by_the_constructor() -> None:
    with pytest.raises(KafkaException, match="acks must be one of"):
        Producer(NOWHERE | {"acks": 2})


def test_option_with_the_prefix_of_a_topic_is_read() -> None:
    config = settings_of(NOWHERE | {"topic.acks": 1, "topic.message.timeout.ms": 5000}).config
    assert (config.acks, config.delivery_timeout_ms) == (1, 5000)


def test_last_name_of_the_servers_counts() -> None:
    given = {"bootstrap.servers": "one", "metadata.broker.list": "two,two:9092"}
    assert settings_of(given).config.bootstrap == (("two", 9092),)


@pytest.mark.parametrize(
    ("given", "option", "expected"),
    [
        ({"acks": "ALL"}, "acks", "all"),
        ({"compression.codec": "GZIP"}, "compression_type", "gzip"),
        ({"enable.idempotence": "0"}, "enable_idempotence", False),
        ({"enable.idempotence": "T"}, "enable_idempotence", True),
        ({"linger.ms": "0.2"}, "linger_ms", 1),
        ({"linger.ms": 0.0}, "linger_ms", 0),
        ({"linger.ms": " 7 "}, "linger_ms", 7),
        ({"max.in.flight": 5}, "effective_idempotence", True),
        ({"max.in.flight": "6"}, "effective_idempotence", False),
        ({"max.in.flight": 6}, "max_in_flight_requests_per_connection", 6),
    ],
    ids=str,
)
def test_value_is_read_as_librdkafka_reads_it(
    given: dict[str, Any], option: str, expected: object
) -> None:
    assert getattr(settings_of(NOWHERE | given).config, option) == expected


@pytest.mark.parametrize(
    ("codec", "given", "level"),
    [
        ("gzip", 0, 1),
        ("gzip", "12", 9),
        ("gzip", -1, None),
        ("lz4", 17, 12),
        ("zstd", 19, 19),
        ("snappy", 0, None),
        ("none", 5, None),
    ],
)
def test_level_of_compression_is_brought_into_the_range_of_the_codec(
    codec: str, given: object, level: int | None
) -> None:
    more = {"compression.level": given, "compression.type": codec}
    assert settings_of(NOWHERE | more).config.compression_level == level


@CLIENTS
@pytest.mark.parametrize("protocol", ["plaintext", "ssl"])
@pytest.mark.parametrize("name", sorted(_UNSET_IF_EMPTY))
def test_empty_text_is_no_value(client: Any, protocol: str, name: str) -> None:
    given = NOWHERE | {"security.protocol": protocol}
    client.Producer(given | {name: ""})
    without = settings_of(given).config.explicitly_set
    assert settings_of(given | {name: ""}).config.explicitly_set == without


@pytest.mark.parametrize("suites", ["ECDHE-RSA-AES128-GCM-SHA256", "HIGH:!aNULL"])
def test_cipher_suites_leave_tls_1_3_as_it_is(suites: str) -> None:
    given = {"security.protocol": "ssl", "ssl.cipher.suites": suites}
    contexts = tls_contexts(settings_of(NOWHERE | given).config)
    assert contexts is not None
    context = asyncio.run(contexts.current())
    assert context.maximum_version == TLSVersion.TLSv1_3
    older = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
    assert "ECDHE-RSA-AES128-GCM-SHA256" in older


def test_a_file_of_authorities_that_is_to_be_found_is_the_systems() -> None:
    assert settings_of(NOWHERE | {"https.ca.location": "probe"}).config.https_ca_location is None
    named = settings_of(NOWHERE | {"https.ca.location": "ca.pem"}).config
    assert named.https_ca_location == "ca.pem"


class Text:
    """An object whose text is meant."""

    def __str__(self) -> str:
        return "text"


@CLIENTS
@pytest.mark.parametrize(
    ("name", "value", "option", "read"),
    [
        ("client.id", 5, "client_id", "5"),
        ("client.id", Text(), "client_id", "text"),
        ("client.id", b"bytes", "client_id", "bytes"),
        ("sasl.username", 5, "sasl_username", "5"),
        ("sasl.password", 12345, "sasl_password", "12345"),
        ("ssl.ca.location", Path("/ca.pem"), "ssl_truststore_location", "/ca.pem"),
        ("bootstrap.servers", b"127.0.0.1:1", "bootstrap_servers", ("127.0.0.1:1",)),
    ],
    ids=str,
)
def test_value_of_another_type_is_read_as_its_text(
    client: Any, name: str, value: Any, option: str, read: object
) -> None:
    options = NOWHERE | {"security.protocol": "plaintext", name: value}
    client.Producer(options)
    assert getattr(_config_of(as_ours(options)), option) == read


def test_secret_of_pydantic_is_refused() -> None:
    given = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with pytest.raises(KafkaException, match="get_secret_value"):
        settings_of(NOWHERE | given | {"sasl.password": SecretStr("p")})


def test_zero_is_no_limit_of_messages_and_of_their_time() -> None:
    more = {"queue.buffering.max.messages": "0", "delivery.timeout.ms": 0}
    settings = settings_of(NOWHERE | more)
    assert settings.max_records == settings.config.delivery_timeout_ms == 2**31 - 1
    assert settings_of(NOWHERE).max_records == 100_000


def test_credentials_are_sent_with_their_white_space() -> None:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": " user",
        "sasl.password": "secret ",
    }
    ask = settings_of(NOWHERE | login).config.sasl_credentials
    assert ask is not None
    assert ask() == (" user", "secret ")


def test_brokers_of_kerberos_are_named_as_librdkafka_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))
    given = NOWHERE | {"security.protocol": "SASL_PLAINTEXT"}
    assert settings_of(given).config.sasl_kerberos_service_name == "kafka"
    other = settings_of(given | {"sasl.kerberos.service.name": "broker"})
    assert other.config.sasl_kerberos_service_name == "broker"


def test_file_that_is_no_certificate_is_refused_by_the_constructor(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(confluent_kafka.KafkaException, match="neither PEM nor PKCS12"):
        Producer(NOWHERE | {"security.protocol": "ssl", "ssl.ca.location": str(file)})
