"""Commands that send to a topic which is not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.testing import ThreadedCluster

NEVER_CREATED = ["-X", "allow.auto.create.topics=false"]
BRIEFLY = ["--topic-timeout", "0.3"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadedCluster(brokers=1) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n2\n")
    monkeypatch.chdir(tmp_path)


@contextmanager
def standard_input(text: str) -> Iterator[None]:
    """Bytes as a shell's pipe gives them."""
    before = os.dup(0)
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    os.dup2(reading, 0)
    os.close(reading)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.mark.parametrize("count", [1, 3])
def test_lines_for_a_missing_topic_are_counted_as_failed(
    count: int, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with standard_input("line\n" * count):
        code = main(["produce", "-t", "missing", "-b", server, *NEVER_CREATED, *BRIEFLY, "--json"])
    out, err = capsys.readouterr()
    assert code == ExitCode.REFUSED
    summary = json.loads(out)
    assert (summary["acknowledged"], summary["failed"], summary["unknown"]) == (0, count, 0)
    assert f"0 records acknowledged, {count} failed" in err
    assert "the topic 'missing' does not exist" in err
    assert f"aioproducer topics create missing -b {server}" in err
    assert "--topic-timeout" in err


@pytest.mark.parametrize(
    "command",
    [
        ["load", "rows.csv", "--quiet"],
        ["load", "rows.csv", "--quiet", "--partition-by", "id"],
        ["load", "rows.csv", "--quiet", "--exactly-once"],
        ["perf", "-n", "10", "--quiet"],
    ],
    ids=" ".join,
)
def test_a_missing_topic_is_named_and_nothing_is_to_be_resumed(
    command: list[str], server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*command, "-t", "missing", "-b", server, *NEVER_CREATED, *BRIEFLY])
    err = capsys.readouterr().err
    assert code == ExitCode.REFUSED
    assert "the topic 'missing' does not exist" in err
    assert "topics create missing" in err
    assert "resume" not in err


def test_a_topic_that_brokers_create_is_no_missing_one(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["load", "rows.csv", "--quiet", "-t", "created", "-b", server, "--json"])
    assert code == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["acknowledged"] == 2
