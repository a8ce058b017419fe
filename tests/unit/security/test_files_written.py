"""Commands and loads replace only their own files, and show rows to no other user."""

from __future__ import annotations

import asyncio
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from aioproducer.cli import main
from aioproducer.cli.console import FileError
from aioproducer.cli.perf.display import _PNG, _replace, check_picture
from aioproducer.errors import ConfigError
from aioproducer.loader import (
    DeadLetterError,
    FileSource,
    Loader,
    LoadOptions,
    LoadState,
    StateError,
    dead_letter_file,
)
from aioproducer.loader.dead_letter_file import DeadLetterFile
from aioproducer.spark.loading.record import SparkLoadState

needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="no matplotlib")
DEAD = '{"file": "f", "member": null, "row": 1, "stage": "row", "reason": "r", "raw": ""}\n'


class Idle:
    """A producer that nothing is sent to."""

    async def flush(self, timeout: float | None = None) -> None:
        """See `Producer`."""


def loader(source: FileSource, **options: Any) -> Loader:
    return Loader(cast("Any", Idle()), source, "t", LoadOptions(**options))


@pytest.fixture
def rows(tmp_path: Path) -> FileSource:
    (tmp_path / "rows.ndjson").write_text("")
    return FileSource(tmp_path / "rows.ndjson")


@pytest.mark.parametrize("content", ["precious", "a,b\n1,2\n", "{}", ""])
async def test_a_load_from_code_replaces_no_other_file_by_its_state(
    rows: FileSource, tmp_path: Path, content: str
) -> None:
    other = tmp_path / "other"
    other.write_text(content)
    with pytest.raises(StateError, match="is not a state file"):
        await loader(rows, state=other).run()
    assert other.read_text() == content
    await loader(rows, state=tmp_path / "state").run()
    await loader(rows, state=tmp_path / "state").run()
    assert json.loads((tmp_path / "state").read_text())["complete"]


async def test_a_state_that_is_no_file_or_a_large_one_is_not_read(
    rows: FileSource, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text(" " * 2_000_000)
    for name in ("pipe", "large", "/dev/zero"):
        async with asyncio.timeout(5):
            with pytest.raises(StateError, match="is not a state file"):
                await loader(rows, state=tmp_path / name).run()


async def test_a_link_that_appears_late_is_no_second_purpose(
    rows: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, state = tmp_path / "dead", tmp_path / "state"
    load = loader(rows, dead_letter=dead, state=state)
    dead.write_text("")
    os.link(dead, state)  # as a file system does whose names have no case
    monkeypatch.setattr(LoadState, "read", lambda path: None)
    with pytest.raises(ConfigError, match="is the same file"):
        await load.run()
    assert state.samefile(dead)


def test_a_dead_letter_file_of_another_user_gets_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for content in ("", DEAD):
        (shared / "dead").write_text(content)
        DeadLetterFile(shared / "dead", keep_bytes=1000).close()
        with monkeypatch.context() as patched:
            patched.setattr(os, "geteuid", lambda: 4711)
            with pytest.raises(DeadLetterError, match="another user"):
                DeadLetterFile(shared / "dead")
        assert (shared / "dead").read_text() == content
    (shared / "link").symlink_to(tmp_path / "not there yet")
    with pytest.raises(DeadLetterError, match="cannot write"):
        DeadLetterFile(shared / "link")
    assert not (tmp_path / "not there yet").exists()


async def test_a_dead_letter_file_on_standard_input_is_not_emptied(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    dead.write_text(DEAD)
    given, before = os.open(dead, os.O_RDONLY), os.dup(0)
    try:
        os.dup2(given, 0)
        for name in ("-", "/dev/stdin", "/proc/self/fd/0"):
            with pytest.raises(ConfigError, match="is the same file as the input"):
                loader(FileSource(name, format="ndjson"), dead_letter=dead)
        loader(FileSource("-", format="ndjson"), dead_letter=tmp_path / "other")
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(given)
    assert dead.read_text() == DEAD


def test_a_pipe_of_another_user_gets_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        DeadLetterFile(pipe).close()
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        with pytest.raises(DeadLetterError, match="another user"):
            DeadLetterFile(pipe)
    finally:
        os.close(reader)


def test_a_pipe_that_no_process_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DeadLetterError, match="no process reads"):
        DeadLetterFile(tmp_path / "pipe")


def test_a_link_to_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    link, target = tmp_path / "dead", tmp_path / "not there"
    link.symlink_to(target)
    with pytest.raises(DeadLetterError, match="cannot write"):
        DeadLetterFile(link)
    assert not target.exists()


def test_what_is_emptied_is_what_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, precious = tmp_path / "dead", tmp_path / "precious"
    precious.write_text("precious")
    dead.symlink_to(precious)
    real = dead_letter_file._opened

    def swapped(path: Path) -> int:
        descriptor = real(path)
        dead.unlink()
        dead.write_text(DEAD)
        return descriptor

    monkeypatch.setattr(dead_letter_file, "_opened", swapped)
    with pytest.raises(DeadLetterError, match="no dead-letter file"):
        DeadLetterFile(dead)
    assert precious.read_text() == "precious"


def test_a_load_by_spark_replaces_no_other_file_by_its_state(tmp_path: Path) -> None:
    other = tmp_path / "other"
    for content in ("precious", '{"version": 1}', "null", '"precious"', "7", "[]"):
        other.write_text(content)
        for goes_on in (True, False):
            with pytest.raises(StateError, match="not a state file of a load by Spark"):
                SparkLoadState("t", "", 1).resumed(other, goes_on=goes_on)
    SparkLoadState("t", "x", 1, done=1).write(tmp_path / "state")
    fresh = SparkLoadState("t", "", 1)
    assert fresh.resumed(tmp_path / "state", goes_on=False) is fresh


@needs_matplotlib
def test_a_histogram_replaces_no_other_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys.png"
    keys.write_text("precious")
    assert main(["perf", "-t", "t", "--histogram", str(keys)]) == 2
    assert keys.read_text() == "precious"
    with pytest.raises(FileError, match="not a picture"):
        _replace(keys, _PNG)
    assert [each.name for each in tmp_path.iterdir()] == ["keys.png"]
    assert keys.read_text() == "precious"


@needs_matplotlib
def test_a_histogram_follows_no_link(tmp_path: Path) -> None:
    for content in (b"precious", _PNG):
        target, link = tmp_path / "target", tmp_path / "link.png"
        target.write_bytes(content)
        link.symlink_to(target)
        with pytest.raises(ConfigError, match="or a link"):
            check_picture(link)
        with pytest.raises(FileError):
            _replace(link, _PNG + b"x")
        assert target.read_bytes() == content
        link.unlink()


@needs_matplotlib
def test_a_histogram_replaces_an_earlier_one(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    for content in (_PNG + b"1", _PNG + b"2"):
        check_picture(picture)
        _replace(picture, content)
        assert picture.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]


def test_a_state_file_of_another_user_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    state = shared / "state"
    LoadState("t", complete=True).write(state)
    (shared / "link").symlink_to(state)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 4711)
        assert LoadState.read(state)  # by root for a user, in a directory that others cannot change
        shared.chmod(0o1777)
        with pytest.raises(StateError, match="another user"):
            LoadState.read(state)
    assert LoadState.read(state)
    with pytest.raises(StateError, match="cannot read"):
        LoadState.read(shared / "link")
    assert LoadState.read(shared / "none") is None
