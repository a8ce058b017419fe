"""Exceptions at random lines of the producer's code: a few of them; `make interrupts` runs more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
