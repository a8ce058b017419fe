"""No version that the project pins or asks for has a known vulnerability."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

AUDIT = Path(__file__).parents[1] / ".ci" / "audit.py"

pytestmark = pytest.mark.skipif(not AUDIT.exists(), reason="not a checkout of the repository")


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    return runpy.run_path(str(AUDIT))


def test_no_locked_version_and_no_floor_is_known_to_be_vulnerable(audit: dict[str, Any]) -> None:
    assert audit["vulnerable"]() == []


def test_every_locked_version_and_every_extra_is_checked(audit: dict[str, Any]) -> None:
    assert len(list(audit["locked"]())) > 100
    floors = {(name, place) for name, _, place in audit["floors"]()}
    assert {("cryptography", "[oauth]"), ("starlette", "[starlette]")} <= floors


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("4.25.7", False),
        ("4.25.8", True),
        ("5.0", False),
        ("5.29.5", True),
        ("6.31.1", True),
        ("7.0", True),
        ("3.20", False),
    ],
)
def test_a_fix_counts_for_its_release_line_and_later_ones(
    audit: dict[str, Any], version: str, expected: bool
) -> None:
    fixed = [Version("4.25.8"), Version("5.29.5"), Version("6.31.1")]
    assert audit["is_fixed"](Version(version), fixed) is expected
