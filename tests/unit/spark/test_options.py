"""Options that the driver refuses, and the values made of the strings that Spark gives."""

from __future__ import annotations

import pickle

import pytest
from support.pages import page

from aioproducer.errors import ConfigError
from aioproducer.spark.options import OWN_OPTIONS, Guarantee, SourceOptions

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def parse(use: str = "write", /, **options: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return SourceOptions.parse(SERVERS | named, use)


def test_kafka_options_become_the_producers() -> None:
    config = parse(kafka__acks="1", kafka__compression__type="lz4").config()
    assert (config.acks_value, config.compression_type) == (1, "lz4")
    assert config.bootstrap_servers == ("localhost:9092",)


def test_rows_by_the_ten_thousand_get_larger_batches_unless_the_user_chose() -> None:
    assert parse().config().batch_size == 262_144
    assert parse(kafka__batch__size="1000").config().batch_size == 1000
    assert parse(kafka__batch_size="1000").config().batch_size == 1000
    assert parse(kafka__queue__buffering__max__ms="7").config().linger_ms == 7


def test_names_are_matched_whatever_their_case() -> None:
    parsed = SourceOptions.parse({"Kafka.Bootstrap.Servers": "a:1", "Topic": "orders"}, "write")
    assert (parsed.topic, parsed.config().bootstrap) == ("orders", (("a", 1),))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("kafka.linger.m", "kafka.linger.ms"),
        ("kafka.sasl.pasword.env", "kafka.sasl.password"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("delivery.garantee", "delivery.guarantee"),
        ("topics", "topic"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown option {name}; did you mean {nearest}\?"):
        SourceOptions.parse(SERVERS | {name: "1"}, "write")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kafka.key.serializer": "x"}, "types of the columns"),
        ({"kafka.transactional.id": "x"}, r"transactional\.id\.prefix"),
        ({"kafka.transactional_id": "x"}, r"transactional\.id\.prefix"),
        ({"kafka.acks": "0"}, "no guarantee"),
        ({"kafka.acks": "many"}, "acks must be"),
        ({"delivery.guarantee": "sometimes"}, "at-least-once, task-transactions, exactly-once"),
        ({"transactional.id.prefix": "x"}, "no transactions"),
        ({"job.id": "x", "job.epoch": "1"}, "goes with job.id and delivery.g"),
        ({"job.id": "x"}, "job.id goes with delivery.guarantee=exactly-once"),
        (
            {"accept.lost.epoch": "3", "delivery.guarantee": "task-transactions"},
            "accept.lost.epoch goes with delivery.guarantee=exactly-once",
        ),
        ({"startingOffsets": "earliest"}, "no meaning here"),
        ({"path": "x"}, "there is no path"),
        ({"topic": ""}, "topic is empty"),
        ({"topic.timeout.ms": "soon"}, "must be a number of milliseconds"),
        ({"topic": "no topic!"}, "topic is not a name of a topic"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        SourceOptions.parse(SERVERS | options, "write")


@pytest.mark.parametrize(
    "name",
    [
        "queryName",
        "owner",
        "provider",
        "serialization.format",
        "mergeSchema",
        "comment",
        "location",
    ],
)
def test_what_is_not_ours_is_left_to_spark(name: str) -> None:
    for use in ("write", "stream", "read"):
        options = SourceOptions.parse(SERVERS | {name: "x", "topic": "t"}, use)
        assert options.own == {"topic": "t"}


def test_a_path_is_left_to_spark_where_a_topic_is_given() -> None:
    assert parse(path="/warehouse/t", topic="t").own == {"topic": "t"}


@pytest.mark.parametrize("name", ["guarantee", "delivery.mode", "dead_letter_topic", "acks"])
def test_what_is_like_ours_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {name}"):
        SourceOptions.parse(SERVERS | {name: "1"}, "write")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("subscribe", "option topic"),
        ("startingTimestamp", "startingOffsets"),
        ("endingOffsetsByTimestamp", "endingOffsets"),
    ],
)
def test_an_option_of_sparks_source_that_chooses_records_is_refused(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is an option of Spark's.*{advice}"):
        SourceOptions.parse(SERVERS | {"topic": "t", name.lower(): "1"}, "read")


def test_reads_take_the_isolation_level_as_sparks_source_does() -> None:
    level = {"kafka.isolation.level": "read_uncommitted"}
    assert SourceOptions.parse(SERVERS | level, "read").own == {
        "isolation.level": "read_uncommitted"
    }
    for options in (
        level | {"isolation.level": "read_committed"},
        {"isolation.level": "x"} | level,
    ):
        read = SourceOptions.parse(SERVERS | options, "read")
        assert read.own["isolation.level"] == options["isolation.level"]
        assert "isolation.level" not in read.kafka


def test_values_may_be_the_python_values_that_pyspark_takes() -> None:
    given = {
        "topic": "t",
        "topic.timeout.ms": 500,
        "includeHeaders": False,
        "dead.letter.topic": None,
        "kafka.linger.ms": 5,
        "kafka.enable.idempotence": False,
        "kafka.client.id": None,
    }
    options = SourceOptions.parse({**SERVERS, **given}, "write")  # type: ignore[dict-item]
    assert (options.topic_timeout_s, options.include_headers) == (0.5, False)
    assert options.dead_letter_topic is None
    config = options.config()
    assert (config.linger_ms, config.enable_idempotence) == (5, False)
    assert config.client_id == "aioproducer-spark"


def test_blanks_around_values_are_ignored_except_in_names_that_may_have_them() -> None:
    options = parse(topic=" t\n", includeHeaders="true ", delivery__guarantee=" exactly-once ")
    assert (options.topic, options.include_headers) == ("t", True)
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    named = parse(job__id="monday ", delivery__guarantee="exactly-once", topic="t")
    assert named.own["job.id"] == "monday "


@pytest.mark.parametrize("guarantee", ["task-transactions", "exactly-once"])
@pytest.mark.parametrize(
    ("name", "value"), [("acks", "1"), ("retries", "0"), ("enable.idempotence", "false")]
)
def test_what_excludes_transactions_is_refused_with_them(
    guarantee: str, name: str, value: str
) -> None:
    given = {**SERVERS, "topic": "t", f"kafka.{name}": value}
    reason = rf"guarantee={guarantee} needs an idempotent producer, which kafka\.{name} excludes"
    with pytest.raises(ConfigError, match=reason):
        SourceOptions.parse({**given, "delivery.guarantee": guarantee}, "write")
    assert SourceOptions.parse(given, "write").guarantee is Guarantee.AT_LEAST_ONCE


def test_servers_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers must be given"):
        SourceOptions.parse({}, "write")


def test_the_guarantee_is_at_least_once_unless_asked_for_more() -> None:
    assert parse().guarantee is Guarantee.AT_LEAST_ONCE
    assert parse(delivery__guarantee="Exactly-Once", topic="t").guarantee is Guarantee.EXACTLY_ONCE


def with_password(**more: str) -> SourceOptions:
    return parse(
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__username="alice",
        **more,
    )


def test_a_secret_of_the_environment_is_read_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:THE_*")
    options = with_password(kafka__sasl__password__env="THE_PASSWORD")
    with pytest.raises(ConfigError, match=r"'THE_PASSWORD'.*not set"):
        options.config()
    monkeypatch.setenv("THE_PASSWORD", "hush-hush")
    assert options.config().sasl_password == "hush-hush"
    assert b"hush-hush" not in pickle.dumps(options)


def test_no_repr_and_no_error_shows_a_secret() -> None:
    options = with_password(kafka__sasl__password="hush-hush")
    assert "hush" not in repr(options)
    assert "hush" not in repr(options.config())
    with pytest.raises(ConfigError) as caught:
        with_password(kafka__sasl__password="hush-hush", kafka__acks="0")
    assert "hush" not in str(caught.value)


def test_the_guide_has_every_own_option() -> None:
    guide = page("spark")
    for option in OWN_OPTIONS:
        assert set(option.used.split()) <= {"write", "stream", "read"}
        used = option.used.replace(" ", ", ")
        assert f"| `{option.name}` | {used} | {option.default} | {option.doc} |" in guide


def test_a_login_in_place_of_the_name_of_a_variable_is_refused_on_the_driver() -> None:
    given = {
        "value.format": "avro",
        "schema.registry.url": "http://registry",
        "schema.registry.user.info.env": "user:Tr0ub4dor",
    }
    with pytest.raises(ConfigError, match="name of an environment variable") as caught:
        SourceOptions.parse(SERVERS | given, "write")
    assert "Tr0ub4dor" not in str(caught.value)


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 19, "\u0663", "-1", ""])
@pytest.mark.parametrize("option", ["job.epoch", "accept.lost.epoch", "topic.timeout.ms"])
def test_a_number_that_is_none_or_too_large_is_refused(option: str, number: str) -> None:
    with pytest.raises(ConfigError, match=option):
        SourceOptions.parse({**SERVERS, "topic": "t", option: number}, "write")
