"""The published files: their rules hold, their tables are complete. `make package` builds them."""

from __future__ import annotations

import io
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.pages import blocks, page
from tools.package.build import not_optimised, without_traces
from tools.package.contents import NATIVE, WHEEL_BYTES, sdist_problems, wheel_problems
from tools.package.quickstart import steps

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def requirements() -> dict[str, set[str]]:
    """Every package that is named somewhere, and its floors."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    named = [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]
    found: dict[str, set[str]] = {}
    for text in named:
        match = re.fullmatch(r"([\w-]+)(?:\[[\w,-]+\])?(?:>=([\d.]+))?", text.partition(";")[0])
        assert match, f"a floor and nothing else: {text}"
        if match[1] != "aioproducer":
            found.setdefault(match[1], set()).add(match[2] or "any")
    return found


def listed() -> dict[str, set[str]]:
    """The packages and floors of the tables in CONTRIBUTING.md; each has a license and a reason."""
    section = CONTRIBUTING.split("## Dependencies", 1)[1]
    found: dict[str, set[str]] = {}
    for line in re.findall(r"^\| (.+) \|$", section, flags=re.MULTILINE):
        *_, names, floors, licence, reason = (cell.strip() for cell in line.split("|"))
        if names == "package" or set(names) <= {"-"}:
            continue
        assert licence and reason, line
        for name, floor in zip(names.split(", "), floors.split(", "), strict=True):
            found.setdefault(name, set()).add(floor)
    return found


def test_every_dependency_is_listed_with_its_floor_license_and_reason() -> None:
    assert listed() == requirements()


def test_extras_can_be_installed_on_windows() -> None:
    (uvloop,) = map(Requirement, PROJECT["project"]["optional-dependencies"]["uvloop"])
    assert uvloop.marker is not None
    assert not uvloop.marker.evaluate({"sys_platform": "win32"})
    assert uvloop.marker.evaluate({"sys_platform": "linux"})


def test_wheels_are_configured_for_every_python_that_is_promised() -> None:
    named = {
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["project"]["classifiers"]
        if re.search(r":: 3\.\d+$", classifier)
    }
    built = {
        re.sub(r"cp3(\d+)-\*", r"3.\1", each) for each in PROJECT["tool"]["cibuildwheel"]["build"]
    }
    assert built == named
    for version in named:
        assert version in page("install")


@pytest.mark.parametrize(
    ("flags", "is_optimised"),
    [("-g -O2 -Wall", True), ("-O3", True), ("-g0", False), ("-O0", False)],
)
def test_a_wheel_whose_code_is_not_optimised_is_refused(flags: str, is_optimised: bool) -> None:
    output = f"running build_ext\ngcc {flags} -fPIC -c build/_native.c -o build/_native.o\n"
    assert bool(not_optimised(output)) is not is_optimised


def test_the_quickstart_runs_the_steps_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = list(steps(readme))
    assert [kind for kind, _ in found].count("program") == 1
    commands = [text for kind, text in found if kind == "command"]
    assert "pip install 'aioproducer[cli]'" in commands
    assert commands[-2:] == ["python first.py", "aioproducer topics read orders"]
    assert any(command.endswith("&") for command in commands)
    assert all(any(command in block for block in blocks(readme, "console")) for command in commands)


def wheel(folder: Path, *more: str, without: str = "", size: int = 10) -> Path:
    path = folder / "a.whl"
    names = ["aioproducer/py.typed", "pyspark_aioproducer/__init__.py"]
    names += [f"aioproducer/{module}.cpython-311-x86_64-linux-gnu.so" for module in NATIVE]
    with zipfile.ZipFile(path, "w") as archive:
        for name in {*names, *more} - {without}:
            archive.writestr(name, b"x" * size)
    return path


def test_a_wheel_is_refused_that_is_large_incomplete_or_has_what_belongs_elsewhere(
    tmp_path: Path,
) -> None:
    assert wheel_problems(wheel(tmp_path)) == []
    (large,) = wheel_problems(wheel(tmp_path, size=WHEEL_BYTES // len(NATIVE)))
    assert large.endswith(f"bytes, {WHEEL_BYTES:,} are allowed")
    missing = wheel(tmp_path, without="aioproducer/py.typed")
    assert wheel_problems(missing) == ["aioproducer/py.typed is missing"]
    strays = wheel(
        tmp_path,
        "aioproducer/docs/tutorial.md",
        "tests/test_docs.py",
    )
    assert sorted(wheel_problems(strays)) == [
        "aioproducer/docs/tutorial.md does not belong into a wheel",
        "tests/test_docs.py does not belong here",
    ]
    pure = wheel(tmp_path, without=f"aioproducer/{NATIVE[0]}.cpython-311-x86_64-linux-gnu.so")
    assert wheel_problems(pure) == [f"the native module {NATIVE[0]} is missing"]


def sdist(folder: Path, name: str, moment: int, *, backwards: bool = False) -> Path:
    """A source distribution with traces: a time, an owner, an order."""
    path = folder / name
    names = ["pyproject.toml", "setup.py", "README.md", "LICENSE", "PKG-INFO"]
    names += [f"aioproducer/{module}.pyx" for module in NATIVE]
    with tarfile.open(path, "w:gz") as archive:
        for file in reversed(names) if backwards else names:
            member = tarfile.TarInfo(f"aioproducer-1/{file}")
            member.size, member.mtime, member.uname = 1, moment, f"user-{moment}"
            archive.addfile(member, io.BytesIO(b"x"))
    return path


def test_source_distributions_of_the_same_content_become_the_same_bytes(tmp_path: Path) -> None:
    one = sdist(tmp_path, "one.tar.gz", 1)
    other = sdist(tmp_path, "other.tar.gz", 2, backwards=True)
    assert one.read_bytes() != other.read_bytes()
    for path in (one, other):
        without_traces(path, 1_700_000_000)
    assert one.read_bytes() == other.read_bytes()
    assert sdist_problems(one) == []
    with tarfile.open(one) as archive:
        assert {member.mtime for member in archive} == {1_700_000_000}


@pytest.mark.parametrize("name", ["aioproducer/x.so", "tests/x.py"])
def test_a_source_distribution_is_refused_that_has_what_belongs_elsewhere(
    tmp_path: Path, name: str
) -> None:
    path = sdist(tmp_path, "one.tar.gz", 1)
    with tarfile.open(path) as archive:
        members = [(each, archive.extractfile(each)) for each in archive]
        with tarfile.open(tmp_path / "two.tar.gz", "w:gz") as more:
            for member, content in members:
                more.addfile(member, content)
            more.addfile(tarfile.TarInfo(f"aioproducer-1/{name}"))
    assert len(sdist_problems(tmp_path / "two.tar.gz")) == 1
