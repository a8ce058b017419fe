"""The dead-letter file and the state file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aioproducer.loader import DeadLetterError, LoadState, Position, Settled, StateError
from aioproducer.loader.dead_letter_file import DeadLetterFile
from aioproducer.loader.state_file import write_state

WHERE = Position("f.csv", None, 3)


def entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rejected_row_is_written_with_position_reason_and_text(tmp_path: Path) -> None:
    path = tmp_path / "dead.ndjson"
    dead = DeadLetterFile(path)
    dead.write(WHERE, "row", "2 fields", "a,é".encode())
    dead.write(Position("z.zip", "m", 4), "delivery", "too large", b"\xff")
    dead.sync()
    first, second = entries(path)
    assert first == {
        "file": "f.csv",
        "member": None,
        "row": 3,
        "stage": "row",
        "reason": "2 fields",
        "raw": "a,é",
    }
    assert (second["member"], second["stage"], second["raw_base64"]) == ("m", "delivery", "/w==")
    assert dead.size == path.stat().st_size
    dead.close()


def test_new_load_empties_the_file_and_a_resumed_one_keeps_its_part(tmp_path: Path) -> None:
    path = tmp_path / "dead.ndjson"
    dead = DeadLetterFile(path)
    dead.write(WHERE, "row", "first", b"")
    kept = dead.size
    dead.write(WHERE, "row", "read again after resume", b"")
    dead.close()
    resumed = DeadLetterFile(path, keep_bytes=kept)
    resumed.write(WHERE, "row", "second", b"")
    resumed.close()
    assert [entry["reason"] for entry in entries(path)] == ["first", "second"]
    DeadLetterFile(path).close()
    assert path.read_bytes() == b""


def test_lines_are_appended_after_the_end_of_one_that_a_killed_load_left_torn(
    tmp_path: Path,
) -> None:
    path = tmp_path / "dead.ndjson"
    dead = DeadLetterFile(path)
    dead.write(WHERE, "row", "first", b"")
    dead.write(WHERE, "row", "torn", b"")
    dead.close()
    os.truncate(path, dead.size - 5)
    later = DeadLetterFile(path, keep_bytes=None)
    later.write(WHERE, "row", "later", b"")
    later.close()
    first, torn, last = path.read_bytes().splitlines()
    assert [json.loads(line)["reason"] for line in (first, last)] == ["first", "later"]
    assert torn.startswith(b'{"file": "f.csv"')
    assert later.size == path.stat().st_size


def test_a_state_file_whose_name_is_too_long_for_the_one_beside_it_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(StateError, match="cannot write the state file"):
        write_state(tmp_path / ("s" * 250), {})


def test_a_file_with_rows_of_another_input_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "dead.ndjson"
    dead = DeadLetterFile(path)
    dead.write(WHERE, "row", "first", b"")
    dead.close()
    content = path.read_bytes()
    with pytest.raises(
        DeadLetterError, match=r"has rows of f\.csv, which is no input of this load"
    ):
        DeadLetterFile(path, is_input={"g.csv"}.__contains__)
    assert path.read_bytes() == content
    DeadLetterFile(path, keep_bytes=len(content), is_input={"g.csv"}.__contains__).close()
    assert path.read_bytes() == content
    DeadLetterFile(path, is_input={"e.csv", "f.csv"}.__contains__).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    "content", [b"id,name\n1,a\n", b'{"id": 1}\n', b"[" * 100_000, b"\xff\xfe\n", b"1\n"]
)
def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "input.csv"
    path.write_bytes(content)
    link = tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(DeadLetterError, match="is no dead-letter file"):
            DeadLetterFile(name)
    assert path.read_bytes() == content


def test_the_file_of_a_running_load_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "dead.ndjson"
    running = DeadLetterFile(path)
    running.write(WHERE, "row", "first", b"")
    running.sync()
    with pytest.raises(DeadLetterError, match="another load is writing it"):
        DeadLetterFile(path)
    running.close()
    assert [entry["reason"] for entry in entries(path)] == ["first"]
    DeadLetterFile(path).close()


def test_files_with_records_are_for_their_owner_alone(tmp_path: Path) -> None:
    DeadLetterFile(tmp_path / "dead").close()
    write_state(tmp_path / "state", {"a": 1})
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


def test_lost_file_is_begun_anew_by_a_resumed_load(tmp_path: Path) -> None:
    dead = DeadLetterFile(tmp_path / "dead", keep_bytes=1000)
    dead.close()
    assert (dead.size, dead.path.read_bytes()) == (0, b"")


def test_dead_letters_can_go_to_a_device() -> None:
    dead = DeadLetterFile("/dev/null")
    dead.write(WHERE, "row", "why", b"")
    dead.sync()
    dead.close()
    assert os.path.exists("/dev/null")  # noqa: PTH110


def test_unwritable_dead_letter_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeadLetterError, match="cannot write the dead-letter file"):
        DeadLetterFile(tmp_path / "missing" / "dead")


@pytest.mark.parametrize("position", [None, WHERE])
def test_state_is_read_as_it_was_written(tmp_path: Path, position: Position | None) -> None:
    state = LoadState("t", position, complete=True, settled=Settled(5, 2, 1, 99), input_bytes=7)
    state.write(tmp_path / "state.json")
    assert LoadState.read(tmp_path / "state.json") == state
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_state_of_a_load_of_many_inputs_is_read_again(tmp_path: Path) -> None:
    state = LoadState("t", WHERE, files_before="0123abcd" * 500_000)
    state.write(tmp_path / "state.json")
    assert LoadState.read(tmp_path / "state.json") == state


def test_failed_write_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    LoadState("old").write(path)

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StateError, match="No space left"):
        LoadState("new").write(path)
    assert LoadState.read(path) == LoadState("old")
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def test_no_state_file_is_no_state(tmp_path: Path) -> None:
    assert LoadState.read(tmp_path / "state.json") is None


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 2}', "\x00", '{"version": 1}'])
def test_file_that_is_no_state_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    with pytest.raises(StateError, match="is not a state file"):
        LoadState.read(path)
