"""Kafka's own Java classes read what we encode, and write the same bytes again.

Generated messages of every version go through a Java process with the kafka-clients jar: the
current one, and 3.9 for retired versions. Skipped where Maven or a JDK is missing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings

from aioproducer.testing.kafka.errors import JavaError
from aioproducer.testing.kafka.java import JavaRange, find_java
from aioproducer.testing.maven import MavenMissingError, fetch_classpath
from aioproducer.wire.schema import Message

from .generated import VERSIONS, by_name, instances

CURRENT = ("org.apache.kafka:kafka-clients:4.4.0",)
RETIRED = ("org.apache.kafka:kafka-clients:3.9.2",)
FIRST_CURRENT_VERSION = {
    "Produce": 3,
    "Fetch": 4,
    "ListOffsets": 1,
    "OffsetCommit": 2,
    "OffsetFetch": 1,
    "CreateTopics": 2,
    "DeleteTopics": 1,
    "DescribeConfigs": 1,
}
"""What 4.0 retired (KIP-896); the Java classes of 4.x refuse anything below."""

PROGRAM = Path(__file__).parent / "java" / "Reencode.java"
JAVA = JavaRange(17, 25, "17.0.9.2")


class Reencoder:
    """A Java process that answers each message with its own encoding of it."""

    def __init__(self, coordinates: tuple[str, ...]) -> None:
        try:
            java = find_java(JAVA)
            jars = fetch_classpath(coordinates)
        except (JavaError, MavenMissingError) as error:
            pytest.skip(str(error))
        if java.tool("javac") is None:
            pytest.skip(f"{java} has no compiler; the comparison needs a JDK")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self.process = subprocess.Popen(
            [java.executable, *options, "-cp", os.pathsep.join(map(str, jars)), PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, cls: type[Message], version: int, data: bytes) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{cls.__name__} {version} {data.hex()}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert not answer.startswith("error"), f"{cls.__name__} v{version}: {answer}"
        return bytes.fromhex(answer)


@contextmanager
def reencoder(coordinates: tuple[str, ...]) -> Iterator[Reencoder]:
    running = Reencoder(coordinates)
    with running.process:
        yield running
        running.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def current() -> Iterator[Reencoder]:
    with reencoder(CURRENT) as running:
        yield running


@pytest.fixture(scope="module")
def retired() -> Iterator[Reencoder]:
    with reencoder(RETIRED) as running:
        yield running


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=by_name)
def test_java_reads_our_bytes_and_writes_them_again(
    cls: type[Message], version: int, current: Reencoder, retired: Reencoder
) -> None:
    api = cls.__name__.removesuffix("Request").removesuffix("Response")
    java = retired if version < FIRST_CURRENT_VERSION.get(api, 0) else current

    @settings(max_examples=8, deadline=None)
    @given(instances(cls, version))
    def agree(message: Message) -> None:
        encoded = message.encode(version)
        assert java(cls, version, encoded) == encoded

    agree()
