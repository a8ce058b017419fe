"""Errors of the data source: options as the user wrote them, and never their values."""

from __future__ import annotations

import traceback

import pytest

from aioproducer.config.reading import all_names
from aioproducer.errors import ConfigError, KafkaTimeoutError
from aioproducer.runtime.security_settings import sasl_mechanism, tls_contexts
from aioproducer.spark.options import OWN_OPTIONS, SourceOptions
from aioproducer.spark.wording import option_errors, without_values

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
SECRET = "hunter2-sEcret!"
PEM = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        f"a={SECRET};",
        f"org.x.PlainLoginModule required password='{SECRET}';",
        "-4711",
        PEM,
        f"\x1b{SECRET}\u202e{SECRET}",
    ],
)
def test_no_error_about_options_quotes_a_value(
    value: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"kafka.{name}" for name in all_names(dotted=True)]
    names += [f"{name}.env" for name in names]
    names += [each.name for each in OWN_OPTIONS]
    refused = 0
    caplog.set_level("CRITICAL")
    for name in names:
        for use in ("write", "stream", "read"):
            for others in (SERVERS, SERVERS | SASL):
                try:
                    SourceOptions.parse(others | {name: value}, use).config()
                except ConfigError as error:
                    refused += 1
                    text = "".join(traceback.format_exception(error))
                    assert SECRET not in text, name
                    assert "-4711" not in text, name
    assert refused > 500


@pytest.mark.slow
@pytest.mark.parametrize("value", [SECRET, PEM, f"/{SECRET}", SECRET * 100])
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_no_error_of_a_file_or_login_quotes_a_value(value: str, protocol: str) -> None:
    refused = 0
    for name in all_names(dotted=True):
        if not name.startswith(("ssl.", "sasl.")):
            continue
        given = SERVERS | {"kafka.security.protocol": protocol, f"kafka.{name}": value}
        if protocol == "SASL_SSL":
            given |= {"kafka.sasl.username": "app", "kafka.sasl.password": "1" * 8} | SASL
            given[f"kafka.{name}"] = value
        try:
            options = SourceOptions.parse(given, "write")
            config = options.config()
            with option_errors(options.kafka):
                tls_contexts(config)
                sasl_mechanism(config)
        except ConfigError as error:
            refused += 1
            assert SECRET not in "".join(traceback.format_exception(error)), name
    assert refused > 20


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kafka.linger.ms", "soon", "kafka.linger.ms must be "),
        ("kafka.linger_ms", "soon", "kafka.linger_ms must be "),
        ("kafka.queue.buffering.max.ms", "soon", "kafka.queue.buffering.max.ms must be "),
        ("kafka.acks", "many", "kafka.acks must be one of 'all', "),
        ("kafka.block.on.buffer.full", "x", "kafka.block.on.buffer.full must be "),
        ("kafka.ssl.truststore.location", "x", "-> set kafka.security.protocol to SSL"),
        ("kafka.batch.num.messages", "0", "kafka.batch.num.messages must be at least 1"),
    ],
)
def test_options_are_called_as_the_user_wrote_them(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse(SERVERS | {name: value}, "write")
    assert said in str(caught.value)


@pytest.mark.parametrize("value", ["kafka", "kafka.linger", "value", "given", "linger.ms"])
def test_a_value_that_is_part_of_a_name_leaves_the_name(value: str) -> None:
    options = SERVERS | {"kafka.client.id": value, "kafka.linger.ms": "soon"}
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse(options, "write")
    assert str(caught.value).startswith("kafka.linger.ms must be a 64-bit int ->")


def test_a_value_does_not_change_what_stands_for_another() -> None:
    assert without_values("a 'hunter2' b", ["value given", "hunter2"]) == "a the value given b"


def test_a_value_that_begins_with_a_name_is_hidden() -> None:
    text = "cannot read kafka.acks.hunter2 here"
    assert without_values(text, ["kafka.acks.hunter2"]) == "cannot read the value given here"


def test_words_that_options_may_be_are_shown_from_any_source() -> None:
    options = SERVERS | {"kafka.compression.type": "none", "kafka.acks": "many"}
    with pytest.raises(ConfigError, match="one of 'all'"):
        SourceOptions.parse(options, "write")


def test_later_errors_name_options_likewise_and_keep_their_class() -> None:
    with pytest.raises(KafkaTimeoutError) as caught, option_errors({"max.block.ms": "1"}):
        raise KafkaTimeoutError(
            "'max_block_ms' is a topic; max_block_ms is over", advice="raise `retries` in retries"
        ) from KafkaTimeoutError("delivery_timeout_ms is over")
    assert caught.value.message == "'max_block_ms' is a topic; kafka.max.block.ms is over"
    assert caught.value.advice == "raise `kafka.retries` in retries"
    assert str(caught.value.__cause__) == "kafka.delivery.timeout.ms is over"


def test_a_secret_for_the_name_of_a_variable_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="names no environment variable in capital letters"):
        SourceOptions.parse(SERVERS | {"kafka.client.id.env": SECRET}, "write").config()


def test_a_variable_that_is_not_set_is_named_by_tasks_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOPRODUCER_ALLOW", "env:NOT_SET")
    options = SourceOptions.parse(SERVERS | {"kafka.client.id.env": "NOT_SET"}, "write")
    said = "the environment variable 'NOT_SET', which is not set"
    with pytest.raises(ConfigError, match=said), option_errors(options.kafka):
        options.config()
