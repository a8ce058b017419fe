"""The effects of `tests/conftest.py` on tests, seen from outside: in a separate pytest run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def run_pytest(
    directory: Path, source: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run one test module under our conftest and the project's settings."""
    module = directory / "test_sample.py"
    module.write_text("import asyncio, socket, pytest\n" + source)
    settings = ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(directory)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "conftest", *settings, "-q", str(module)],
        env=os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"} | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["function", "class", "module", "session"])
def test_a_leaked_task_fails_the_test_on_every_scope_of_loop(tmp_path: Path, scope: str) -> None:
    answer = run_pytest(
        tmp_path,
        f"""
@pytest.mark.asyncio(loop_scope={scope!r})
async def test_sample():
    asyncio.get_running_loop().leaked = asyncio.create_task(asyncio.sleep(60))
""",
        AIOPRODUCER_TEST_LOOP="asyncio",
    )
    assert answer.returncode == 1, answer.stdout
    assert "LeakError" in answer.stdout


def test_fixtures_end_before_leaks_are_searched(tmp_path: Path) -> None:
    answer = run_pytest(
        tmp_path,
        """
@pytest.fixture
async def task():
    task = asyncio.create_task(asyncio.sleep(60))
    yield task
    task.cancel()

async def test_sample(task):
    assert not task.done()
""",
    )
    assert answer.returncode == 0, answer.stdout


def test_an_unclosed_socket_fails_the_run(tmp_path: Path) -> None:
    answer = run_pytest(
        tmp_path,
        """
def test_sample():
    cycle = [socket.socket()]
    cycle.append(cycle)
""",
    )
    assert answer.returncode == 1, answer.stdout
    assert "socket.socket" in answer.stdout


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_the_event_loop_is_chosen_by_a_variable(tmp_path: Path, name: str) -> None:
    pytest.importorskip(name)
    answer = run_pytest(
        tmp_path,
        f"""
async def test_sample():
    assert type(asyncio.get_running_loop()).__module__.startswith({name!r})
    assert asyncio.get_running_loop().get_debug()
""",
        AIOPRODUCER_TEST_LOOP=name,
        PYTHONASYNCIODEBUG="1",
    )
    assert answer.returncode == 0, answer.stdout


def test_options_of_the_environment_do_not_reach_tests(tmp_path: Path) -> None:
    answer = run_pytest(
        tmp_path,
        """
def test_sample():
    import os
    assert "AIOPRODUCER_TEST_PROFILE" in os.environ
    assert not {"AIOPRODUCER_BOOTSTRAP_SERVERS", "AIOPRODUCER_ALLOW"} & set(os.environ)
""",
        AIOPRODUCER_BOOTSTRAP_SERVERS="127.0.0.1:1",
        AIOPRODUCER_ALLOW="env",
        AIOPRODUCER_TEST_PROFILE="dev",
    )
    assert answer.returncode == 0, answer.stdout


def test_an_unknown_event_loop_is_refused(tmp_path: Path) -> None:
    answer = run_pytest(tmp_path, "def test_sample(): pass", AIOPRODUCER_TEST_LOOP="twisted")
    assert answer.returncode == 4
    assert "must be asyncio or uvloop, not 'twisted'" in answer.stdout + answer.stderr
