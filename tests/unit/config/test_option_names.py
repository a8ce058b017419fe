"""Every name that other clients document, and what it means here."""

from __future__ import annotations

import ctypes
import inspect
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiokafka.admin
import confluent_kafka
import pytest

from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.config.aliases import ALIASES
from aioproducer.config.jaas import parse_jaas
from aioproducer.config.legacy_aliases import LEGACY_PROPERTIES
from aioproducer.config.names import VERDICTS, verdict_on
from aioproducer.config.other_clients import FOR_PRODUCERS, PREFIXES
from aioproducer.config.reading import options_of
from aioproducer.config.table_security import ROWS, SUITES_OF_TLS_1_3
from aioproducer.config.verdicts import Alias, Refused
from aioproducer.errors import ConfigError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its own, of how it reads its schemas
    import kafka
    import kafka.admin

LISTS = Path(__file__).parent / "option_names"
SERVERS = {"bootstrap.servers": "broker:9092"}


def names_in(list_name: str) -> list[str]:
    lines = (LISTS / f"{list_name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def is_ours(name: str) -> bool:
    return name.replace(".", "_") in ROWS


def read(properties: Mapping[str, Any], *, as_text: bool = True) -> dict[str, Any]:
    """The options that are set, without the rules between them."""
    return options_of(properties, as_text=as_text)


# -- the table is complete -----------------------------------------------------------------------

PUBLISHED = {
    "aiokafka": 50,
    "confluent_kafka": 17,
    "confluent_serializers": 114,
    "java_admin": 91,
    "java_connect": 164,
    "java_consumer": 116,
    "java_former": 21,
    "java_producer": 113,
    "java_producer_former": 5,
    "java_serializers": 10,
    "java_streams": 74,
    "kafka_0_8": 18,
    "kafka_python": 79,
    "librdkafka": 193,
}
"""Every list, and how many names it has."""


def test_the_lists_are_all_there() -> None:
    assert {path.stem: len(names_in(path.stem)) for path in LISTS.glob("*.txt")} == PUBLISHED


@pytest.mark.parametrize("client", PUBLISHED)
def test_every_published_name_is_ours_or_has_a_verdict(client: str) -> None:
    without = [name for name in names_in(client) if not is_ours(name) and verdict_on(name) is None]
    assert without == []


@pytest.mark.parametrize("client", PUBLISHED)
def test_every_published_name_is_accepted_or_refused_by_its_verdict(
    client: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for name in names_in(client):
        verdict = verdict_on(name)
        if is_ours(name) or isinstance(verdict, Alias):
            continue
        for spelled in (name, name.replace(".", "_")):
            caplog.clear()
            if isinstance(verdict, Refused):
                with pytest.raises(ConfigError) as error:
                    ProducerConfig.from_properties(SERVERS | {spelled: "any value"})
                assert spelled in str(error.value)
                assert verdict.reason in str(error.value)
                assert error.value.advice == verdict.instead
            else:
                config = ProducerConfig.from_properties(SERVERS | {spelled: "any value"})
                assert config.explicitly_set == {"bootstrap_servers"}
                (record,) = caplog.records
                assert f"{spelled} ({verdict.reason})" in record.getMessage()


def librdkafkas_own_list(path: Path) -> set[str]:
    """The properties as the installed library describes them."""
    (library,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob(
        "librdkafka*"
    )
    librdkafka, libc = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = librdkafka.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = libc.fopen(str(path).encode(), b"w")
    librdkafka.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    lines = path.read_text(encoding="utf-8").splitlines()
    return {found[1] for line in lines if (found := re.match(r"([a-z_.]+) +\| +[PC*] ", line))}


def test_the_lists_have_what_the_installed_clients_document(tmp_path: Path) -> None:
    theirs = librdkafkas_own_list(tmp_path / "CONFIGURATION.md")
    assert len(theirs) > 150
    assert theirs <= set(names_in("librdkafka"))
    for client in (
        aiokafka.AIOKafkaProducer,
        aiokafka.AIOKafkaConsumer,
        aiokafka.admin.AIOKafkaAdminClient,
    ):
        parameters = inspect.signature(client.__init__).parameters
        assert set(parameters) - {"self", "topics"} <= set(names_in("aiokafka"))
    for client in (kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient):
        assert set(client.DEFAULT_CONFIG) <= set(names_in("kafka_python"))
    assert set(names_in("kafka_0_8")) == set(LEGACY_PROPERTIES)


def test_the_table_has_no_name_of_ours_and_none_twice() -> None:
    assert [name for name in VERDICTS if is_ours(name)] == []
    assert len({name.replace(".", "_") for name in VERDICTS}) == len(VERDICTS)


def test_every_verdict_says_why_and_what_to_do() -> None:
    for name, verdict in VERDICTS.items():
        if not isinstance(verdict, Alias):
            assert verdict.reason, name
            assert verdict.reason[0].islower() or verdict.reason.startswith(
                ("Python", "OpenSSL", "`")
            ), name
        if isinstance(verdict, Refused):
            assert verdict.instead, name
            for option in re.findall(r"`([a-z]+_[a-z_]+)`", verdict.reason + verdict.instead):
                assert option in OPTIONS, name


# -- aliases -------------------------------------------------------------------------------------


def test_every_alias_is_of_an_option_that_exists() -> None:
    for name, alias in ALIASES.items():
        levels = [alias.option.replace("*", codec) for codec in ("gzip", "lz4", "zstd")]
        assert set(levels) <= OPTIONS.keys(), name


def extensions_of(line: Any) -> str:
    options = parse_jaas(line, "OAUTHBEARER").options
    return ",".join(f"{name.removeprefix('extension_')}={value}" for name, value in options.items())


def same(value: Any) -> Any:
    return value


FOREVER = 2**31 - 1
CONVERSIONS: dict[str, tuple[list[tuple[Any, Any]], Callable[[Any], Any]]] = {
    "queue.buffering.max.kbytes": ([(1, 1024), (2**21, 2**31)], lambda ours: ours // 1024),
    "queue.buffering.max.messages": ([(0, None), (7, 7)], lambda ours: ours or 0),
    "message.timeout.ms": (
        [(0, FOREVER), (5000, 5000)],
        lambda ours: 0 if ours == FOREVER else ours,
    ),
    "socket.send.buffer.bytes": ([(0, -1), (4096, 4096)], lambda ours: max(ours, 0)),
    "socket.receive.buffer.bytes": ([(0, -1), (4096, 4096)], lambda ours: max(ours, 0)),
    "topic.metadata.refresh.interval.ms": ([(-1, -1), (0, 0), (8000, 8000)], same),
    "queue.enqueue.timeout.ms": ([(-1, -1), (0, 0), (50, 50)], same),
    "compression.codec": (
        [("0", "none"), ("1", "gzip"), ("2", "snappy"), ("3", "lz4")],
        lambda ours: str(["none", "gzip", "snappy", "lz4"].index(ours)),
    ),
    "compression.level": ([(7, 7)], same),
    "ssl.ca.location": ([("probe", None), ("ca.pem", "ca.pem")], lambda ours: ours or "probe"),
    "ssl_check_hostname": ([(True, "https"), (False, "")], lambda ours: ours == "https"),
    "ssl_ciphers": (
        [("HIGH:!aNULL", ("HIGH", "!aNULL", *SUITES_OF_TLS_1_3))],
        lambda ours: ":".join(ours[:2]),
    ),
    "block.on.buffer.full": ([(True, -1), (False, 0)], lambda ours: ours == -1),
    "sasl.oauthbearer.grant.type": (
        [
            ("client_credentials", "client_credentials"),
            ("urn:ietf:params:oauth:grant-type:jwt-bearer", "jwt_bearer"),
        ],
        {
            "client_credentials": "client_credentials",
            "jwt_bearer": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        }.__getitem__,
    ),
    "sasl.oauthbearer.extensions": (
        [
            (
                'logicalCluster=lkc-1,identityPoolId=pool-"\\=2',
                "OAuthBearerLoginModule required "
                'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-\\"\\\\=2";',
            )
        ],
        extensions_of,
    ),
}
"""Of every alias with a conversion: values there and here, and the way back."""


def test_every_conversion_is_tested() -> None:
    assert {name for name, alias in ALIASES.items() if alias.convert} == CONVERSIONS.keys()


@pytest.mark.parametrize("name", CONVERSIONS)
def test_every_conversion_goes_there_and_back(name: str) -> None:
    samples, back = CONVERSIONS[name]
    for theirs, ours in samples:
        for as_text, given in ((True, theirs), (True, str(theirs)), (False, theirs)):
            for spelled in (name, name.replace(".", "_")):
                codec = {"compression.type": "zstd"} if name == "compression.level" else {}
                found = read(codec | {spelled: given}, as_text=as_text)
                option = ALIASES[name].option.replace("*", "zstd")
                assert found[option] == ours
                assert type(found[option]) is type(ours)
                assert back(found[option]) == theirs


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("queue.buffering.max.kbytes", True),
        ("queue.buffering.max.kbytes", 1.5),
        ("queue.buffering.max.kbytes", "many"),
        ("message.timeout.ms", float("nan")),
        ("ssl_check_hostname", 1),
        ("ssl_check_hostname", "yes"),
        ("sasl.oauthbearer.grant.type", "password"),
        ("sasl.oauthbearer.extensions", "logicalCluster"),
    ],
)
def test_values_that_cannot_be_converted_are_refused_under_the_name_given(
    name: str, bad: Any
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(name)} must be {ALIASES[name].expects}"):
        read({name: bad}, as_text=False)


def test_a_limit_is_reported_with_the_name_that_was_given() -> None:
    with pytest.raises(
        ConfigError, match=r"linger_ms \(given as queue\.buffering\.max\.ms\) must be at least 0"
    ):
        ProducerConfig.from_properties(SERVERS | {"queue.buffering.max.ms": "-1"})
    with pytest.raises(ConfigError, match=r"batch_size \(given as max_batch_size\) must be a 32"):
        ProducerConfig(bootstrap_servers="a:1", max_batch_size="many")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("message_timeout_ms", "delivery_timeout_ms", 60_000),
        ("queue_buffering_max_ms", "linger_ms", 7),
        ("queue.buffering.max.ms", "linger_ms", 7),
        ("connection_timeout_ms", "socket_connection_setup_timeout_ms", 2_000),
        ("max_batch_size", "batch_size", 99),
        ("linger.ms", "linger_ms", 7),
        ("socks5_proxy", "proxy_url", "socks5://a:1"),
        ("partitioner_class", "partitioner", len),
    ],
)
def test_keywords_know_the_names_of_properties(name: str, option: str, value: Any) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", **{name: value})
    assert getattr(config, option) == value
    assert config.explicitly_set == {"bootstrap_servers", option}
    replaced = ProducerConfig(bootstrap_servers="a:1", linger_ms=1).replace(**{name: value})
    assert getattr(replaced, option) == value


def test_names_of_variables_are_looked_up_in_the_same_table() -> None:
    config = ProducerConfig.from_env(
        environ={
            "AIOPRODUCER_METADATA_BROKER_LIST": "a:1",
            "AIOPRODUCER_MESSAGE_TIMEOUT_MS": "60000",
            "AIOPRODUCER_GROUP_ID": "g",
        }
    )
    assert (config.bootstrap, config.delivery_timeout_ms) == ((("a", 1),), 60_000)


def test_of_two_names_the_one_that_means_the_option_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert read({"socket.timeout.ms": "7000"}) == {"request_timeout_ms": 7000}
    assert caplog.records == []
    for properties in (
        {"socket.timeout.ms": "7000", "request.timeout.ms": "8000"},
        {"request.timeout.ms": "8000", "socket.timeout.ms": "7000"},
    ):
        caplog.clear()
        assert read(properties) == {"request_timeout_ms": 8000}
        (record,) = caplog.records
        assert "socket.timeout.ms (request.timeout.ms is given)" in record.getMessage()
    librdkafkas = {"metadata.max.age.ms": "900000", "topic.metadata.refresh.interval.ms": "5000"}
    assert read(librdkafkas) == {"metadata_max_age_ms": 5000}


# -- without effect ------------------------------------------------------------------------------


def test_one_warning_names_all_that_has_no_effect_and_no_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ProducerConfig.from_properties(
        SERVERS
        | {"session.timeout.ms": "45000", "group.id": "g", "basic.auth.user.info": "me:secret"}
    )
    (record,) = caplog.records
    assert record.name == "aioproducer.producer"
    assert record.getMessage() == (
        "options without effect: session.timeout.ms, group.id (it configures consumers); "
        "basic.auth.user.info (it configures Confluent's serializers; here "
        "`aioproducer.serializers` has them, with arguments)"
    )


def test_copies_do_not_warn_again(caplog: pytest.LogCaptureFixture) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", group_id="g")
    assert len(caplog.records) == 1
    config.replace(linger_ms=1)
    assert len(caplog.records) == 1


def test_names_of_older_versions_of_kafka_python_have_no_effect() -> None:
    names = ["api_version_auto_timeout_ms", "bootstrap_topics_filter"]
    names += ["sock_chunk_buffer_count", "sock_chunk_bytes"]
    config = ProducerConfig(bootstrap_servers="a:1", **dict.fromkeys(names, 4096))
    assert config.explicitly_set == {"bootstrap_servers"}


def test_a_foreign_name_with_none_asks_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    # kafka-python's defaults, which programs pass on.
    nothing = dict.fromkeys(
        ["api_version", "ssl_crlfile", "ssl_cafile", "on_delivery", "ssl_password"]
    )
    config = ProducerConfig(bootstrap_servers="a:1", **nothing)
    assert config.explicitly_set == {"bootstrap_servers"}
    assert caplog.records == []


@pytest.mark.parametrize("prefix", PREFIXES)
def test_names_of_parts_of_other_programs_have_no_effect(prefix: str) -> None:
    assert read({f"{prefix}any.thing": "1"}) == {}
    if "_" not in prefix:
        with pytest.raises(ConfigError, match="unknown option"):
            read({f"{prefix}any.thing".replace(".", "_"): "1"})


@pytest.mark.parametrize("prefix", FOR_PRODUCERS)
def test_options_of_a_producer_inside_another_program_are_to_be_given_themselves(
    prefix: str,
) -> None:
    with pytest.raises(ConfigError, match=r"give linger\.ms itself"):
        read({f"{prefix}linger.ms": "1"})


# -- refused -------------------------------------------------------------------------------------


def test_values_that_ask_for_what_is_done_anyway_are_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harmless = {
        name: verdict.harmless
        for name, verdict in VERDICTS.items()
        if isinstance(verdict, Refused) and verdict.harmless
    }
    assert len(harmless) > 5
    for name, values in harmless.items():
        for value in values:
            assert read({name: f" {value.upper()} "}) == {}
        with pytest.raises(ConfigError, match=re.escape(name)):
            read({name: "something else"})
    assert read({"enable.ssl.certificate.verification": True}, as_text=False) == {}
    assert read({"enable.ssl.certificate.verification": 1}, as_text=False) == {}
    assert read({"enable.gapless.guarantee": "f"}) == {}
    with pytest.raises(ConfigError, match=r"always verified.*ssl_context"):
        read({"enable.ssl.certificate.verification": False}, as_text=False)
    assert caplog.records == []


def test_a_callback_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ConfigError, match=r"on_delivery does not apply.*never be called") as error:
        ProducerConfig(bootstrap_servers="a:1", on_delivery=print)
    assert "add_done_callback" in str(error.value.advice)


# -- unknown -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["session.timeout.ms", "session_timeout_ms", "on_delivery", "ssl.crl.location", "max.retries"],
)
def test_a_known_name_gets_no_guess(name: str, caplog: pytest.LogCaptureFixture) -> None:
    try:
        read({name: "1"})
    except ConfigError as error:
        assert "did you mean" not in str(error)
    assert "did you mean" not in caplog.text


@pytest.mark.parametrize(
    ("wrong", "right", "as_text"),
    [
        ("message.timeot.ms", "message.timeout.ms", True),
        ("message_timeot_ms", "message_timeout_ms", False),
        ("linger.msec", "linger.ms", True),
        ("sesion.timeout.ms", "session.timeout.ms", True),
        ("sesion_timeout_ms", "session_timeout_ms", False),
        ("ack", "acks", True),
        ("batchsize", "batch.size", True),
        ("batchsize", "batch_size", False),
        ("brokers", "bootstrap_servers", False),
        ("server", "bootstrap.servers", True),
        ("BOOTSTRAP_SERVERS", "bootstrap_servers", False),
        ("spring.kafka.producer.properties.linger.ms", "linger.ms", True),
        ("spring.kafka.producer.batch-size", "batch.size", True),
        ("mp.messaging.outgoing.orders.acks", "acks", True),
        ("KAFKA_PRODUCER_LINGER_MS", "linger_ms", False),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_of_all_names(
    wrong: str, right: str, as_text: bool
) -> None:
    with pytest.raises(ConfigError) as error:
        read({wrong: "1"}, as_text=as_text)
    assert str(error.value) == f"unknown option {wrong}; did you mean {right}?"


def test_the_name_of_an_option_is_text() -> None:
    with pytest.raises(ConfigError, match="the name of an option must be a str, not 5"):
        ProducerConfig.from_properties({5: "a"})  # type: ignore[dict-item]


# -- whole configurations ------------------------------------------------------------------------

CONFLUENT_CLOUD_PYTHON = """
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-12345.europe-west3.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=key
sasl.password=secret

# Best practice for higher availability in librdkafka clients prior to 1.7
session.timeout.ms=45000

client.id=ccloud-python-client-1

# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-12345.europe-west3.gcp.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=registry-key:registry-secret
"""
CONFLUENT_CLOUD_JAVA = """
bootstrap.servers=pkc-12345.europe-west3.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='key' \
password='secret';
sasl.mechanism=PLAIN
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
client.id=ccloud-java-client-1
schema.registry.url=https://psrc-12345.europe-west3.gcp.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=registry-key:registry-secret
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
group.id=example
auto.offset.reset=earliest
"""


@pytest.mark.parametrize("text", [CONFLUENT_CLOUD_PYTHON, CONFLUENT_CLOUD_JAVA])
def test_confluent_clouds_own_client_files_are_accepted(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text, encoding="utf-8")
    config = ProducerConfig.from_file(file)
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "PLAIN")
    assert "secret" in (config.sasl_password or config.sasl_jaas_config or "")
    (record,) = caplog.records
    assert "session.timeout.ms" in record.getMessage()
    assert "schema.registry.url" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_librdkafkas_oidc_means_our_token_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    theirs = ProducerConfig.from_properties(
        SERVERS
        | {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hush",
            "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
            "sasl.oauthbearer.grant.type": "client_credentials",
            "enable.ssl.certificate.verification": "true",
        },
        allow=["https://issuer/token"],
    )
    ours = ProducerConfig(
        bootstrap_servers="broker:9092",
        client_id=theirs.client_id,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret="hush",
        sasl_oauthbearer_token_endpoint_url="https://issuer/token",
        sasl_oauthbearer_scope="kafka",
        sasl_oauthbearer_jwt_retriever_class="client_credentials",
        sasl_jaas_config="OAuthBearerLoginModule required "
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2";',
    )
    assert theirs == ours
    assert caplog.records == []


# -- cost ----------------------------------------------------------------------------------------


def test_the_table_is_imported_only_for_names_that_are_not_ours() -> None:
    program = """
import sys
from aioproducer import ProducerConfig
tables = ("aioproducer.config.names", "aioproducer.config.other_clients")
ProducerConfig(bootstrap_servers="a:1", linger_ms=5).replace(acks=1)
ProducerConfig.from_properties({"bootstrap.servers": "a:1", "linger.ms": "5"})
assert not set(tables) & set(sys.modules), "imported"
ProducerConfig(bootstrap_servers="a:1", group_id="g")
assert set(tables) <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
