"""`.ci/install.py`, which `make venv` and `make demo` run."""

from __future__ import annotations

import importlib.util
import io
from types import ModuleType

import pytest
from support.children import ROOT

SCRIPT = ROOT / ".ci" / "install.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="not a checkout of the repository")


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_outcome_of_pip_is_returned(install: ModuleType) -> None:
    assert install.pip_install("--help")
    assert not install.pip_install("--no-index", "a-package-that-does-not-exist")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream, shown in ((Terminal(), "\r\x1b[K3 packages found"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stdout", stream)
        install.show("3 packages found")
        assert stream.getvalue() == shown
