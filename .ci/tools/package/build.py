"""Builds the source distribution, and the wheel from it; the same source gives the same bytes.

setuptools writes the time and the owner of each file into the source distribution; they are taken
out afterwards. Wheels follow SOURCE_DATE_EPOCH by themselves; what a compiler would write of the
directory it works in is mapped away.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]


class Distributions(NamedTuple):
    """The built files."""

    sdist: Path
    wheel: Path


def source_date() -> int:
    """SOURCE_DATE_EPOCH, or the time of the last commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.check_output(command, cwd=ROOT, text=True))


def build(directory: Path, python: str = sys.executable) -> Distributions:
    """Build both into `directory`, with the tools installed beside `python`."""
    _run_build(python, "--sdist", ROOT, directory)
    (sdist,) = directory.glob("*.tar.gz")
    without_traces(sdist, source_date())
    sources = directory / "sources"
    with tarfile.open(sdist) as archive:
        archive.extractall(sources, filter="data")
    (source,) = sources.iterdir()
    _run_build(python, "--wheel", source, directory)
    (wheel,) = directory.glob("*.whl")
    return Distributions(sdist, wheel)


def _run_build(python: str, kind: str, source: Path, directory: Path) -> None:
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(source_date()),
        "PYTHONHASHSEED": "0",
    }
    if sys.platform == "linux":
        # Not CFLAGS: they take the place of Python's own flags, and the code is not optimised.
        environment["CPPFLAGS"] = f"-ffile-prefix-map={source}=."
    command = [python, "-m", "build", "--no-isolation", kind, "--outdir", str(directory)]
    done = subprocess.run(
        [*command, str(source)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nthe {kind.lstrip('-')} could not be built")
    if "could not be compiled" in done.stdout:
        raise SystemExit(f"{done.stdout}\nthe wheel would lack its native core")
    if slow := not_optimised(done.stdout):
        raise SystemExit(f"compiled without optimisation:\n{slow[0]}")


def not_optimised(output: str) -> list[str]:
    """Return the commands in a build's output that compile without optimisation."""
    compiling = [line for line in output.splitlines() if " -c " in line and " -o " in line]
    return [line for line in compiling if not re.search(r"\s-O[123s]\b", line)]


def without_traces(sdist: Path, moment: int) -> None:
    """Write a source distribution anew: sorted, without owners, everything of one time."""
    content = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=content, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=moment) as packed:
        packed.write(content.getvalue())
