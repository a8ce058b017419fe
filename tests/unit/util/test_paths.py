from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer._util.paths import exists, is_file, is_folder


@pytest.mark.parametrize("name", [300 * "a", "a\0b", "loop", "missing", "file/below"])
def test_what_cannot_be_a_name_is_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    assert not (exists(name) or is_file(name) or is_folder(name))


def test_files_and_folders_are_distinguished(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert (exists(file), is_file(file), is_folder(file)) == (True, True, False)
    assert (exists(tmp_path), is_file(tmp_path), is_folder(tmp_path)) == (True, False, True)
