"""Rules for the contents and sizes of a wheel and a source distribution."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import Final

WHEEL_BYTES: Final = 3_000_000
"""A wheel is smaller."""

NATIVE: Final = (
    "records/_native",
    "records/_bulk",
    "records/_arrow",
    "runtime/delivery/_delivery",
    "runtime/send/_fast_path",
)
_WHEEL_HAS: Final = ("aioproducer/py.typed", "pyspark_aioproducer/__init__.py")
_SDIST_HAS: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "PKG-INFO")
_IN_SOURCES_ALONE: Final = (".md", ".c", ".pyx", ".pxd", ".pxi", ".pyc")
_NOWHERE: Final = ("tests", "bench", "examples", ".ci")


def wheel_problems(wheel: Path) -> list[str]:
    """Return the faults of a wheel; none if it may be published."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    size = wheel.stat().st_size
    problems = [f"{size:,} bytes, {WHEEL_BYTES:,} are allowed"] if size >= WHEEL_BYTES else []
    problems += [f"{name} is missing" for name in _WHEEL_HAS if name not in names]
    problems += [
        f"the native module {module} is missing"
        for module in NATIVE
        if not any(
            name.startswith(f"aioproducer/{module}.") and name.endswith((".so", ".pyd"))
            for name in names
        )
    ]
    problems += [
        f"{name} does not belong into a wheel" for name in names if name.endswith(_IN_SOURCES_ALONE)
    ]
    return problems + _strays(names)


def sdist_problems(sdist: Path) -> list[str]:
    """Return the faults of a source distribution."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    problems = [f"{name} is missing" for name in _SDIST_HAS if name not in names]
    problems += [
        f"the source of {module} is missing"
        for module in NATIVE
        if f"aioproducer/{module}.pyx" not in names
    ]
    problems += [f"{name} is compiled" for name in names if name.endswith((".so", ".pyd", ".pyc"))]
    return problems + _strays(names)


def _strays(names: list[str]) -> list[str]:
    return [f"{name} does not belong here" for name in names if name.split("/")[0] in _NOWHERE]
