"""Installs the package in place, with its native core and every tool, into this environment.

The locked versions are constraints: where they do not fit (another Python, another platform) the
newest versions that fit are installed instead, and that is said.
"""

import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.lock")
# A plain path in the environment, unlike an import hook, is seen by type checkers and costs nothing
# at start-up.
PACKAGE = ["--config-settings", "editable_mode=compat", "-e", ".[dev]"]


def pip_install(*arguments: str) -> int:
    """Run pip from the repository's root; its exit code."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    return subprocess.run(command, cwd=LOCK.parent.parent, check=False).returncode


def main() -> int:
    """Install with the locked versions, else without."""
    if pip_install("--constraint", str(LOCK), *PACKAGE) == 0:
        return 0
    print("The locked versions do not fit here: installing the newest that do.", file=sys.stderr)
    return pip_install(*PACKAGE)


if __name__ == "__main__":
    sys.exit(main())
