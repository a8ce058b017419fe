"""Spark as processes of this machine: a standalone cluster, and a Spark Connect server.

Each worker of the cluster has a separate loopback address, so that Spark takes them for different
machines: it runs no second attempt of a task where the first one runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from aioproducer.testing.kafka.ports import free_ports
from support.children import environment

_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_READY_S = 120.0


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[str]:
    """Starts it, each worker with so many cores; gives its master's address.

    Raises:
        TimeoutError: it does not start.
    """
    port, page = map(str, free_ports(2))
    master = f"spark://127.0.0.1:{port}"
    commands = [["master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", page]]
    limits = ["--cores", str(cores), "--memory", "1g", "--webui-port", "0"]
    for number in range(1, workers + 1):
        place = ["--host", f"127.0.0.{number}", "--work-dir", str(folder / f"worker {number}")]
        commands.append(["worker.Worker", *place, *limits, master])
    with ExitStack() as running:
        logs = []
        for number, (name, *arguments) in enumerate(commands):
            log = folder / f"spark {number}.log"
            running.enter_context(_running([f"{_DEPLOY}.{name}", *arguments], arguments[1], log))
            logs.append(log)
        _wait(logs[1:], "Successfully registered with master")
        yield master


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start a Spark Connect server that runs its jobs in its own process; yield its address.

    Raises:
        TimeoutError: it does not start.
    """
    (port,), log = free_ports(1), folder / "spark connect.log"
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
    with _running([*submit, *confs, "spark-internal"], "127.0.0.1", log, memory="1g"):
        _wait([log], "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], address: str, log: Path, memory: str = "256m") -> Iterator[None]:
    own = {
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": address,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [_SPARK / "bin" / "spark-class", *command],
            stdout=sink,
            stderr=sink,
            env=environment(**own),
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
