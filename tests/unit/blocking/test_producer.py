"""The blocking producer's module."""

from __future__ import annotations

import subprocess
import sys


def test_a_fork_during_a_start_finds_the_engine_imported() -> None:
    # In the child of a fork a module stays half imported if another thread was importing it.
    script = (
        "import sys; from aioproducer.blocking import Producer; "
        "sys.exit('aioproducer.runtime.engine' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
