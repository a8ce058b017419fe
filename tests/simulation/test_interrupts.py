"""Exceptions at random lines of the producer's code: a few of them; `make interrupts` runs more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer

PACKAGE = Path(aioproducer.__file__).parent
HARNESS = Path(__file__).with_name("interrupts.py")


def test_nothing_is_left_after_exceptions_at_random_lines() -> None:
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
    ("trial", "place", "hit"),
    [
        ("batches/KeyboardInterrupt/net/connection.py", "self.is_ended = True", 7),
        ("one by one/SystemExit/net/connection.py", "self.error = error\ntry:", 1),
        ("memory is full/MemoryError/runtime/bulk/run.py", "batch.add_listener(tracked", 4),
        ("memory is full/MemoryError/runtime/bulk/run.py", "self._outstanding[batch] = tracked", 1),
        ("memory is full/Signal/runtime/bulk/run.py", "an exception\nself._stalls = False", 5),
        (
            "memory is full/KeyboardInterrupt/runtime/bulk/run.py",
            "are needed.\nself.result.delivered",
            4,
        ),
        ("transactions/MemoryError/runtime/tasks/turns.py", "self._timer_at = until", 7),
    ],
)
@pytest.mark.parametrize("ending", [[], ["--asyncio-run"]])
def test_nothing_is_left_after_an_exception_at_this_line(
    trial: str, place: str, hit: int, ending: list[str]
) -> None:
    scenario, kind, module = trial.split("/", 2)
    text = (PACKAGE / module).read_text(encoding="utf-8")
    (found,) = re.finditer(re.escape(place).replace("\\\n", r"\n *"), text)
    number = text.count("\n", 0, found.end()) + 1  # of its last line
    done = subprocess.run(
        [
            *(sys.executable, HARNESS, "--scenario", scenario, "--kind", kind, *ending),
            *("--point", f"aioproducer/{module}:{number}:{hit}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.startswith("1 exceptions raised in 1 runs, 0 runs with faults"), done.stdout
