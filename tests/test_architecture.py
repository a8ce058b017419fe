"""The folders of the package stay small enough to be read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent
MOST_MODULES_OF_A_FOLDER = 22
MOST_MODULES = {PACKAGE: 11}
"""Smaller limits of single folders."""


def test_no_folder_has_too_many_modules() -> None:
    modules = Counter(path.parent for path in PACKAGE.rglob("*.py"))
    assert len(modules) > 30
    for folder, count in modules.items():
        assert count <= MOST_MODULES.get(folder, MOST_MODULES_OF_A_FOLDER), folder
