from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli import options
from aioproducer.errors import ConfigError


def test_default_server_is_local() -> None:
    assert options.producer_config(None, None, None).bootstrap == (("localhost", 9092),)


def test_x_beats_bootstrap_server_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.properties"
    file.write_text("bootstrap.servers=file:1\nlinger.ms=7\nbatch.size=1000\n")
    config = options.producer_config("option:2", file, ["linger.ms=9"])
    assert (config.bootstrap, config.linger_ms, config.batch_size) == ((("option", 2),), 9, 1000)
    config = options.producer_config("option:2", file, ["bootstrap.servers=x:3"])
    assert config.bootstrap == (("x", 3),)


def test_commands_defaults_yield_to_every_choice_of_the_user() -> None:
    config = options.producer_config(None, None, None, linger_ms=20)
    assert config.linger_ms == 20
    # librdkafka's name for the same option
    config = options.producer_config(None, None, ["queue.buffering.max.ms=3"], linger_ms=20)
    assert config.linger_ms == 3


@pytest.mark.parametrize("text", ["linger.ms", "=5", ""])
def test_property_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="-X takes NAME=VALUE"):
        options.producer_config(None, None, [text])


def test_unreadable_configuration_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*missing.*No such file"):
        options.producer_config(None, tmp_path / "missing", None)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        options.producer_config(None, binary, None)


@pytest.mark.parametrize("text", ["a+b", "a,b", "a,+b,"])
def test_columns_are_parted_by_plus_or_comma(text: str) -> None:
    assert options.names(text) == ("a", "b")


def test_no_columns() -> None:
    assert options.names(None) == options.names("") == ()


def test_headers_keep_their_order_and_everything_behind_the_first_equals_sign() -> None:
    assert options.headers(["b=1=2", "a=", "b=é"]) == (
        ("b", b"1=2"),
        ("a", b""),
        ("b", "é".encode()),
    )
