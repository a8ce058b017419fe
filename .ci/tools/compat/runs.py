"""Running one file of tests with one client, in an environment of the program's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tools.compat.programs import Program
from tools.compat.sources import ROOT, WORK, NoSourcesError

CLIENTS = ("theirs", "ours")
LOGS = WORK / "logs"
_INSTALL_S = 540
_FILE_S = 900
_TEST_S = 60


@dataclass
class Results:
    """Outcomes of tests by their names."""

    passed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, other: Results) -> None:
        """Take the results of more tests."""
        self.passed |= other.passed
        self.skipped |= other.skipped
        self.failures |= other.failures


class Environment:
    """A virtual environment with a program, the needs of its tests, and this repository.

    Attributes:
        variables: More variables of the tests' process.
    """

    def __init__(self, program: Program) -> None:
        self.variables: dict[str, str] = {}
        self._program = program
        self._folder = WORK / "environments" / program.short

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self._folder / "bin" / "python"

    def make(self) -> None:
        """Make the environment, unless it exists with the same packages."""
        program = self._program
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        wanted = [f"{program.name}=={program.version}", *program.needs, *project["dependencies"]]
        stamp = self._folder / "stamp"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == "\n".join(wanted):
            return
        print(f"{program.short}: making its environment", flush=True)
        _check([sys.executable, "-m", "venv", "--clear", str(self._folder)])
        _check([str(self.python), "-m", "pip", "install", "--quiet", *wanted])
        (site,) = self._folder.glob("lib/python*/site-packages")
        (site / "repository.pth").write_text(f"{ROOT}\n", encoding="utf-8")
        stamp.write_text("\n".join(wanted), encoding="utf-8")


def _check(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, timeout=_INSTALL_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise NoSourcesError("installing what its tests need took too long") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NoSourcesError(
            f"what its tests need cannot be installed: {' '.join(last)}"
        ) from error


def run_tests(
    program: Program,
    sources: Path,
    environment: Environment,
    client: str,
    names: list[str],
    deadline: float,
) -> Results:
    """Run files of tests, or tests, with one client; bounded in time."""
    report = WORK / f"{program.short}.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "tools.compat.swap", "-p", "no:cacheprovider", f"--timeout={_TEST_S}"]
    options += ["-m", program.marked] if program.marked else []
    command = [str(environment.python), "-m", "pytest", *options, f"--junit-xml={report}", *names]
    variables = {
        **os.environ,
        **environment.variables,
        "AIOPRODUCER_COMPAT": client,
        "AIOPRODUCER_COMPAT_PROGRAM": program.short,
        "PYTHONPATH": str(ROOT / ".ci"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    began = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{program.short}-{client}.txt"
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            cwd=sources,
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            process.wait(min(_FILE_S, max(60.0, deadline - began)))
        except subprocess.TimeoutExpired:
            print(f"{program.short} {names[0]} with {client}: not ended in time", flush=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    found = _read(report)
    print(
        f"{program.short} {' '.join(names)} with {client}: {len(found.passed)} passed, "
        f"{len(found.failures)} failed, {len(found.skipped)} skipped, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    return found


def _read(report: Path) -> Results:
    results = Results()
    if not report.exists():
        return results
    for case in ElementTree.parse(report).iter("testcase"):
        name = _node_id(case)
        if not name:
            continue
        wrong = next((each for each in case if each.tag in {"failure", "error"}), None)
        if wrong is not None:
            text = (wrong.get("message") or "").splitlines()
            results.failures[name] = text[0][:200] if text else wrong.tag
        elif any(each.tag == "skipped" for each in case):
            results.skipped.add(name)
        else:
            results.passed.add(name)
    results.passed -= set(results.failures)  # a teardown that failed
    return results


def _node_id(case: ElementTree.Element) -> str:
    """A name that pytest takes: `tests/test_x.py::TestY::test_z`; empty for a broken module."""
    if not case.get("classname"):
        return ""
    parts = (case.get("classname") or "").split(".")
    module = next(
        (number for number, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1
    )
    path = "/".join(parts[: module + 1]) + ".py"
    return "::".join([path, *parts[module + 1 :], case.get("name") or ""])
