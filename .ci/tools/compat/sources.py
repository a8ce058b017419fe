"""Sources of a program's tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tools.compat.programs import Program

ROOT = Path(__file__).parents[3]
WORK = ROOT / "build" / "compat"
_FETCH_S = 180
_HERE = Path(__file__).parent


class NoSourcesError(Exception):
    """The tests of a program cannot be had, or their needs not installed."""


def sources_of(program: Program, given: Path | None) -> Path:
    """Return a new folder with the program's tests; raise `NoSourcesError` if there are none."""
    target = WORK / "sources" / program.short
    shutil.rmtree(target, ignore_errors=True)
    if given is not None and (given / program.short).is_dir():
        shutil.copytree(given / program.short, target, symlinks=True)
    else:
        _fetch(program, target)
    if not all((target / name).exists() for name in program.tests):
        raise NoSourcesError(f"{program.tests[0]} and others are not in the sources")
    # The program that is tested is the installed one.
    shutil.rmtree(target / program.package, ignore_errors=True)
    for stand_in, place in program.stand_ins.items():
        kept = program.kept.get(place)
        if kept is not None:
            (target / place).rename(target / kept)
        shutil.copy(_HERE / stand_in, target / place)
    return target


def _fetch(program: Program, target: Path) -> None:
    downloads = WORK / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    wanted = f"{program.short}=={program.version}"
    _run(
        f"the source distribution of {wanted} cannot be fetched",
        f"{sys.executable} -m pip download --quiet --no-deps "
        f"--no-binary {program.short} --dest {downloads} {wanted}",
    )
    stem = f"{program.short.replace('-', '_')}-{program.version}"
    with tarfile.open(downloads / f"{stem}.tar.gz") as archive:
        archive.extractall(downloads, filter="data")
    unpacked = downloads / stem
    if all((unpacked / name).exists() for name in program.tests):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(unpacked, target)
        return
    _run(
        f"the source distribution of {wanted} has no tests, and {program.repository} cannot be "
        "reached (give checkouts with SOURCES=)",
        f"git clone --quiet --depth 1 --branch {program.tag} {program.repository} {target}",
    )


def _run(problem: str, command: str) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command.split(), env=environment, capture_output=True, timeout=_FETCH_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"{problem}: {error}") from error
    if done.returncode:
        raise NoSourcesError(problem)
