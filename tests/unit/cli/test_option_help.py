"""`aioproducer options`: our options and the names of other clients' options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.config import OPTIONS
from aioproducer.config.names import VERDICTS


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["options", *arguments]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, *arguments, "--format", "json"))
    return found


def test_an_option_is_shown_with_type_limits_default_meaning_and_aliases(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert printed(capsys, "linger.ms").splitlines() == [
        "linger.ms (long, at least 0, default 5)",
        f"    {OPTIONS['linger_ms'].doc}",
        "    also: queue.buffering.max.ms",
    ]


def test_dots_and_underscores_name_the_same_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "linger_ms") == printed(capsys, "linger.ms")


def test_every_option_is_listed_in_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    listed = as_json(capsys)["options"]
    assert [row["python_name"] for row in listed] == list(OPTIONS)
    assert all(row["meaning"] and row["type"] for row in listed)
    text = printed(capsys)
    for row in OPTIONS.values():
        assert f"{row.kafka_name} ({row.kind.value}" in text


def test_the_short_flag_for_json_does_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "acks", "--json") == printed(capsys, "acks", "-f", "json")


def test_every_name_in_the_table_of_names_gets_its_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts = {as_json(capsys, name)["verdict"] for name in VERDICTS}
    assert verdicts == {"alias", "without effect", "refused"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("message.timeout.ms", "message.timeout.ms sets delivery.timeout.ms, and takes an int"),
        ("ssl.ca.location", "ssl.ca.location sets ssl.truststore.location"),
        ("group.id", "group.id is accepted and has no effect: it configures consumers"),
        ("dr_cb", "dr_cb does not apply to this client: it would never be called"),
        ("producer.linger.ms", "producer.linger.ms does not apply to this client"),
    ],
)
def test_another_clients_name_says_what_it_means_here(
    name: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, name).startswith(line)


def test_a_name_for_several_options_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "compression.level")
    names = {row["name"] for row in found["options"]}
    assert names == {f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")}


def test_a_refused_name_says_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert "-> await the delivery" in printed(capsys, "dr_cb")
    assert as_json(capsys, "dr_cb")["instead"].startswith("await the delivery")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("linger.mss",), "unknown option linger.mss; did you mean linger.ms?"),
        (("lingr_ms",), "unknown option lingr_ms; did you mean linger_ms?"),
        (("--format", "xml"), "--format takes one of text, json, not 'xml'"),
    ],
)
def test_an_unknown_name_is_a_usage_error_with_the_nearest_one(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["options", *arguments]) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"aioproducer: {said}\n")
