"""The tests that run each line, from one run of the tests under coverage; kept below build/."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

from tools.mutation.trial import PYTEST_ARGUMENTS, in_child


class CoverageMap(NamedTuple):
    """Seconds of each test that passed, and by path and line the tests that ran it."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]

    def tests_of(self, path: str, lines: range | None) -> list[str]:
        """Return the tests that run any of these lines (None: of the module), quickest first."""
        found = {
            test
            for line, tests in self.lines.get(path, {}).items()
            if lines is None or line in lines
            for test in tests
        }
        return self._quickest_first(found & self.seconds.keys())

    def tests_below(self, folder: str) -> list[str]:
        """Return all tests of a folder, quickest first."""
        return self._quickest_first(test for test in self.seconds if test.startswith(folder + "/"))

    def _quickest_first(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds[test], test))


class _Recorder:
    """A pytest plugin: each test is a context of the measurement."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self._failed: set[str] = set()
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._measured.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.outcome != "passed":
            self._failed.add(name)

    def passed(self) -> dict[str, float]:
        return {name: s for name, s in self._seconds.items() if name not in self._failed}


def load_map(root: Path, tests: Sequence[str], file: Path) -> CoverageMap:
    """Return the map of these tests; measure it unless the file is of the same sources."""
    digest = _digest(root, tests)
    if not file.exists() or json.loads(file.read_text())["digest"] != digest:
        print(f"measuring which lines {' '.join(tests)} run", flush=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        in_child(lambda: _measure(root, tests, file, digest), seconds=6 * 3600)
    stored = json.loads(file.read_text())
    if stored["digest"] != digest:
        raise SystemExit("the tests could not be measured; run them alone to see why")
    names = stored["names"]
    lines = {
        path: {int(line): [names[i] for i in tests] for line, tests in of_file.items()}
        for path, of_file in stored["lines"].items()
    }
    return CoverageMap(stored["seconds"], lines)


def _measure(root: Path, tests: Sequence[str], file: Path, digest: str) -> int:
    measured = coverage.Coverage(
        data_file=str(file.with_suffix(".coverage")),
        config_file=False,
        include=[str(root / "aioproducer" / "*")],
    )
    recorder = _Recorder(measured)
    measured.erase()
    measured.start()
    code = pytest.main([*PYTEST_ARGUMENTS, *tests], plugins=[recorder])
    measured.stop()
    measured.save()
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        return int(code)
    data, seconds = measured.get_data(), recorder.passed()
    names = sorted(seconds)
    number = {name: i for i, name in enumerate(names)}
    lines = {
        str(Path(path).relative_to(root)): {
            line: sorted(number[name] for name in contexts if name in number)
            for line, contexts in data.contexts_by_lineno(path).items()
        }
        for path in data.measured_files()
    }
    stored = {"digest": digest, "seconds": seconds, "names": names, "lines": lines}
    file.write_text(json.dumps(stored))
    return 0


def _digest(root: Path, tests: Sequence[str]) -> str:
    digest = hashlib.sha256(repr(list(tests)).encode())
    for folder in ("aioproducer", "tests/support", *tests):
        place = root / folder
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(str(file).encode() + file.read_bytes())
    return digest.hexdigest()
