"""`aioproducer load` by Spark, from the command line to the topic."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.spark import EmbeddedKafka

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.load import spark as spark_loading

pytestmark = pytest.mark.slow  # Spark starts


class SharedSession:
    """The session of all tests, which a command does not end."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """It is needed yet."""


@pytest.fixture(autouse=True)
def _shared_session(spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from aioproducer.spark import register

    register(spark)
    monkeypatch.setattr(spark_loading, "session_at", lambda *_: SharedSession(spark))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.csv").write_text(f"id,name\n{number},n{number}\n")
    return folder


def test_a_folder_is_loaded_by_spark_which_says_so(
    folder: Path, embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = embedded.topic(1)
    code = main(["load", "rows", "-t", topic, "-k", "id", "--json", "-b", embedded.servers])
    out, err = capsys.readouterr()
    assert code == ExitCode.OK, err
    assert "engine: spark (rows is a folder)" in err
    summary = json.loads(out)
    assert (summary["engine"], summary["rows"], summary["complete"]) == ("spark", 3, True)
    found = {each.key: json.loads(each.value or b"") for each in embedded.records(topic)}
    assert found[b"1"] == {"id": "1", "name": "n1"}
    assert len(found) == 3
    assert not list(folder.parent.glob("*.json"))


def test_exactly_once_the_same_command_loads_once(
    folder: Path, embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = embedded.topic(1)
    command = ["load", str(folder), "-t", topic, "--value", "id", "-b", embedded.servers]
    assert main([*command, "--exactly-once"]) == ExitCode.OK
    assert main([*command, "--exactly-once"]) == ExitCode.OK
    assert "it was loaded before" in capsys.readouterr().err
    assert embedded.numbers(topic) == [0, 1, 2]
    assert main([*command, "--exactly-once", "-X", "transactional.id=once-more"]) == ExitCode.OK
    assert len(embedded.numbers(topic)) == 6


def test_a_bad_row_ends_it_in_two_lines_and_the_next_command_is_shown(
    folder: Path, embedded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "1.csv").write_text("id,name\n1\n")
    topic = embedded.topic(1)
    command = ["load", str(folder), "-t", topic, "-b", embedded.servers]
    assert main([*command, "--quiet"]) == ExitCode.SOME_FAILED
    err = capsys.readouterr().err
    assert "1 fields where the header names 2: 1\n  name a dead-letter file" in err
    assert "--resume" in err
    assert main([*command, "--dead-letter", "bad"]) == ExitCode.SOME_FAILED
    assert "rejected rows and their reasons are in bad" in capsys.readouterr().err
    # At least once: the run that failed may have written the rows of the other files.
    assert len({each.value for each in embedded.records(topic)}) == 2


@pytest.mark.parametrize("guarantee", [[], ["--exactly-once"]], ids=["", "exactly once"])
def test_a_missing_topic_ends_it_soon_and_is_named(
    guarantee: list[str],
    folder: Path,
    embedded: EmbeddedKafka,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["load", str(folder), "-t", "missing", "-b", embedded.servers, "--quiet", *guarantee]
    never_created = ["-X", "allow.auto.create.topics=false", "--topic-timeout", "0.5"]
    began = time.monotonic()
    assert main([*command, *never_created]) == ExitCode.REFUSED
    assert time.monotonic() - began < 10
    err = capsys.readouterr().err
    assert "the topic 'missing' does not exist" in err
    assert "safe to repeat" not in err
    assert "--resume" not in err
