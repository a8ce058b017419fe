"""Digests topics with Apache Kafka's own Java consumer (BytesDeserializer).

The program is one Java source file, compiled when it is first wanted; a machine with only a JRE
cannot do that, and the tests that want it are skipped there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aioproducer.testing.kafka.java import Java, find_java
from aioproducer.testing.kafka.release import DEFAULT_VERSION, KafkaRelease
from aioproducer.testing.maven import cache_dir
from support.foreign import PartitionDigest, ReaderMissingError

DEFAULT_TIMEOUT_S = 120
_PROGRAM = Path(__file__).parent / "java" / "TopicDigest.java"
_START_TIMEOUT_S = 30
_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


async def digest_topics_java(
    bootstrap: str,
    topics: Sequence[str],
    isolation: str = "read_committed",
    *,
    timeout_s: int = DEFAULT_TIMEOUT_S,
) -> dict[str, dict[int, PartitionDigest]]:
    """Read topics to their present ends; gives a digest per topic and non-empty partition.

    Raises:
        ReaderMissingError: There is no JDK.
        RuntimeError: The program failed; the message carries what it printed.
    """
    return await asyncio.to_thread(_digest_topics, bootstrap, topics, isolation, timeout_s)


def find_jdk(release: KafkaRelease) -> Java:
    """A Java that can compile.

    Raises:
        ReaderMissingError: There is none.
    """
    java = find_java(release.java)
    if java.tool("javac") is None:
        raise ReaderMissingError(f"{java} has no compiler; the Java consumer needs a JDK")
    return java


def _digest_topics(
    bootstrap: str, topics: Sequence[str], isolation: str, timeout_s: int
) -> dict[str, dict[int, PartitionDigest]]:
    release = KafkaRelease.parse(DEFAULT_VERSION)
    java = find_jdk(release)
    jars = release.client_classpath()
    classpath = os.pathsep.join(map(str, [_compiled(java, jars), *jars]))
    program = [java.executable, *_OPTIONS, "-cp", classpath, _PROGRAM.stem]
    answer = _run(
        [*program, bootstrap, isolation, timeout_s, *topics], timeout_s + _START_TIMEOUT_S
    )
    digests: dict[str, dict[int, PartitionDigest]] = {topic: {} for topic in topics}
    for line in answer.splitlines():
        topic, partition, *numbers, sha256 = line.split("\t")
        digests[topic][int(partition)] = PartitionDigest(*map(int, numbers), sha256=sha256)
    return digests


def _compiled(java: Java, jars: Sequence[Path]) -> Path:
    """The directory of the compiled program; compiled once for each state of its source."""
    sources = f"{_PROGRAM.read_text()}{jars}{java.major}"
    target = cache_dir() / "java" / hashlib.sha256(sources.encode()).hexdigest()[:32]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as draft:
            classes = Path(draft, "classes")
            classpath = os.pathsep.join(map(str, jars))
            _run([java.tool("javac"), "-cp", classpath, "-d", classes, _PROGRAM], _START_TIMEOUT_S)
            with contextlib.suppress(OSError):  # another process may have been quicker
                classes.rename(target)
    return target


def _run(command: Sequence[object], timeout_s: float) -> str:
    answer = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if answer.returncode != 0:
        raise RuntimeError(f"the Java consumer failed:\n{answer.stderr[-4000:]}")
    return answer.stdout
