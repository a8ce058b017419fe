"""The engine that `load` chooses, and the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioproducer.cli.load import engines
from aioproducer.cli.load.engines import Engine, Wanted, choose
from aioproducer.errors import ConfigError


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    modules = {"pyspark", "pyarrow"}
    monkeypatch.setattr(engines, "find_spec", lambda name: name if name in modules else None)
    return modules


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "LARGE_BYTES", 10)


def file(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("more than ten bytes")
    return str(path)


def test_a_small_file_is_loaded_here(tmp_path: Path) -> None:
    choice = choose("auto", Wanted([file(tmp_path, "a.csv")]))
    assert choice.engine is Engine.LOCAL
    assert "moderate size" in choice.reason


def test_a_name_with_a_colon_is_a_file_of_this_machine(tmp_path: Path) -> None:
    name = "dump-2026-01-31T12:30:00.csv"
    assert choose("auto", Wanted([file(tmp_path, name)])).engine is Engine.LOCAL
    assert choose("local", Wanted([name])).engine is Engine.LOCAL


@pytest.mark.parametrize("name", [".", "*.csv", "s3a://bucket/day", "hdfs://host/x.parquet"])
def test_folders_patterns_and_other_file_systems_take_spark(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    choice = choose("auto", Wanted([name]))
    assert choice.engine is Engine.SPARK
    assert name in choice.reason
    with pytest.raises(ConfigError, match="local cannot"):
        choose("local", Wanted([name]))
    installed.clear()
    with pytest.raises(ConfigError, match=r"aioproducer\[spark\]"):
        choose("auto", Wanted([name]))


def test_a_name_that_is_too_long_is_left_to_the_reader() -> None:
    assert choose("auto", Wanted([300 * "a"])).engine is Engine.LOCAL
    assert choose("auto", Wanted([300 * "[a]"])).engine is Engine.SPARK


@pytest.mark.parametrize("engine", ["auto", "local", "spark"])
def test_an_empty_name_is_not_the_working_directory(engine: str) -> None:
    with pytest.raises(ConfigError, match="the name of an input is empty"):
        choose(engine, Wanted(["a.csv", ""]))


@pytest.mark.usefixtures("large")
def test_large_inputs_take_spark_if_it_is_there_and_can_divide_them(
    tmp_path: Path, installed: set[str]
) -> None:
    text, table = file(tmp_path, "a.csv"), file(tmp_path, "a.parquet")
    assert choose("auto", Wanted([table])).engine is Engine.SPARK
    assert choose("auto", Wanted([text, table])).engine is Engine.SPARK
    alone = choose("auto", Wanted([text]))
    assert alone.engine is Engine.LOCAL
    assert "cannot divide" in alone.reason
    packed = choose("auto", Wanted([file(tmp_path, "a.ndjson.GZ")], format="ndjson"))
    assert packed.engine is Engine.LOCAL
    assert "cannot divide" in packed.reason
    packed = choose("auto", Wanted([file(tmp_path, "a.ndjson.gz")]))
    assert packed.engine is Engine.LOCAL
    installed.clear()
    without = choose("auto", Wanted([table]))
    assert without.engine is Engine.LOCAL
    assert "aioproducer[spark]" in without.reason


def test_what_spark_cannot_do_is_loaded_here(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for wanted in (
        Wanted(["-"]),
        Wanted([file(tmp_path, "a.zip")]),
        Wanted([file(tmp_path, "b")], member="*.csv"),
        Wanted([str(tmp_path / "pipe")]),
    ):
        assert choose("auto", wanted).engine is Engine.LOCAL
        with pytest.raises(ConfigError, match="spark cannot"):
            choose("spark", wanted)
    with pytest.raises(ConfigError, match="no engine can do both"):
        choose("auto", Wanted(["-", str(tmp_path)]))


def test_the_one_asked_for_is_taken(tmp_path: Path, installed: set[str]) -> None:
    wanted = Wanted([file(tmp_path, "a.csv")])
    assert choose("spark", wanted).engine is Engine.SPARK
    assert choose("local", wanted).engine is Engine.LOCAL
    assert choose("auto", Wanted(wanted.files, master="local[2]")).engine is Engine.SPARK
    installed.clear()
    with pytest.raises(ConfigError, match="not installed"):
        choose("spark", wanted)
    with pytest.raises(ConfigError, match="--engine takes one of"):
        choose("flink", wanted)
