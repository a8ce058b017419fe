"""Arguments of the constructors: a configuration, a mapping of properties, options by keyword."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from aioproducer import Producer, ProducerConfig, blocking
from aioproducer.errors import ConfigError
from aioproducer.starlette import ProducerLifespan
from aioproducer.transaction_admin import TransactionAdmin

Maker = Callable[..., ProducerConfig]


def of_producer(*arguments: Any, **options: Any) -> ProducerConfig:
    return Producer(*arguments, **options).config


def of_blocking(*arguments: Any, **options: Any) -> ProducerConfig:
    return blocking.Producer(*arguments, **options).config


def of_admin(*arguments: Any, **options: Any) -> ProducerConfig:
    return TransactionAdmin(*arguments, **options)._config


def of_lifespan(*arguments: Any, **options: Any) -> ProducerConfig:
    return ProducerLifespan(*arguments, **options)._make().config


makers = pytest.mark.parametrize("make", [of_producer, of_blocking, of_admin, of_lifespan])


@makers
def test_a_mapping_of_properties_is_taken_in_the_names_of_any_client(make: Maker) -> None:
    config = make({"bootstrap.servers": "a:1", "queue.buffering.max.ms": "7", "acks": 1})
    assert (config.bootstrap, config.linger_ms, config.acks) == ((("a", 1),), 7, 1)
    frozen: Mapping[str, object] = MappingProxyType({"bootstrap.servers": "a:1"})
    assert make(frozen).bootstrap == (("a", 1),)


@makers
def test_options_by_keyword_override_the_mapping(make: Maker) -> None:
    properties = {"bootstrap.servers": "a:1", "linger.ms": "7", "message.timeout.ms": "90000"}
    config = make(properties, linger_ms=9, delivery_timeout_ms=80_000)
    assert (config.linger_ms, config.delivery_timeout_ms) == (9, 80_000)
    assert make({"linger.ms": "7"}, bootstrap_servers="a:1").linger_ms == 7
    assert make({"linger.ms": "7"}, metadata_broker_list="a:1").bootstrap == (("a", 1),)
    assert properties == {
        "bootstrap.servers": "a:1",
        "linger.ms": "7",
        "message.timeout.ms": "90000",
    }


@makers
def test_a_configuration_is_taken_as_it_is(make: Maker) -> None:
    config = ProducerConfig(bootstrap_servers="a:1", linger_ms=7)
    assert make(config) == config
    assert make(config, queue_buffering_max_ms=9).linger_ms == 9
    assert make(None, bootstrap_servers="a:1").bootstrap == (("a", 1),)


@makers
@pytest.mark.parametrize("given", ["a:1", b"a:1", ["a:1", "b:2"], 5])
def test_what_is_no_mapping_is_refused_with_the_call_that_was_meant(
    make: Maker, given: Any
) -> None:
    with pytest.raises(TypeError) as error:
        make(given)
    message = str(error.value)
    assert "a ProducerConfig or a mapping of properties" in message
    assert (f"bootstrap_servers={given!r}" in message) is isinstance(given, str | list)


def test_properties_of_0_8_keep_its_defaults_besides_keywords(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = Producer({"metadata.broker.list": "a:1"}, acks=1).config
    assert (config.acks, config.retries, config.request_timeout_ms) == (1, 3, 10_000)
    assert caplog.records == []


def test_a_mapping_is_checked_as_options_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown option linger\.mss; did you mean linger\.ms"):
        Producer({"bootstrap.servers": "a:1", "linger.mss": "7"})
    with pytest.raises(ConfigError, match="bootstrap_servers must be given"):
        Producer({})


@pytest.mark.parametrize(
    "name", ["client_id", "client_rack", "transactional_id", "sasl_username", "sasl_password"]
)
@pytest.mark.parametrize("text", ["half a pair: \ud800", "x" * 32_001])
def test_a_text_that_no_request_can_hold_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be text that is .*at most 32,000 bytes"):
        ProducerConfig(bootstrap_servers="b:1", **{name: text})
