"""`aioproducer doctor` as a command: what it prints and how it ends."""

from __future__ import annotations

import json

import pytest

from aioproducer.cli import main
from aioproducer.cli.checkup.findings import CODES, CheckFailedError, Finding, Status, verdict
from aioproducer.cli.exit_codes import ExitCode
from cli.checkup_places import closed_port


def test_a_failure_says_what_to_do_and_ends_with_its_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closed_port() as server:
        assert main(["doctor", "-b", server]) == ExitCode.UNREACHABLE
    shown = capsys.readouterr()
    assert (
        f"fail  port {server}: {server}: connection refused\n      -> start the broker" in shown.out
    )
    assert shown.out.endswith("1 failed\n")
    assert shown.err == ""


def test_scripts_get_every_finding_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    with closed_port() as server:
        assert main(["doctor", "-b", server, "--json"]) == ExitCode.UNREACHABLE
    reported = json.loads(capsys.readouterr().out)
    assert (reported["verdict"], reported["exit_code"]) == ("fail", 3)
    assert [each["code"] for each in reported["findings"]] == ["ok", "port-refused"]
    assert set(reported["findings"][1]) == {
        *("check", "about", "status", "code", "found", "advice", "details"),
    }


def test_a_record_needs_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--write"]) == ExitCode.USAGE
    assert "--write needs a --topic" in capsys.readouterr().err


def test_the_first_failure_decides_and_warnings_do_not() -> None:
    warning = CheckFailedError("address-shared", "x", status=Status.WARN).finding("a", "b")
    refused = CheckFailedError("topic-missing", "x").finding("a", "b")
    silent = CheckFailedError("no-answer", "x", exit_code=ExitCode.UNREACHABLE).finding("a", "b")
    good = Finding.good("a", "b", "x")
    assert verdict([]) == verdict([good]) == (Status.OK, ExitCode.OK)
    assert verdict([good, warning]) == (Status.WARN, ExitCode.OK)
    assert verdict([warning, silent, refused]) == (Status.FAIL, ExitCode.UNREACHABLE)
    assert verdict([refused, silent]) == (Status.FAIL, ExitCode.REFUSED)


def test_every_trouble_says_what_to_do() -> None:
    for code, advice in CODES.items():
        assert CheckFailedError(code, "x").finding("a", "b").advice == advice
        assert advice[0].islower()
        assert not advice.endswith(".")
