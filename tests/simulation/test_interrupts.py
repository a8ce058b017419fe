"""Exceptions at random lines of the producer's code: a few of them; `make interrupts` runs more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent
HARNESS = Path(__file__).with_name("interrupts.py")


def test_exceptions_at_random_lines_leave_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, HARNESS, "--sample", "80", "--seed", "11"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    summary = done.stdout.splitlines()[-1]
    assert " exceptions raised in 80 runs" in summary, done.stdout + done.stderr
    assert ", 0 runs with faults" in summary, done.stdout


@pytest.mark.parametrize(
    ("scenario", "module", "line", "hit"),
    [
        ("memory is full", "runtime/bulk/run.py", "batch.add_listener(tracked, _on_done)", 4),
        ("memory is full", "runtime/bulk/run.py", "self._outstanding[batch] = tracked", 1),
        ("transactions", "runtime/tasks/wakeup.py", "self._timer_at = until", 7),
    ],
)
def test_an_exception_at_this_line_leaves_nothing_behind(
    scenario: str, module: str, line: str, hit: int
) -> None:
    lines = (PACKAGE / module).read_text(encoding="utf-8").splitlines()
    (number,) = [at for at, text in enumerate(lines, 1) if text.strip().startswith(line)]
    done = subprocess.run(
        [
            *(sys.executable, HARNESS, "--scenario", scenario, "--kind", "MemoryError"),
            *("--asyncio-run", "--point", f"aioproducer/{module}:{number}:{hit}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.startswith("1 exceptions raised in 1 runs, 0 runs with faults"), done.stdout
