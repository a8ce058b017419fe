"""The files that one awaited record crosses, beside the goals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_one_awaited_record_crosses_few_files() -> None:
    counted = subprocess.run(
        [sys.executable, "-m", "bench.crossings"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert counted.returncode == 0, counted.stdout + counted.stderr
