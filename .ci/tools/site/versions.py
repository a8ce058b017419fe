"""Keeps the site of each version: one folder a minor version, and a list that their pages read.

python -m tools.site publish FOLDER     # adds the built site to what FOLDER has already

FOLDER/0.1/...         the site of the newest 0.1.x
FOLDER/versions.json   the versions, newest first: pages offer them, see `assets/versions.js`
FOLDER/index.html      leads to the newest
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

LIST = "versions.json"

_MINOR = re.compile(r"(\d+)\.(\d+)")
_REDIRECT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>aioproducer</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<link rel="canonical" href="{newest}/">
<a href="{newest}/">aioproducer {newest}</a>
</html>
"""


def publish(site: Path, folder: Path, version: str) -> list[str]:
    """Put a built site in the place of its minor version; return the versions, newest first."""
    minor = minor_of(version)
    target = folder / minor
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(site, target)
    versions = sorted((each.name for each in folder.iterdir() if _is_version(each)), key=_order)
    versions.reverse()
    (folder / LIST).write_text(json.dumps(versions) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_REDIRECT.format(newest=versions[0]), encoding="utf-8")
    return versions


def minor_of(version: str) -> str:
    """Return `1.2` of `1.2.3`; patches and pre-releases share the pages of their minor version."""
    found = _MINOR.match(version)
    if found is None:
        raise ValueError(f"{version!r} does not begin with a minor version such as 1.2")
    return found[0]


def _is_version(path: Path) -> bool:
    return path.is_dir() and _MINOR.fullmatch(path.name) is not None


def _order(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))
