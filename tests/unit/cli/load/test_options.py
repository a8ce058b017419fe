"""Options of a load before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli.load.options import RunOptions
from aioproducer.loader import LoadState, RecordMapping


def state_of(file: str, topic: str) -> Path:
    path = RunOptions().load_options([file], topic, RecordMapping(), 1.0).state
    assert isinstance(path, Path)
    return path


def test_the_state_file_is_named_after_file_and_topic() -> None:
    assert state_of("in/rows.csv", "t") == Path("rows.csv.t.load-state.json")


@pytest.mark.parametrize("letter", ["x", "\U0001f600"])
def test_the_state_of_a_file_with_a_long_name_can_be_written(
    letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = letter * (230 // len(letter.encode()))
    paths = {state_of(f"{name}{end}.csv", topic) for end in "ab" for topic in ("t", "t" * 249)}
    assert len(paths) == 4
    for path in paths:
        LoadState("t").write(path)
        assert LoadState.read(path) == LoadState("t")
