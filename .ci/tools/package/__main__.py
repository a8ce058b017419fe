"""Builds what is published into `dist/`, and refuses what must not be.

    python -m tools.package [--twice] [--python PATH]...

1. The source distribution, and the wheel from it.
2. Contents and size; `twine check`.
3. The wheel in a separate environment: a record is acknowledged and read back, natively.
4. A CycloneDX list of the components of that environment.

`--twice` builds again elsewhere and compares the bytes; `--python` names further interpreters (with
venv) to build and try wheels for.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.package.build import ROOT, Distributions, build
from tools.package.contents import WHEEL_BYTES, sdist_problems, wheel_problems

DIST = ROOT / "dist"
WORK = ROOT / "build" / "package"
_TOOLS = ("build", "setuptools>=77", "cython>=3.1")


def main() -> int:
    """All steps; the exit code."""
    parser = argparse.ArgumentParser(prog="tools.package")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--python", action="append", default=[])
    arguments = parser.parse_args()
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    built = _step("built", lambda: build(WORK / "first"))
    if arguments.twice:
        _step("built again: the same bytes", lambda: _same(built, build(WORK / "second")))
    problems = sdist_problems(built.sdist) + wheel_problems(built.wheel)
    if problems:
        raise SystemExit("\n".join(problems))
    files = [Path(shutil.copy(file, DIST)) for file in built]
    _step("twine check", lambda: _run(sys.executable, "-m", "twine", "check", "--strict", *files))
    environment = WORK / "environment"
    _step("a record through the wheel", lambda: _try(files[1], environment, sys.executable))
    _step("list of components", lambda: _list_components(environment, files[1]))
    for python in arguments.python:
        _step(f"a wheel for {python}", lambda python=python: _for_another(python))
    for file in sorted(DIST.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.name}")
    print(f"a wheel may have {WHEEL_BYTES:,} bytes")
    return 0


def _step(what: str, do: Any) -> Any:
    begin = time.monotonic()
    result = do()
    print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)
    return result


def _run(*command: object) -> None:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=WORK
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nfailed: {' '.join(map(str, command))}")


def _same(first: Distributions, second: Distributions) -> None:
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise SystemExit(f"two builds of {one.name} differ")


def _try(wheel: Path, environment: Path, python: str) -> None:
    """Install the wheel where nothing else is, and send a record."""
    _run(python, "-m", "venv", "--without-pip", environment)
    inside = environment / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", wheel)
    _run(inside, "-I", ROOT / ".ci" / "tools" / "package" / "smoke.py")


def _list_components(environment: Path, wheel: Path) -> None:
    target = DIST / f"{wheel.name.split('-cp')[0]}.cdx.json"
    inside = environment / "bin" / "python"
    command = [sys.executable, "-m", "cyclonedx_py", "environment", inside, "--output-reproducible"]
    _run(*command, "--pyproject", ROOT / "pyproject.toml", "--output-file", target)


def _for_another(python: str) -> None:
    tools = WORK / f"tools-{Path(python).name}-{len(list(WORK.iterdir()))}"
    _run(python, "-m", "venv", tools)
    inside = tools / "bin" / "python"
    _run(inside, "-m", "pip", "install", "--quiet", *_TOOLS)
    built = build(tools / "dist", str(inside))
    if problems := wheel_problems(built.wheel):
        raise SystemExit("\n".join(problems))
    _try(Path(shutil.copy(built.wheel, DIST)), tools / "environment", python)


if __name__ == "__main__":
    sys.exit(main())
