"""Many trials in one session of pytest: the tests are collected once, and each mutant is a fork.

A mutant that cannot be put in place here is left to `trial`, which imports the changed module anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from tools.mutation.patching import apply
from tools.mutation.trial import MEMORY_BYTES, PYTEST_ARGUMENTS, in_child

_LONGEST_TEST_S = 30
_STARTING_S = 10.0
_ALL_PASS, _NO_PLACE = "all pass", "no place"


class Question(NamedTuple):
    """A mutant, by file and number of the change (None: without a change), and its tests."""

    file: str
    number: int | None
    tests: list[str]
    seconds: float
    """How long the tests take without the change."""


class Answer(NamedTuple):
    """The result for a question.

    Attributes:
        killer: The test that fails; "" if the tests took too long; None if all pass.
        in_place: Whether the mutant could be put in place, or was killed.
    """

    killer: str | None
    in_place: bool


class _Child(NamedTuple):
    question: int
    pid: int
    pipe: int
    deadline: float
    folder: str


def answers(questions: Sequence[Question], jobs: int) -> list[Answer]:
    """Run the tests of each question, in their order until one fails."""
    tests = sorted({test.partition("::")[0] for each in questions for test in each.tests})
    if not tests:  # pytest would collect all there are
        return [Answer(None, in_place=False)] * len(questions)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers.json"

        def run() -> int:
            plugin = _Trials(questions, jobs)
            pytest.main(
                [*PYTEST_ARGUMENTS, "-s", f"--timeout={_LONGEST_TEST_S}", *tests], plugins=[plugin]
            )
            file.write_text(json.dumps(plugin.found))
            return 0

        in_child(run, seconds=24 * 3600)
        if not file.exists():
            raise SystemExit("the tests could not be collected; see above")
        found = json.loads(file.read_text())
    return [Answer(*found.get(str(number), (None, False))) for number in range(len(questions))]


class _Trials:
    """A pytest plugin: the collected tests judge mutant after mutant."""

    def __init__(self, questions: Sequence[Question], jobs: int) -> None:
        self._questions = questions
        self._jobs = jobs
        self._running: list[_Child] = []
        self.found: dict[int, Answer] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for number, question in enumerate(self._questions):
            while len(self._running) >= self._jobs:
                self._wait()
            if number % 100 == 0:
                print(f"mutant {number} of {len(self._questions)}", flush=True)
            tests = [items[test] for test in question.tests if test in items]
            if tests:
                self._running.append(_start(number, question, session, tests))
        while self._running:
            self._wait()
        return True

    def _wait(self) -> None:
        """Wait until at least one child has ended."""
        while True:
            for child in self._running:
                is_late = time.monotonic() > child.deadline
                if is_late:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(child.pid, signal.SIGKILL)
                if os.waitpid(child.pid, 0 if is_late else os.WNOHANG) != (0, 0):
                    self._end(child, is_late)
                    return
            time.sleep(0.005)

    def _end(self, child: _Child, is_late: bool) -> None:
        self._running.remove(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what the tests have left running
        with os.fdopen(child.pipe, "rb") as pipe:
            answer = pipe.read().decode()
        shutil.rmtree(child.folder, ignore_errors=True)
        if is_late:  # it hangs
            self.found[child.question] = Answer("", in_place=True)
        elif answer == _ALL_PASS:
            print(f"mutant {child.question}: no test fails", flush=True)
            self.found[child.question] = Answer(None, in_place=True)
        elif answer not in {_NO_PLACE, ""}:  # "": the process has crashed
            self.found[child.question] = Answer(answer, in_place=True)


def _start(
    number: int, question: Question, session: pytest.Session, tests: list[pytest.Item]
) -> _Child:
    folder = tempfile.mkdtemp(prefix="mutant-")
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        _be_child(lambda: _judge(question, session, tests), writing)
    os.close(writing)
    deadline = time.monotonic() + _STARTING_S + _LONGEST_TEST_S + 5 * question.seconds
    return _Child(number, pid, reading, deadline, folder)


def _judge(question: Question, session: pytest.Session, tests: list[pytest.Item]) -> str:
    """Return the first test that fails, or `_ALL_PASS`, or `_NO_PLACE` for the mutant."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    if question.number is not None and not apply(Path(question.file), question.number):
        return _NO_PLACE
    for test, following in pairwise([*tests, None]):
        if test is not None:
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.testsfailed:
                return test.nodeid
    return _ALL_PASS


def _be_child(work: Callable[[], str], pipe: int) -> NoReturn:
    try:
        os.setsid()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os.write(pipe, work().encode())
    finally:
        os._exit(0)
