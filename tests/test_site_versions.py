"""The site of each minor version is kept beside the others, the newest one first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.site.versions import minor_of, publish


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("first")
    return site


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    return folder


def test_versions_are_ordered_by_number_and_the_root_leads_to_the_newest(
    site: Path, folder: Path
) -> None:
    for version in ("0.10.0", "0.9.2", "1.0.0rc1", "0.2.0"):
        versions = publish(site, folder, version)
    assert versions == ["1.0", "0.10", "0.9", "0.2"]
    assert json.loads((folder / "versions.json").read_text()) == versions
    assert 'url=1.0/"' in (folder / "index.html").read_text()


def test_a_patch_replaces_the_pages_of_its_minor_version_only(site: Path, folder: Path) -> None:
    (site / "gone.html").write_text("")
    publish(site, folder, "0.1.0")
    publish(site, folder, "0.2.0")
    (site / "gone.html").unlink()
    (site / "index.html").write_text("second")
    assert publish(site, folder, "0.1.1") == ["0.2", "0.1"]
    assert [path.name for path in (folder / "0.1").iterdir()] == ["index.html"]
    assert (folder / "0.1/index.html").read_text() == "second"
    assert (folder / "0.2/index.html").read_text() == "first"


def test_other_files_of_the_folder_are_no_versions(site: Path, folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "CNAME").write_text("docs.example")
    (folder / "0.3").write_text("a file")
    assert publish(site, folder, "0.1.0") == ["0.1"]
    assert (folder / "CNAME").exists()


@pytest.mark.parametrize("version", ["", "1", "main", "v1.2"])
def test_what_has_no_minor_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="minor version"):
        minor_of(version)
