"""The console consumer that comes with a broker, of whatever age: the judge of old brokers.

Owns: which class that is and how its options are spelled in each release. Not here: what was
written. Every run has a bound.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from aioproducer.testing.kafka import KafkaCluster, LegacyKafkaCluster

Row = tuple[str, str]
"""Key and value as they are printed; a null key is the word `null`."""

_SEPARATOR = "\t"
_TAIL_BYTES = 2000
_FIRST_WITHOUT_ZOOKEEPER = (0, 10, 2)
_FIRST_WITH_INCLUDE = (3,)
_FIRST_IN_TOOLS = (3, 8)


def consume(cluster: KafkaCluster, topics: str, count: int, timeout_s: float) -> list[Row]:
    """The first `count` records of the topics that match the pattern; fewer at the timeout."""
    release = cluster.release
    classpath = release.broker_classpath()
    main = "kafka.tools.ConsoleConsumer"
    options: tuple[str, ...] = ()
    if release.number >= _FIRST_IN_TOOLS:
        main, classpath = (
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            release.tools_classpath(),
        )
    if isinstance(cluster, LegacyKafkaCluster):
        options = cluster.release.jvm_options
    if isinstance(cluster, LegacyKafkaCluster) and release.number < _FIRST_WITHOUT_ZOOKEEPER:
        source = ["--zookeeper", cluster.zookeeper]
    else:
        source = ["--bootstrap-server", cluster.bootstrap_servers]
    include = "--include" if release.number >= _FIRST_WITH_INCLUDE else "--whitelist"
    command = [str(cluster.java.executable), "-Xmx256m", "-XX:+UseSerialGC", *options]
    command += ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", os.pathsep.join(map(str, classpath)), main, *source]
    command += [include, topics, "--from-beginning", "--max-messages", str(count)]
    command += ["--property", "print.key=true", "--property", f"key.separator={_SEPARATOR}"]
    return _rows(_output(command, timeout_s))


def _output(command: Sequence[str], timeout_s: float) -> bytes:
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return expired.stdout or b""
    if answer.returncode:
        end = answer.stderr[-_TAIL_BYTES:].decode(errors="replace")
        raise RuntimeError(f"the console consumer failed ({answer.returncode}):\n{end}")
    return answer.stdout


def _rows(output: bytes) -> list[Row]:
    lines = (line.partition(_SEPARATOR) for line in output.decode().splitlines())
    return [(key, value) for key, separator, value in lines if separator]
