"""Run the tests with the oldest versions of the packages that users install.

    python .ci/floors.py [arguments of pytest]

Makes an environment in `build/floors` with the floors of the dependencies and of the extras, and
the newest versions of what only the tests need.
"""

import os
import subprocess
import sys
import tomllib
import venv

from audit import PROJECT, floors

ROOT = PROJECT.parent
FOLDER = ROOT / "build" / "floors"
PYTHON = str(FOLDER / "bin" / "python")
SYSTEMS = frozenset({"gssapi"})
"""Extras that need the system's headers."""
BESIDE = ("click<8.5",)
"""Newer ones warn when the oldest typer is imported, and the tests take warnings for errors."""


def requirements() -> list[str]:
    """Return the floors, and what the tests need besides."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    lowest = {
        name: f"{name}=={version}"
        for name, version, extra in floors()
        if extra.strip("[]") not in SYSTEMS
    }
    needed = project["optional-dependencies"]["test"]
    wanted = [line for line in needed if not line.startswith("aioproducer[")]
    return [*lowest.values(), *wanted, *BESIDE]


def main() -> int:
    """Return pytest's exit code."""
    if not FOLDER.exists():
        venv.create(FOLDER, with_pip=True)
        subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", *requirements()], check=True)
    tests = sys.argv[1:] or ["-m", "not slow", "tests/unit", "tests/conformance", "tests/spark"]
    command = [PYTHON, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-q", *tests]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
