"""The options as type checkers and IDEs see them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer
from aioproducer.config import OPTIONS

ROOT = Path(__file__).parents[1]
TYPED = Path(aioproducer.__file__).parent / "config" / "option_types.py"

PROGRAM = """
from aioproducer import Producer
from aioproducer.blocking import Producer as Blocking
from aioproducer.interceptors import Interceptor

class Closing(Interceptor):  # the other methods may be left out
    def close(self) -> None: ...

Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=5)
Producer({"bootstrap.servers": "localhost:9092"})
Blocking(bootstrap_servers=["a:1", "b:2"], compression_type="zstd")
Producer(bootstrap_servers="localhost:9092", interceptor_classes=[Closing()])
Producer(bootstrap_servers="localhost:9092", linger="5")  # unknown
Producer(bootstrap_servers="localhost:9092", linger_ms="five")  # wrong type
"""


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="not a checkout of the repository")
def test_the_types_are_those_of_the_option_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    from tools.option_types import source

    text = TYPED.read_text(encoding="utf-8")
    assert text == source()
    for name in OPTIONS:
        assert f"\n    {name}: " in text


def test_a_type_checker_has_the_options(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file=", "--no-error-summary", str(program)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line for line in checked.stdout.splitlines() if "error" in line]
    assert len(found) == 2, checked.stdout
    assert 'Unexpected keyword argument "linger" for "Producer"' in found[0]
    assert 'Argument "linger_ms" to "Producer" has incompatible type "str"' in found[1]
