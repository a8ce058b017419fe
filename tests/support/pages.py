"""Reads the pages of the documentation and runs their Python blocks as they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.children import environment

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "aioproducer" / "docs"
SERVERS = "localhost:9092"
REGISTRY = "http://localhost:8081"
_RUN_S = 100.0


def page(name: str) -> str:
    """The text of a page in `aioproducer/docs`, or of README.md."""
    path = ROOT / name if name.endswith(".md") else DOCS / f"{name}.md"
    return path.read_text(encoding="utf-8")


def blocks(text: str, language: str = "python") -> list[str]:
    """The fenced blocks of a text in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def is_test(block: str) -> bool:
    """Return whether a block is a test file, which pytest runs."""
    return re.search(r"^(async )?def test_", block, flags=re.MULTILINE) is not None


def run_program(block: str, folder: Path, servers: str = SERVERS, registry: str = REGISTRY) -> str:
    """Run a block as a program in a separate process; return what it prints.

    Only the addresses of the brokers and of the schema registry are replaced.
    """
    path = folder / "program.py"
    path.write_text(block.replace(SERVERS, servers).replace(REGISTRY, registry), encoding="utf-8")
    done = _run([sys.executable, str(path)], folder)
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_tests(tests: list[str], folder: Path) -> None:
    """Run test files by pytest, with asyncio's auto mode and no plugins but ours."""
    for number, test in enumerate(tests):
        (folder / f"test_{number}.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "aioproducer.testing.plugin"]
    command += ["-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"]
    command += ["--strict-markers", "-p", "no:cacheprovider", str(folder)]
    done = _run(command, folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(tests)} passed" in done.stdout


def definitions(block: str, servers: str = SERVERS) -> dict[str, Any]:
    """Return what a program defines, without its last line, which runs it."""
    text, _, _ = block.replace(SERVERS, servers).rpartition("asyncio.run(")
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, "program.py", "exec"), scope)
    return scope


def _run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment(), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=_RUN_S,
    )
