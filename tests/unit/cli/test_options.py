from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli import options
from aioproducer.cli.options import Connection
from aioproducer.errors import ConfigError


def test_default_server_is_local() -> None:
    assert Connection().config().bootstrap == (("localhost", 9092),)


def test_x_beats_bootstrap_server_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.properties"
    file.write_text("bootstrap.servers=file:1\nlinger.ms=7\nbatch.size=1000\n")
    config = Connection(
        bootstrap_server="option:2", config_file=file, properties=["linger.ms=9"]
    ).config()
    assert (config.bootstrap, config.linger_ms, config.batch_size) == ((("option", 2),), 9, 1000)
    config = Connection(
        bootstrap_server="option:2", config_file=file, properties=["bootstrap.servers=x:3"]
    ).config()
    assert config.bootstrap == (("x", 3),)


def test_commands_defaults_yield_to_every_choice_of_the_user() -> None:
    config = Connection().config(linger_ms=20)
    assert config.linger_ms == 20
    # librdkafka's name for the same option
    config = Connection(properties=["queue.buffering.max.ms=3"]).config(linger_ms=20)
    assert config.linger_ms == 3


@pytest.mark.parametrize("text", ["linger.ms", "=5", ""])
def test_property_without_a_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="-X takes NAME=VALUE"):
        Connection(properties=[text]).config()


def test_unreadable_configuration_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*missing.*No such file"):
        Connection(config_file=tmp_path / "missing").config()
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        Connection(config_file=binary).config()


def test_configuration_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xef\xbb\xbfbootstrap.servers=file:1\nlinger.ms=7\n")
    config = Connection(config_file=file).config()
    assert (config.bootstrap, config.linger_ms) == ((("file", 1),), 7)


@pytest.mark.parametrize("text", ["a+b", "a,b", "a,+b,"])
def test_columns_are_parted_by_plus_or_comma(text: str) -> None:
    assert options.names(text) == ("a", "b")


@pytest.mark.parametrize(
    ("given", "meant"),
    [(None, None), (":", ":"), ("\\t", "\t"), ("|\\x1F|", "|\x1f|"), ("\\n", "\\n"), ("\\", "\\")],
)
def test_a_separator_may_be_an_escape(given: str | None, meant: str | None) -> None:
    assert options.separator(given) == meant


def test_no_columns() -> None:
    assert options.names(None) == options.names("") == ()


def test_headers_keep_their_order_and_everything_after_the_first_equals_sign() -> None:
    assert options.headers(["b=1=2", "a=", "b=é"]) == (
        ("b", b"1=2"),
        ("a", b""),
        ("b", "é".encode()),
    )


@pytest.mark.parametrize("times", [1, 100])  # the longer is no name of a file
def test_an_option_that_is_given_as_a_file_is_not_shown(times: int) -> None:
    given = Path("sasl.password=" + times * "Tr0ub4dor")
    with pytest.raises(ConfigError, match="-X NAME=VALUE") as caught:
        Connection(config_file=given).config()
    assert "Tr0ub4dor" not in str(caught.value)


def test_no_repr_shows_what_was_given_as_an_option() -> None:
    assert "hunter2" not in repr(Connection(properties=["sasl.password=hunter2"]))
