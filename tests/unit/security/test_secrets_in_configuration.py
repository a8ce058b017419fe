"""Secrets of a configuration appear in no error, no frame of one, no repr and no pickle."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from support.frames import shown_by

import aioproducer
from aioproducer import ProducerConfig, blocking
from aioproducer.compat import aiokafka, confluent, kafka
from aioproducer.errors import ConfigError
from aioproducer.serializers import SchemaRegistry
from aioproducer.testing import MockProducer
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import OAuthToken, SaslCredentials

SECRET = "hunter2-4711"


def login(**options: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": "broker:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "me",
        "sasl_password": SECRET,
        **options,
    }


JAAS = f'PlainLoginModule required username="me" password="{SECRET}"'

WRONG: dict[str, dict[str, Any]] = {
    "another option": login(linger_ms="soon"),
    "an unknown option": login(lingering=5),
    "a rule": login(acks=1, enable_idempotence=True),
    "the name of the secret": login(sasl_pasword=SECRET),
    "its type": login(sasl_password=[SECRET]),
    "a dict of it": login(sasl_password={"password": SECRET}),
    "bytes": login(sasl_password=SECRET.encode()),
    "a secret in place of the mechanism": login(security_protocol="SASL_SSL", sasl_kerberos=SECRET),
    "jaas": login(sasl_username=None, sasl_password=None, sasl_jaas_config=JAAS),
    "jaas with a quote": login(
        sasl_username=None, sasl_password=None, sasl_jaas_config=f'{JAAS}{SECRET}"x" ;'
    ),
    "jaas with a broken password": login(
        sasl_username=None,
        sasl_password=None,
        sasl_jaas_config=f'PlainLoginModule required username="me" password="ab"{SECRET}="c";',
    ),
    "proxy": login(proxy_url=f"http://me:{SECRET}/x@proxy:port"),
    "proxy with a port of text": login(proxy_url=f"http://me:{SECRET}@proxy:x1"),
    "proxy without an escape": login(proxy_url=f"http://me:{SECRET}#1@proxy:80"),
    "both ways of the key": login(ssl_keystore_key=SECRET, ssl_key_location="/x"),
    "a key without certificates": login(ssl_keystore_key=SECRET),
    "servers": login(bootstrap_servers=f"me:{SECRET}@broker:9092"),
    "servers with a scheme": login(bootstrap_servers=f"sasl://me:{SECRET}@broker:9092"),
    "token endpoint": login(
        sasl_mechanism="OAUTHBEARER",
        sasl_username=None,
        sasl_password=None,
        sasl_oauthbearer_token_endpoint_url=f"https://me:{SECRET}@issuer/token",
    ),
    "token endpoint of no scheme": login(
        sasl_mechanism="OAUTHBEARER",
        sasl_username=None,
        sasl_password=None,
        sasl_oauthbearer_token_endpoint_url=f"ftp://me:{SECRET}@issuer/token",
    ),
}


for mark in "/,?#@:;":
    # A mark that is not encoded ends the password early for whatever divides the text at it.
    for place, password in (("after", f"9{mark}{SECRET}"), ("before", f"{SECRET}{mark}9")):
        name = f"a password with {mark} {place} it"
        WRONG[f"servers, {name}"] = login(bootstrap_servers=f"a:1,me:{password}@broker:9092")
        WRONG[f"token endpoint, {name}"] = login(
            sasl_mechanism="OAUTHBEARER",
            sasl_username=None,
            sasl_password=None,
            sasl_oauthbearer_token_endpoint_url=f"https://me:{password}@issuer/token",
        )
        WRONG[f"proxy, {name}"] = login(proxy_url=f"http://me:{password}@proxy:port")


NO_TEXT = {"its type", "a dict of it", "bytes"}


def by_properties(**options: Any) -> object:
    return ProducerConfig.from_properties(
        {name.replace("_", "."): value for name, value in options.items() if value is not None}
    )


def by_environment(**options: Any) -> object:
    variables = {f"AIOPRODUCER_{k.upper()}": str(v) for k, v in options.items() if v is not None}
    return ProducerConfig.from_env(environ=variables)


MAKERS: dict[str, Callable[..., object]] = {
    "config": ProducerConfig,
    "properties": by_properties,
    "environment": by_environment,
    "replace": lambda **options: ProducerConfig(bootstrap_servers="b:1").replace(**options),
    "producer": aioproducer.Producer,
    "producer of a mapping": lambda **options: aioproducer.Producer(options),
    "blocking": blocking.Producer,
    "admin": TransactionAdmin,
    "mock": MockProducer,
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_no_wrong_option_shows_a_secret(maker: str, wrong: str) -> None:
    if maker == "environment" and wrong in NO_TEXT:
        pytest.skip("a variable is always text")
    with pytest.raises((ConfigError, TypeError)) as raised:
        MAKERS[maker](**WRONG[wrong])
    assert SECRET not in shown_by(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: kafka.KafkaProducer(
            bootstrap_servers="b:1",
            api_version=(2, 0),
            sasl_plain_password=SECRET,
            ssl_password=SECRET,
            linger_ms="soon",
        ),
        lambda: aiokafka.AIOKafkaProducer(
            security_protocol="SASL_SSL",
            sasl_mechanism="NTLM",
            sasl_plain_username="me",
            sasl_plain_password=SECRET,
        ),
        lambda: confluent.Producer(
            {"bootstrap.servers": "b:1", "sasl.password": SECRET, "ssl.key.pem": SECRET, "x.y": 1}
        ),
        lambda: confluent.Producer(
            {"bootstrap.servers": "b:1", "sasl.oauthbearer.extensions": f"a={SECRET},{SECRET}"}
        ),
    ],
)
def test_other_clients_interfaces_show_none_either(make: Callable[[], object]) -> None:
    if make.__code__.co_names[0] == "aiokafka":
        import asyncio

        async def inside() -> None:
            make()

        with pytest.raises(ValueError) as raised:
            asyncio.run(inside())
    else:
        with pytest.raises(Exception) as raised:
            make()
    assert SECRET not in shown_by(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"bootstrap.servers": "b:1", "sasl.password": SECRET, "linger.ms": "soon"},
        {"bootstrap.servers": "b:1", "sasl.password": SECRET, "error_cb": 1},
        {"bootstrap.servers": "b:1", "sasl.password": SECRET, "key.serializer": 1},
    ],
)
def test_a_serializing_producer_shows_none(options: dict[str, Any]) -> None:
    with pytest.raises(Exception) as raised:
        confluent.SerializingProducer(options)
    assert SECRET not in shown_by(raised.value)


def test_faststreams_broker_shows_none() -> None:
    pytest.importorskip("faststream.kafka", reason="FastStream is not installed")
    import faststream.kafka

    from aioproducer.contrib.faststream import KafkaBroker, publish_natively

    for make in (
        lambda: KafkaBroker("b:1", producer=login(linger_ms="soon")),
        lambda: publish_natively(faststream.kafka.KafkaBroker("b:1"), login(linger_ms="soon")),
    ):
        with pytest.raises(ConfigError) as raised:
            make()
        assert SECRET not in shown_by(raised.value)


def test_calls_for_spark_show_none() -> None:
    from aioproducer.spark import batch_writer, register

    options = {"kafka.bootstrap.servers": "b:1", "kafka.sasl.password": SECRET, "topic": "t"}
    for wrong in ({"kafka.linger.ms": "soon"}, {"unknown": "x"}, {"job.id": "x"}):
        with pytest.raises(ConfigError) as raised:
            batch_writer(options | wrong)
        assert SECRET not in shown_by(raised.value)
    session: Any = object()
    with pytest.raises(Exception) as failed:
        register(session, options=options)
    assert SECRET not in shown_by(failed.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"value.schema": '{"type": 5}'},
        {"value.schema": "x", "value.format": "json-schema"},
        {"value.schema": "x", "value.format": "protobuf"},
        {"schema.registry.url": "ftp://registry"},
    ],
)
def test_no_option_of_a_registry_for_spark_shows_its_login(
    wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    from aioproducer.spark.columns.encoding import encode_batches, encoded_parts
    from aioproducer.spark.options import SourceOptions

    monkeypatch.setenv("LOGIN", f"me:{SECRET}")
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:LOGIN")
    given = {
        "kafka.bootstrap.servers": "broker:9092",
        "topic": "t",
        "value.format": "avro",
        "schema.registry.url": "http://registry",
        "schema.registry.user.info.env": "LOGIN",
    }
    options = SourceOptions.parse(given | wrong, "write")
    _, parts = encoded_parts([("x", "bigint")], options)
    batch = pa.RecordBatch.from_arrays([pa.array([1])], ["x"])
    columns: Any = None
    with pytest.raises(ConfigError) as raised:
        list(encode_batches(iter([batch]), parts, options, 0, columns))
    assert SECRET not in shown_by(raised.value)


@pytest.mark.parametrize("method", ["schema", "reader", "writer", "streamWriter"])
def test_the_source_for_spark_shows_none(method: str) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from aioproducer.spark import AioproducerSource

    source = AioproducerSource(
        {"kafka.bootstrap.servers": "b:1", "kafka.sasl.password": SECRET, "topic": "t"}
    )
    schema = types.StructType().add("value", "binary")
    arguments = {"schema": (), "reader": (schema,)}.get(method, (schema, False))
    with pytest.raises(ConfigError) as raised:
        getattr(source, method)(*arguments)
    assert SECRET not in shown_by(raised.value)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        rf"sasl.password=DOMAIN\user-{SECRET}",
        rf"sasl.password={SECRET}\u12",
        rf"sasl.password={SECRET}\uzzzz",
        f"sasl.password={SECRET}\nlinger.ms=soon",
        f"ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n{'MIIEvQ' * 10}{SECRET}\n",
        f"{SECRET.upper()}/+{'A' * 50}",
    ],
)
def test_no_error_about_a_file_shows_what_is_in_it(tmp_path: Any, content: str) -> None:
    path = tmp_path / "producer.properties"
    path.write_text(f"bootstrap.servers=b:1\n{content}\n")
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_file(path)
    assert SECRET.lower() not in shown_by(raised.value).lower()


def test_a_malformed_escape_is_named_by_its_key_and_line(tmp_path: Any) -> None:
    path = tmp_path / "producer.properties"
    path.write_text("bootstrap.servers=b:1\n\n" + r"sasl.password=DOMAIN\user" + "\n")
    with pytest.raises(ConfigError, match=r"line 3.*sasl\.password.*\\\\"):
        ProducerConfig.from_file(path)


def test_a_file_in_another_encoding_does_not_show_its_bytes(tmp_path: Any) -> None:
    path = tmp_path / "producer.properties"
    path.write_bytes(f"sasl.password={SECRET}\xe4".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8") as raised:
        ProducerConfig.from_file(path)
    assert SECRET not in shown_by(raised.value)


def test_the_whole_environment_is_in_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_PASSWORD", SECRET)
    monkeypatch.setenv("AIOPRODUCER_LINGER_MS", "soon")
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_env()
    assert SECRET not in shown_by(raised.value)


# -- the token endpoint ----------------------------------------------------------------------------


def test_a_token_endpoint_with_user_and_password_is_refused() -> None:
    with pytest.raises(ConfigError, match="client_credentials_client_id") as raised:
        ProducerConfig(**WRONG["token endpoint"])
    assert SECRET not in shown_by(raised.value)


def test_the_query_of_a_token_endpoint_is_not_shown() -> None:
    config = ProducerConfig(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"https://issuer/token?key={SECRET}",
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret=SECRET,
    )
    assert SECRET not in repr(config)
    assert "https://issuer/token?***" in repr(config)


# -- objects ---------------------------------------------------------------------------------------


def test_a_half_built_configuration_has_a_repr() -> None:
    assert "ProducerConfig" in repr(object.__new__(ProducerConfig))
    for kind in (aioproducer.Producer, blocking.Producer, MockProducer, TransactionAdmin):
        assert repr(object.__new__(kind))
    assert repr(object.__new__(SchemaRegistry))
    assert repr(object.__new__(kafka.KafkaProducer))
    assert repr(object.__new__(aiokafka.AIOKafkaProducer))
    assert repr(object.__new__(confluent.Producer))


HOLDERS = [
    SaslCredentials("me", SECRET, {"tokenauth": SECRET}, session_token=SECRET),
    OAuthToken(SECRET, 1.0, {"x": SECRET}),
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_credentials_are_not_pickled(holder: object, protocol: int) -> None:
    with pytest.raises(TypeError, match="not pickled") as raised:
        pickle.dumps(holder, protocol)
    assert SECRET not in str(raised.value)
    out = io.BytesIO()
    with pytest.raises(TypeError):
        pickle.Pickler(out, protocol).dump({"credentials": [holder]})
    assert SECRET.encode() not in out.getvalue()


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda each: type(each).__name__)
def test_credentials_are_copied_within_a_process(holder: object) -> None:
    assert copy.copy(holder) == holder
    assert copy.deepcopy([holder]) == [holder]
    assert SECRET not in repr(holder)


def inner_holders() -> list[object]:
    from aioproducer._util.backoff import ExponentialBackoff
    from aioproducer.config.jaas import parse_jaas
    from aioproducer.config.proxy_url import parse_proxy_url
    from aioproducer.net.security.assertions import AssertionSettings
    from aioproducer.net.security.oidc import EndpointSettings
    from aioproducer.net.security.pem import PemStore
    from aioproducer.net.security.tls import TlsSettings
    from aioproducer.serializers.registry.http import RegistrySettings

    pause = ExponentialBackoff(0.1, 2.0)
    return [
        parse_jaas(f"{JAAS};", "PLAIN"),
        parse_proxy_url(f"http://me:{SECRET}@proxy:80"),
        AssertionSettings("/key", SECRET),
        EndpointSettings("https://issuer", "me", SECRET),
        PemStore((), SECRET, SECRET),
        TlsSettings(key_password=SECRET, keystore_key=SECRET),
        RegistrySettings(
            ("http://r",), ("me", SECRET), SECRET, None, {"X": SECRET}, 1, 3, pause, {}
        ),
    ]


@pytest.mark.parametrize("holder", inner_holders(), ids=lambda each: type(each).__name__)
def test_no_object_that_holds_a_secret_is_pickled_or_shows_it(holder: object) -> None:
    assert SECRET not in repr(holder)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(holder)
