"""The machine of a measurement, and the path to the tests' own tools."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).parents[1] / "tests"


def find_tests() -> None:
    """Make `support` importable: `tests` is on the path for pytest alone."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))


def describe() -> str:
    """One line: date, processor, memory, system."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    today = time.strftime("%Y-%m-%d")
    return f"{today}, {_processor()}, {os.cpu_count()} CPUs, {memory_gib:.0f} GiB, {system}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
