"""Jars for the tests, resolved by the user's own Maven.

Invariants: a resolved class path is kept in the user's cache directory and believed only while
every jar of it still exists; one process resolves at a time (a file lock), the others find its
answer; every wait has a bound, and Maven never outlives it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from aioproducer._util.arguments import seconds_of

DEFAULT_TIMEOUT_S = 600.0
_LOCK_POLL_S = 0.1
_OUTPUT_TAIL_CHARS = 2000


class MavenError(RuntimeError):
    """Maven could not resolve what was asked; the message carries the end of its output."""


class MavenMissingError(MavenError):
    """There is no `mvn` on the PATH."""


class MavenTimeoutError(MavenError, TimeoutError):
    """Maven, or another process resolving at the same time, took longer than the bound."""


def fetch_jar(coordinate: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Path:
    """Return the path of one jar, without its dependencies.

    Args:
        coordinate: `group:artifact:version`.
        timeout_s: The bound for Maven and for waiting for another process that resolves.

    Raises:
        ValueError: The coordinate is not of that form.
        MavenMissingError: There is no `mvn`.
        MavenError: Maven failed.
    """
    return _fetch([coordinate], exclude=["*:*"], timeout_s=timeout_s)[0]


def fetch_archive(
    coordinate: str,
    classifier: str,
    kind: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Path:
    """Return the path of a file beside a jar, such as a whole distribution.

    Args:
        coordinate: `group:artifact:version`.
        classifier: What the file is called besides.
        kind: The end of its name, such as `tar.gz`.
        timeout_s: The bound for Maven and for waiting for another process that resolves.

    Raises:
        ValueError: The coordinate is not of that form.
        MavenMissingError: There is no `mvn`.
        MavenError: Maven failed.
    """
    _, artifact, version = _parts(coordinate, ("groupId", "artifactId", "version"))
    directory = cache_dir() / "archives"
    target = directory / f"{artifact}-{version}-{classifier}.{kind}"
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds_of(timeout_s, "timeout_s")
    with _locked(directory / "lock", deadline):
        if not target.is_file():
            # Copied, not resolved as a dependency: what it depends on is inside of it.
            with tempfile.TemporaryDirectory(dir=directory) as draft:
                command = ["dependency:copy", f"-Dartifact={coordinate}:{kind}:{classifier}"]
                command.append(f"-DoutputDirectory={draft}")
                _maven(command, draft, [coordinate], deadline)
                (Path(draft) / target.name).replace(target)
    return target


def fetch_classpath(
    coordinates: Sequence[str],
    *,
    exclude: Sequence[str] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> list[Path]:
    """Return the jars of `coordinates` and of all they need at run time, in class path order.

    Args:
        coordinates: Each `group:artifact:version`.
        exclude: Dependencies to leave out with all they need, each `group:artifact`.
        timeout_s: The bound for Maven and for waiting for another process that resolves.

    Raises:
        ValueError: A coordinate is not of its form.
        MavenMissingError: There is no `mvn`.
        MavenError: Maven failed.
    """
    return _fetch(coordinates, exclude=exclude, timeout_s=timeout_s)


def cache_dir() -> Path:
    """Return the directory of everything the test tools keep between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "aioproducer"


def _fetch(coordinates: Sequence[str], *, exclude: Sequence[str], timeout_s: float) -> list[Path]:
    seconds_of(timeout_s, "timeout_s")
    pom = _pom(coordinates, exclude)
    directory = cache_dir() / "classpaths"
    entry = directory / f"{hashlib.sha256(pom.encode()).hexdigest()[:32]}.json"
    if jars := _remembered(entry):
        return jars
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with _locked(directory / "lock", deadline):
        if jars := _remembered(entry):
            return jars
        jars = _resolve(pom, coordinates, deadline)
        _remember(entry, jars)
    return jars


def _pom(coordinates: Sequence[str], exclude: Sequence[str]) -> str:
    exclusions = "".join(
        "<exclusion>" + _elements(name, ("groupId", "artifactId")) + "</exclusion>"
        for name in exclude
    )
    dependencies = "".join(
        "<dependency>"
        + _elements(coordinate, ("groupId", "artifactId", "version"))
        + f"<exclusions>{exclusions}</exclusions></dependency>"
        for coordinate in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>aioproducer.testing</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )


def _elements(coordinate: str, names: Sequence[str]) -> str:
    """`a:b` under the names `x` and `y` is `<x>a</x><y>b</y>`."""
    parts = _parts(coordinate, names)
    return "".join(
        f"<{name}>{escape(part)}</{name}>" for name, part in zip(names, parts, strict=True)
    )


def _parts(coordinate: str, names: Sequence[str]) -> list[str]:
    parts = coordinate.split(":")
    if len(parts) != len(names) or not all(parts):
        raise ValueError(f"{coordinate!r} is not of the form {':'.join(names)}")
    return parts


def _resolve(pom: str, coordinates: Sequence[str], deadline: float) -> list[Path]:
    with tempfile.TemporaryDirectory(prefix="aioproducer-mvn-") as directory:
        pom_path, output = Path(directory, "pom.xml"), Path(directory, "classpath")
        pom_path.write_text(pom, encoding="utf-8")
        command = ["--file", str(pom_path), "dependency:build-classpath"]
        command.append(f"-Dmdep.outputFile={output}")
        _maven(command, directory, coordinates, deadline)
        jars = [Path(part) for part in output.read_text(encoding="utf-8").split(os.pathsep) if part]
    if not jars or not all(jar.is_file() for jar in jars):
        raise MavenError(f"Maven resolved {', '.join(coordinates)} to jars that do not exist")
    return jars


def _maven(
    arguments: Sequence[str], directory: str, coordinates: Sequence[str], deadline: float
) -> None:
    executable = shutil.which("mvn")
    if executable is None:
        raise MavenMissingError(
            f"Maven (`mvn`) is needed to fetch {', '.join(coordinates)} and is not on the PATH; "
            "`make system-deps` installs it"
        )
    command = [executable, "--batch-mode", "--quiet", *arguments]
    _run(command, directory, coordinates, deadline)


def _run(command: list[str], directory: str, coordinates: Sequence[str], deadline: float) -> None:
    """Run Maven in a separate process group, so that a timeout ends its Java as well."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise MavenTimeoutError(f"Maven did not resolve {', '.join(coordinates)} in time") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        raise MavenError(
            f"Maven could not resolve {', '.join(coordinates)} (exit code {process.returncode}):\n"
            f"{output[-_OUTPUT_TAIL_CHARS:].strip()}"
        )


def _remembered(entry: Path) -> list[Path]:
    """Return the jars of an earlier run; empty where there was none or a jar is gone since."""
    try:
        jars = [Path(path) for path in json.loads(entry.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []
    return jars if all(jar.is_file() for jar in jars) else []


def _remember(entry: Path, jars: Sequence[Path]) -> None:
    """Write and rename: a reader without the lock sees a whole entry or none."""
    draft = entry.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps([str(jar) for jar in jars]), encoding="utf-8")
    draft.replace(entry)


@contextmanager
def _locked(path: Path, deadline: float) -> Iterator[None]:
    import fcntl  # not on Windows, where other kinds of clusters work

    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise MavenTimeoutError(f"another process holds {path} for too long") from None
                time.sleep(_LOCK_POLL_S)
        yield
