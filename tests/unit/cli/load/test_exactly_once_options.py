"""`aioproducer load --exactly-once` before it reaches a cluster: its name, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioproducer.cli import main
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.cli.load.command import transactional
from aioproducer.config import ProducerConfig

SERVERS = {"bootstrap_servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-X", "acks=1"], "acks"),
        (["-X", "acks=0"], "acks"),
        (["-X", "enable.idempotence=false"], "idempotence"),
        (["-X", "retries=0"], "retries"),
        (["--resume"], "resume"),
        (["--state", "s.json"], "state"),
    ],
    ids=str,
)
def test_what_excludes_it_is_refused(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text("{}\n")
    code = main(["load", str(file), "--topic", "t", "--exactly-once", *arguments])
    assert code == ExitCode.USAGE
    assert reason in capsys.readouterr().err


def test_an_input_that_cannot_be_read_again_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe.ndjson"
    os.mkfifo(pipe)
    for file in ("-", str(pipe)):
        code = main(["load", file, "--topic", "t", "--format", "ndjson", "--exactly-once"])
        assert code == ExitCode.USAGE
        assert "read again" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="a working directory cannot be removed there")
def test_an_input_of_a_removed_directory_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert main(["load", "a.csv", "--topic", "t", "--exactly-once"]) == ExitCode.INPUT


def test_the_same_files_into_the_same_topic_are_the_same_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def name(*files: str, topic: str = "t") -> str | None:
        return transactional(ProducerConfig(**SERVERS), files, topic).transactional_id

    same = {name("a.csv"), name("./a.csv"), name(str(tmp_path / "a.csv"))}
    assert len(same) == 1
    others = {name("a.csv", topic="u"), name("b.csv"), name("a.csv", "b.csv")}
    assert len(same | others) == 4
    assert all(each is not None and each.startswith("aioproducer-load-") for each in same | others)


def test_a_name_of_the_users_own_is_kept() -> None:
    config = ProducerConfig(transactional_id="mine", **SERVERS)
    assert transactional(config, ["a.csv"], "t") is config
