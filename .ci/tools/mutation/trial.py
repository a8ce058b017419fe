"""Run tests against one mutant, in a child process that imports the changed module.

The tree is not edited: an import hook compiles the changed syntax tree in place of the file. What a
test starts as its own process has no hook, hence runs unchanged code.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import NoReturn

import pytest

from tools.mutation.operators import mutated

PYTEST_ARGUMENTS = (
    # pytest's own import hook, which rewrites assertions, would come before the one of the mutant.
    *("-q", "-n0", "-p", "no:cacheprovider", "--assert=plain"),
    *("-m", "not kafka and not spark and not faults"),
)
MEMORY_BYTES = 4 << 30
STARTING_SECONDS = 60.0
"""Most of it for importing and collecting, which a busy machine slows."""
_LEAST_SECONDS = 60.0
"""The limit of a quick test: what it sets up is not in the measured time."""

PASSED, NOTHING_RAN = int(pytest.ExitCode.OK), int(pytest.ExitCode.NO_TESTS_COLLECTED)


class NotImportedError(Exception):
    """The tests do not import the module."""


class _Finder:
    """An import hook: one file has other code."""

    def __init__(self, file: Path, code: CodeType) -> None:
        self._file, self._code = str(file), code
        self.was_used = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("aioproducer"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin == self._file:
            code = self._code
            self.was_used = True

            class Loader(importlib.machinery.SourceFileLoader):
                def get_code(self, fullname: str) -> CodeType:
                    return code

            spec.loader = Loader(name, self._file)
        return spec


class _Order:
    """A pytest plugin: tests run in a given order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._place = {name: i for i, name in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._place.get(item.nodeid, -1))


def survives(file: Path, number: int, tests: Sequence[str], seconds: Sequence[float]) -> bool:
    """Return whether all tests pass with a mutant, or do not pass without it either.

    The mutant is a change of `file` by its number. `seconds` are those of each test without it.
    """
    longest = max(_LEAST_SECONDS, 10 * max(seconds))
    arguments = [*PYTEST_ARGUMENTS, "-x", f"--timeout={longest:.0f}", *tests]

    def run() -> int:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        return int(pytest.main(arguments, plugins=[_Order(tests)]))

    def run_changed() -> int:
        code = compile(mutated(file.read_text(encoding="utf-8"), number), str(file), "exec")
        finder = _Finder(file, code)
        sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
        outcome = run()
        return outcome if finder.was_used else NOTHING_RAN

    limit = STARTING_SECONDS + longest + 5 * sum(seconds)
    outcome = in_child(run_changed, limit, quiet=True)
    if outcome == NOTHING_RAN:
        raise NotImportedError(f"none of these tests ran {file}: {' '.join(tests[:5])}")
    return outcome == PASSED or in_child(run, limit, quiet=True) != PASSED


def in_child(work: Callable[[], int], seconds: float, quiet: bool = False) -> int:
    """Run in a forked process, which is killed after so long; return its exit code."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _be_child(work, quiet)
    deadline = time.monotonic() + seconds
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what the tests have left running
    return os.waitstatus_to_exitcode(ended[1])


def _be_child(work: Callable[[], int], quiet: bool) -> NoReturn:
    code = int(pytest.ExitCode.INTERNAL_ERROR)
    try:
        os.setsid()
        if quiet:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
        code = work()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
