from __future__ import annotations

from pathlib import Path

import pytest
from support.windows import output_without_posix

from aioproducer._util.paths import exists, is_file, is_folder, path_in_url, replacing


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


@pytest.mark.parametrize("url", ["file:/run/a%20b", "file:///run/a%20b"])
def test_the_url_of_a_file_has_its_path(url: str) -> None:
    assert path_in_url(url) == "/run/a b"


PATH_ON_WINDOWS = """
import urllib.request, warnings
with warnings.catch_warnings(action="ignore"):  # deprecated since Python 3.14
    import nturl2path
urllib.request.url2pathname = nturl2path.url2pathname
from aioproducer._util.paths import path_in_url
print(path_in_url(sys.argv[1]))
"""


@pytest.mark.parametrize("url", ["file:///C:/run/a%20b", "file:/C:/run/a%20b"])
def test_the_url_of_a_file_on_windows_has_its_drive(url: str) -> None:
    assert output_without_posix(PATH_ON_WINDOWS, url) == r"C:\run\a b"


def test_a_file_is_replaced_as_a_whole_or_stays_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="full"), replacing(target) as beside:
        beside.write_bytes(b"part")
        raise OSError("the disk is full")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]
    with replacing(target) as beside:
        beside.write_bytes(b"new")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"new"]
