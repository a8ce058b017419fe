"""Interpreters to measure with: this one, and those that a variable names.

    AIOPRODUCER_BENCH_PYTHONS    paths of other interpreters, separated by spaces

Each of the others gets an environment below build/bench/ with the native core built in place. An
interpreter that has no such environment, because something cannot be installed there, is an error:
nothing is claimed for an interpreter that was not measured.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

VARIABLE = "AIOPRODUCER_BENCH_PYTHONS"
_ROOT = Path(__file__).parents[1]
_ENVIRONMENTS = _ROOT / "build" / "bench"
_LOCK = _ROOT / ".ci" / "requirements.lock"
_NEEDED = ("setuptools", "cython", "crc32c", "lz4", "zstandard", "cramjam", "uvloop", "pyarrow")
_CLIENTS = ("aiokafka", "confluent-kafka")
_LIMIT_S = 600.0


class InterpreterError(Exception):
    """An interpreter cannot be measured."""


def interpreters() -> dict[str, str]:
    """Return the executables by their versions, such as `3.13`; newest first."""
    found = {_minor(platform.python_version()): sys.executable}
    for python in os.environ.get(VARIABLE, "").split():
        version = _minor(run(python, "-c", "import platform; print(platform.python_version())"))
        if version not in found:
            found[version] = _environment(python, version)
    return dict(sorted(found.items(), key=lambda item: int(item[0].split(".")[1]), reverse=True))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _environment(python: str, version: str) -> str:
    directory = _ENVIRONMENTS / f"python-{version}"
    own = str(directory / "bin" / "python")
    if not directory.exists():
        run(python, "-m", "venv", str(directory))
    run(own, "-m", "pip", "install", "--quiet", "--constraint", str(_LOCK), *_NEEDED, *_CLIENTS)
    run(own, "setup.py", "--quiet", "build_ext", "--inplace")
    return own


def run(python: str, *arguments: str) -> str:
    """Return the output of an interpreter; raise `InterpreterError` if it fails."""
    try:
        done = subprocess.run(
            [python, *arguments],
            check=False,
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(f"{python}: {error}") from None
    if done.returncode:
        raise InterpreterError(f"{python} {' '.join(arguments)}:\n{done.stderr[-1000:]}")
    return done.stdout
