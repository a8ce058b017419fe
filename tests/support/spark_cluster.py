"""Spark as processes of this machine: a standalone cluster, and a Spark Connect server.

Each worker of the cluster has a loopback address of its own, so that Spark takes them for different
machines: it runs no second attempt of a task where the first one runs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

ROOT = Path(__file__).parents[2]
_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_READY_S = 120.0


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Starts it; gives its master's address.

    Raises:
        TimeoutError: it does not start.
    """
    master, page = f"127.0.0.1:{_free_port()}", _free_port()
    host, port = master.split(":")
    commands = [["master.Master", "--host", host, "--port", port, "--webui-port", str(page)]]
    for number in range(1, workers + 1):
        limits = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / f"worker {number}")]
        place = ["--host", f"127.0.0.{number}", "--webui-port", "0"]
        commands.append(["worker.Worker", *place, *limits, f"spark://{master}"])
    with ExitStack() as running:
        logs = []
        for number, (name, *arguments) in enumerate(commands):
            log = folder / f"spark {number}.log"
            running.enter_context(_running([f"{_DEPLOY}.{name}", *arguments], arguments[1], log))
            logs.append(log)
        _wait(logs[1:], "Successfully registered with master")
        yield f"spark://{master}"


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Starts a Spark Connect server that runs what it is told in itself; gives its address.

    Raises:
        TimeoutError: it does not start.
    """
    port, log = _free_port(), folder / "spark connect.log"
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    arguments = [f"{key}={value}" for key, value in settings.items()]
    confs = [word for each in arguments for word in ("--conf", each)]
    submit = ["org.apache.spark.deploy.SparkSubmit", "--class", name, "--master", "local[2]"]
    with _running([*submit, *confs, "spark-internal"], "127.0.0.1", log):
        _wait([log], "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], address: str, log: Path) -> Iterator[None]:
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    own = {
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": address,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [_SPARK / "bin" / "spark-class", *command],
            stdout=sink,
            stderr=sink,
            env=os.environ | own,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _wait(logs: list[Path], words: str) -> None:
    deadline = time.monotonic() + _READY_S
    for log in logs:
        while words not in log.read_text(errors="replace"):
            if time.monotonic() > deadline:
                raise TimeoutError(log.read_text(errors="replace")[-3000:])
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
