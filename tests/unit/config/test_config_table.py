"""The option table against Kafka 4.4's. The names that set nothing: `test_option_names`."""

import pytest

from aioproducer.config import OPTIONS, Kind, ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.partitioners import NAMED_PARTITIONERS

# ProducerConfig.configDef() of kafka-clients 4.4.0, without the 22 names that have no counterpart
# here: name, type, default.
KAFKA_4_4 = [
    ("acks", "string", "all"),
    ("batch.size", "int", 16_384),
    ("bootstrap.resolve.timeout.ms", "long", 0),
    ("bootstrap.servers", "list", None),
    ("buffer.memory", "long", 33_554_432),
    ("buffer.memory.allocation.strategy", "string", "full"),
    ("client.dns.lookup", "string", "use_all_dns_ips"),
    ("client.id", "string", ""),
    ("client.rack", "string", ""),
    ("compression.gzip.level", "int", -1),
    ("compression.lz4.level", "int", 9),
    ("compression.type", "string", "none"),
    ("compression.zstd.level", "int", 3),
    ("config.providers", "list", ()),
    ("connections.max.idle.ms", "long", 540_000),
    ("delivery.timeout.ms", "int", 120_000),
    ("enable.idempotence", "boolean", True),
    ("enable.metrics.push", "boolean", True),
    ("interceptor.classes", "list", ()),
    ("key.serializer", "class", None),
    ("linger.ms", "long", 5),
    ("max.block.ms", "long", 60_000),
    ("max.in.flight.requests.per.connection", "int", 5),
    ("max.request.size", "int", 1_048_576),
    ("metadata.cluster.check.enable", "boolean", True),
    ("metadata.max.age.ms", "long", 300_000),
    ("metadata.max.idle.ms", "long", 300_000),
    ("metadata.recovery.rebootstrap.trigger.ms", "long", 300_000),
    ("metadata.recovery.strategy", "string", "rebootstrap"),
    ("metric.reporters", "list", ("org.apache.kafka.common.metrics.JmxReporter",)),
    ("metrics.num.samples", "int", 2),
    ("metrics.recording.level", "string", "INFO"),
    ("metrics.sample.window.ms", "long", 30_000),
    ("partitioner.adaptive.partitioning.enable", "boolean", True),
    ("partitioner.availability.timeout.ms", "long", 0),
    ("partitioner.class", "class", None),
    ("partitioner.ignore.keys", "boolean", False),
    ("partitioner.rack.aware", "boolean", False),
    ("receive.buffer.bytes", "int", 32_768),
    ("reconnect.backoff.max.ms", "long", 1000),
    ("reconnect.backoff.ms", "long", 50),
    ("request.timeout.ms", "int", 30_000),
    ("retries", "int", 2_147_483_647),
    ("retry.backoff.max.ms", "long", 1000),
    ("retry.backoff.ms", "long", 100),
    ("sasl.client.callback.handler.class", "class", None),
    ("sasl.jaas.config", "password", None),
    ("sasl.kerberos.service.name", "string", None),
    ("sasl.login.callback.handler.class", "class", None),
    ("sasl.login.connect.timeout.ms", "int", None),
    ("sasl.login.read.timeout.ms", "int", None),
    ("sasl.login.refresh.buffer.seconds", "short", 300),
    ("sasl.login.refresh.min.period.seconds", "short", 60),
    ("sasl.login.refresh.window.factor", "double", 0.8),
    ("sasl.login.refresh.window.jitter", "double", 0.05),
    ("sasl.login.retry.backoff.max.ms", "long", 10_000),
    ("sasl.login.retry.backoff.ms", "long", 100),
    ("sasl.mechanism", "string", "GSSAPI"),
    ("sasl.oauthbearer.assertion.algorithm", "string", "RS256"),
    ("sasl.oauthbearer.assertion.claim.aud", "string", None),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "int", 300),
    ("sasl.oauthbearer.assertion.claim.iss", "string", None),
    ("sasl.oauthbearer.assertion.claim.jti.include", "boolean", False),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "int", 60),
    ("sasl.oauthbearer.assertion.claim.sub", "string", None),
    ("sasl.oauthbearer.assertion.file", "string", None),
    ("sasl.oauthbearer.assertion.private.key.file", "string", None),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "password", None),
    ("sasl.oauthbearer.assertion.template.file", "string", None),
    ("sasl.oauthbearer.client.credentials.client.id", "string", None),
    ("sasl.oauthbearer.client.credentials.client.secret", "password", None),
    ("sasl.oauthbearer.header.urlencode", "boolean", False),
    (
        "sasl.oauthbearer.jwt.retriever.class",
        "class",
        "class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    ("sasl.oauthbearer.scope", "string", None),
    ("sasl.oauthbearer.token.endpoint.url", "string", None),
    ("security.protocol", "string", "PLAINTEXT"),
    ("send.buffer.bytes", "int", 131_072),
    ("socket.connection.setup.timeout.max.ms", "long", 30_000),
    ("socket.connection.setup.timeout.ms", "long", 10_000),
    ("ssl.cipher.suites", "list", ()),
    ("ssl.enabled.protocols", "list", ("TLSv1.2", "TLSv1.3")),
    ("ssl.endpoint.identification.algorithm", "string", "https"),
    ("ssl.engine.factory.class", "class", None),
    ("ssl.key.password", "password", None),
    ("ssl.keystore.certificate.chain", "password", None),
    ("ssl.keystore.key", "password", None),
    ("ssl.keystore.location", "string", None),
    ("ssl.keystore.password", "password", None),
    ("ssl.keystore.type", "string", "JKS"),
    ("ssl.protocol", "string", "TLSv1.3"),
    ("ssl.truststore.certificates", "password", None),
    ("ssl.truststore.location", "string", None),
    ("ssl.truststore.password", "password", None),
    ("ssl.truststore.type", "string", "JKS"),
    ("transaction.timeout.ms", "int", 60_000),
    ("transaction.two.phase.commit.enable", "boolean", False),
    ("transactional.id", "string", None),
    ("value.serializer", "class", None),
]
OBJECTS_HERE = {
    "acks",
    "interceptor.classes",
    "metric.reporters",
    "partitioner.class",
}
"""Text or class names in Java; a number or an object in Python."""

DEFAULTS_HERE = {
    "partitioner.class": "default",  # Java's null: its built-in partitioner
    "enable.idempotence": None,  # Java's true, unless other options exclude it
    "metric.reporters": (),  # Java's JMX reporter
    "send.buffer.bytes": -1,  # Java's 128 KiB end the system's own tuning
    "sasl.oauthbearer.jwt.retriever.class": None,
}
BY_KAFKA_NAME = {row.kafka_name: row for row in OPTIONS.values()}


def config(**options) -> ProducerConfig:
    return ProducerConfig(**{"bootstrap_servers": "broker:9092"} | options)


def test_the_list_of_kafka_options_is_complete():
    assert len({name for name, _, _ in KAFKA_4_4}) == 120 - 22


@pytest.mark.parametrize(("name", "kind", "default"), KAFKA_4_4, ids=[row[0] for row in KAFKA_4_4])
def test_every_option_of_kafka_has_a_row_with_its_type_and_default(name, kind, default):
    row = BY_KAFKA_NAME[name]
    expected = Kind.OBJECT if name in OBJECTS_HERE or kind == "class" else Kind(kind)
    assert row.kind is expected
    assert row.default == DEFAULTS_HERE.get(name, default)


def test_options_of_our_own_are_few_and_say_where_they_come_from():
    own = {row.name: row.source for row in OPTIONS.values()} | {}
    for name, _, _ in KAFKA_4_4:
        del own[BY_KAFKA_NAME[name].name]
    assert own == {
        "allow_auto_create_topics": "KIP-487",
        "batch_max_records": "Kafka 0.8",
        "broker_version_fallback": "librdkafka",
        "buffer_max_records": "Kafka 0.8",
        "compressed_topics": "Kafka 0.8",
        "compression_threads_threshold_bytes": "aioproducer",
        "dialer": "aioproducer",
        "enqueue_timeout_ms": "Kafka 0.8",
        "https_ca_location": "librdkafka",
        "on_data_loss": "aioproducer",
        "on_delivery_error": "aioproducer",
        "producer_type": "Kafka 0.8",
        "proxy_url": "aioproducer",
        "sasl_password": "librdkafka",
        "sasl_username": "librdkafka",
        "ssl_key_location": "librdkafka",
    }


def test_every_row_is_documented_and_units_are_named():
    for row in OPTIONS.values():
        assert row.doc, row.name
        if row.name.endswith("_ms"):
            assert "ms" in row.doc.replace("_ms", ""), row.name


def test_the_defaults_pass_their_own_checks():
    for row in OPTIONS.values():
        if not row.required:
            assert row.checked(row.default) == row.default


def test_a_config_without_choices_holds_every_default():
    plain = config()
    for row in OPTIONS.values():
        if row.name not in ("bootstrap_servers", "client_id"):
            assert getattr(plain, row.name) == row.default
    assert plain.explicitly_set == {"bootstrap_servers"}


def test_named_partitioners_are_those_that_exist():
    for name in ("default", *NAMED_PARTITIONERS):
        assert config(partitioner=name).partitioner == name
    assert config(partitioner="crc32").partitioner == "consistent"


# -- unknown names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("linger_mss", "linger_ms"), ("batchsize", "batch_size"), ("ack", "acks")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(wrong, right):
    with pytest.raises(ConfigError, match=f"unknown option {wrong}; did you mean {right}"):
        config(**{wrong: 1})


def test_an_unknown_option_like_no_other_is_refused_without_a_guess():
    with pytest.raises(ConfigError, match=r"^unknown option zzz$"):
        config(zzz=1)
