"""Options from properties, files and the environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.config import ProducerConfig, configured
from aioproducer.config.properties import parse_properties
from aioproducer.errors import ConfigError
from aioproducer.serializers import StringSerializer


def config(**options) -> ProducerConfig:
    return ProducerConfig(**{"bootstrap_servers": "broker:9092"} | options)


def properties(**entries) -> ProducerConfig:
    return ProducerConfig.from_properties(
        {"bootstrap.servers": "broker:9092"}
        | {name.replace("_", "."): value for name, value in entries.items()}
    )


def test_properties_are_read_from_text_and_from_values():
    read = properties(linger_ms=" 7 ", acks="1", retries=3, allow_auto_create_topics="FALSE")
    assert (read.linger_ms, read.acks, read.retries) == (7, 1, 3)
    assert read.allow_auto_create_topics is False


@pytest.mark.parametrize(
    ("name", "text"), [("linger.ms", "5ms"), ("linger.ms", ""), ("enable.idempotence", "yes")]
)
def test_text_of_the_wrong_type_is_refused(name, text):
    with pytest.raises(ConfigError, match=name.replace(".", "_")):
        ProducerConfig.from_properties({"bootstrap.servers": "a:1", name: text})


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("acks", '"all"', "leave out the quotes"),
        ("linger.ms", "'5'", "leave out the quotes"),
        ("linger.ms", "5 # ms", "put a comment on a separate line"),
    ],
)
def test_text_that_is_wrong_by_quotes_or_a_comment_has_advice(name, text, advice):
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_properties({"bootstrap.servers": "a:1", name: text})
    assert raised.value.advice == advice


def test_librdkafkas_names_mean_the_same_options():
    read = ProducerConfig.from_properties(
        {
            "metadata.broker.list": "a:1",
            "queue.buffering.max.ms": "9",
            "queue.buffering.max.kbytes": "100",
            "message.max.bytes": "2000",
            "message.send.max.retries": "4",
            "message.timeout.ms": "60000",
            "request.required.acks": "-1",
            "max.in.flight": "2",
            "compression.codec": "zstd",
            "compression.level": "7",
            "partitioner": "murmur2_random",
            "socket.send.buffer.bytes": "0",
            "topic.metadata.refresh.interval.ms": "8000",
        }
    )
    assert read == config(
        bootstrap_servers="a:1",
        client_id=read.client_id,
        linger_ms=9,
        buffer_memory=102_400,
        max_request_size=2_000,
        retries=4,
        delivery_timeout_ms=60_000,
        acks="all",
        max_in_flight_requests_per_connection=2,
        compression_type="zstd",
        compression_zstd_level=7,
        partitioner="murmur2_random",
        send_buffer_bytes=-1,
        metadata_max_age_ms=8_000,
    ).replace(client_id=read.client_id)


def test_no_interceptors_may_be_written_as_java_has_them():
    assert properties(interceptor_classes=" ").interceptor_classes == ()
    with pytest.raises(ConfigError, match="interceptor_classes cannot be given as text"):
        properties(interceptor_classes="com.example.Interceptor")


def test_one_option_under_two_names_with_different_values_is_refused():
    with pytest.raises(ConfigError, match="linger_ms is given twice"):
        ProducerConfig.from_properties(
            {"bootstrap.servers": "a:1", "linger.ms": "5", "queue.buffering.max.ms": "6"}
        )
    with pytest.raises(ConfigError, match="compression_zstd_level is given twice"):
        properties(compression_type="zstd", compression_zstd_level="3", compression_level="4")


def test_one_option_under_two_names_with_the_same_value_is_no_contradiction():
    read = ProducerConfig.from_properties(
        {"bootstrap.servers": "a:1", "metadata.broker.list": "a:1", "linger.ms": "5"}
        | {"queue.buffering.max.ms": 5, "compression.type": "zstd"}
        | {"compression.level": "7", "compression.zstd.level": 7}
    )
    assert read.bootstrap_servers == ("a:1",)
    assert (read.linger_ms, read.compression_zstd_level) == (5, 7)


def test_a_compression_level_needs_a_codec_that_has_levels():
    assert properties(compression_level="-1").compression_type == "none"
    with pytest.raises(ConfigError, match="snappy has no levels"):
        properties(compression_type="snappy", compression_level="3")
    with pytest.raises(ConfigError, match=r"compression\.level must be an int"):
        properties(compression_type="zstd", compression_level="high")


def test_a_compression_level_is_for_the_codec_that_is_in_force_after_all_was_read():
    zstd = properties(compression_type="zstd")
    assert zstd.replace(**{"compression.level": 5}).compression_level == 5
    both = {"compression.level": 6, "compression.codec": "gzip"}
    assert zstd.replace(**both).compression_level == 6
    given = {"bootstrap.servers": "a:1", "compression.level": "7"}
    for name in ("compression_type", "compression.codec"):
        assert configured(given, {name: "lz4"}).compression_level == 7
    own = configured(given | {"compression.type": "gzip"}, {"compression_type": "zstd"})
    assert (own.compression_level, own.compression_gzip_level) == (7, -1)
    named = {"bootstrap.servers": "a:1", "compression.type": "zstd"}
    assert configured(named, {"compression_level": 9}).compression_level == 9


def test_a_foreign_number_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"queue\.buffering\.max\.kbytes must be an int"):
        properties(queue_buffering_max_kbytes="many")


def test_java_class_names_with_a_counterpart_are_understood():
    java = "org.apache.kafka.common.serialization."
    read = properties(
        key_serializer=java + "StringSerializer",
        value_serializer=java + "ByteArraySerializer",
        partitioner_class="org.apache.kafka.clients.producer.RoundRobinPartitioner",
    )
    assert isinstance(read.key_serializer, StringSerializer)
    assert read.value_serializer is None
    assert read.partitioner == "round_robin"


def test_other_java_class_names_and_text_for_objects_are_refused():
    with pytest.raises(ConfigError, match=r"com\.example\.Mine.*no counterpart"):
        properties(partitioner_class="com.example.Mine")
    with pytest.raises(ConfigError, match="no counterpart"):
        properties(key_serializer="com.example.Avro")
    with pytest.raises(ConfigError, match="on_delivery_error cannot be given as text"):
        properties(on_delivery_error="log")
    with pytest.raises(ConfigError, match="interceptor_classes cannot be given as text"):
        properties(interceptor_classes="com.example.Mine")


def test_an_unknown_property_is_refused_with_the_nearest_kafka_name():
    with pytest.raises(ConfigError, match=r"unknown option linger\.msec; did you mean linger\.ms"):
        ProducerConfig.from_properties({"linger.msec": "5"})


def test_the_environment_is_read_without_the_packages_own_variables(caplog):
    read = ProducerConfig.from_env(
        environ={
            "AIOPRODUCER_BOOTSTRAP_SERVERS": "a:1,b:2",
            "AIOPRODUCER_LINGER_MS": "9",
            "AIOPRODUCER_IMPL": "pure",
            "AIOPRODUCER_DEBUG": "1",
            "AIOPRODUCER_TEST_LOOP": "uvloop",
            "PATH": "/bin",
        }
    )
    assert read.bootstrap == (("a", 1), ("b", 2))
    assert read.explicitly_set == {"bootstrap_servers", "linger_ms"}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (
            "AIOPRODUCER_LINGER",
            "unknown option linger; did you mean linger_ms.* AIOPRODUCER_LINGER,",
        ),
        ("AIOPRODUCER_SERVICE_HOST", "variable AIOPRODUCER_SERVICE_HOST, or use another prefix"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_option(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ProducerConfig.from_env(environ={variable: "9"})


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("MYAPP_KAFKA_BOOTSTRAP_SERVERS", "a:1")
    assert ProducerConfig.from_env("MYAPP_KAFKA_").bootstrap == (("a", 1),)


def test_a_file_is_read_in_kafkas_syntax(tmp_path):
    path = tmp_path / "producer.properties"
    path.write_text(
        "# a comment\n"
        "! another\n"
        "\n"
        "bootstrap.servers = a:1,\\\n"
        "    b:2\n"
        "linger.ms:7\n"
        "client.id caf\\u00e9 \\\n"
        "retries=3",
        encoding="utf-8",
    )
    read = ProducerConfig.from_file(path)
    assert read.bootstrap == (("a", 1), ("b", 2))
    assert read.linger_ms == 7
    assert read.client_id == "café retries=3"


def test_a_file_that_is_not_utf8_or_missing_says_so(tmp_path):
    path = tmp_path / "latin.properties"
    path.write_bytes(b"client.id=caf\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        ProducerConfig.from_file(path)
    with pytest.raises(FileNotFoundError):
        ProducerConfig.from_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("  a  =  1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("a:=b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        (r"a\ b=c", {"a b": "c"}),
        (r"a\:b\=c=d", {"a:b=c": "d"}),
        (r"a=x\ty\\z", {"a": "x\ty\\z"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n  #2\nb=3", {"a": "1#2", "b": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\n\\\n\n#b=2\n \\\n#c\nd=3", {"a": "1", "d": "3"}),
    ],
)
def test_the_syntax_of_properties_files(text, entries):
    assert parse_properties(text) == entries


def test_a_malformed_unicode_escape_is_refused():
    with pytest.raises(ConfigError, match="escape"):
        parse_properties(r"a=\u12")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_escaped_properties_are_read_back(entries):
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in entries.items())
    assert parse_properties(text) == entries
