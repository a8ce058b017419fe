"""Commands replace no file but one of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.cli import main
from aioproducer.cli.console import FileError
from aioproducer.cli.perf_display import _PNG, _replace, check_picture
from aioproducer.errors import ConfigError

pytest.importorskip("matplotlib")


def test_a_histogram_replaces_no_other_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys.png"
    keys.write_text("precious")
    assert main(["perf", "-t", "t", "--histogram", str(keys)]) == 2
    assert keys.read_text() == "precious"
    with pytest.raises(FileError, match="no picture"):
        _replace(keys, _PNG)
    assert [each.name for each in tmp_path.iterdir()] == ["keys.png"]
    assert keys.read_text() == "precious"


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


def test_a_histogram_replaces_an_earlier_one(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    for content in (_PNG + b"1", _PNG + b"2"):
        check_picture(picture)
        _replace(picture, content)
        assert picture.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["a.png"]
