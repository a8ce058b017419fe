"""Jars come through the user's Maven, once. A stand-in `mvn` counts its calls."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from aioproducer.testing import maven
from aioproducer.testing.maven import (
    MavenError,
    MavenMissingError,
    MavenTimeoutError,
    fetch_archive,
    fetch_classpath,
    fetch_jar,
)

RESOLVE = """#!/bin/sh
for argument; do
  case "$argument" in
    -Dmdep.outputFile=*) output="${argument#-Dmdep.outputFile=}";;
    */pom.xml) cat "$argument" >> "$0.poms";;
  esac
done
printf '%s:%s' "$0.first.jar" "$0.second.jar" > "$output"
"""

COPY = """#!/bin/sh
for argument; do
  case "$argument" in
    -Dartifact=*) artifact="$argument";;
    -DoutputDirectory=*) target="${argument#-DoutputDirectory=}";;
  esac
done
printf '%s' "$artifact" > "$target/app-1-all.tar.gz"
echo copy >> "$0.calls"
"""


class FakeMaven:
    """An `mvn` that is alone on the PATH, beside the tools it uses itself."""

    def __init__(self, directory: Path) -> None:
        self.executable = directory / "mvn"
        self.jars = [directory / "mvn.first.jar", directory / "mvn.second.jar"]
        for jar in self.jars:
            jar.touch()
        self.does(RESOLVE)

    def does(self, script: str) -> None:
        self.executable.write_text(script)
        self.executable.chmod(0o755)

    @property
    def poms(self) -> list[str]:
        path = self.executable.with_name("mvn.poms")
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fake_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMaven:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return FakeMaven(directory)


def test_a_class_path_is_resolved_once_and_then_remembered(fake_maven: FakeMaven) -> None:
    assert fetch_classpath(["g:a:1"]) == fake_maven.jars
    assert fetch_classpath(["g:a:1"]) == fake_maven.jars
    assert len(fake_maven.poms) == 1


def test_other_coordinates_are_resolved_anew(fake_maven: FakeMaven) -> None:
    fetch_classpath(["g:a:1"])
    fetch_classpath(["g:a:2"])
    fetch_classpath(["g:a:1"], exclude=["g:b"])
    assert len(fake_maven.poms) == 3


def test_a_remembered_class_path_is_not_believed_when_a_jar_is_gone(fake_maven: FakeMaven) -> None:
    fetch_classpath(["g:a:1"])
    fake_maven.jars[1].unlink()
    with pytest.raises(MavenError, match="do not exist"):
        fetch_classpath(["g:a:1"])
    fake_maven.jars[1].touch()
    assert fetch_classpath(["g:a:1"]) == fake_maven.jars


def test_a_broken_cache_entry_is_resolved_anew(fake_maven: FakeMaven) -> None:
    fetch_classpath(["g:a:1"])
    for entry in (maven.cache_dir() / "classpaths").glob("*.json"):
        entry.write_text("{")
    assert fetch_classpath(["g:a:1"]) == fake_maven.jars


def test_one_jar_is_fetched_without_its_dependencies(fake_maven: FakeMaven) -> None:
    assert fetch_jar("g:a:1") == fake_maven.jars[0]
    assert (
        "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        in (fake_maven.poms[0])
    )


def test_concurrent_callers_resolve_once(fake_maven: FakeMaven) -> None:
    fake_maven.does(RESOLVE + "sleep 0.3\n")
    results: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch_classpath(["g:a:1"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [fake_maven.jars] * 4
    assert len(fake_maven.poms) == 1


def test_a_missing_maven_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MavenMissingError, match=r"g:a:1 .*make system-deps"):
        fetch_jar("g:a:1")


def test_a_failure_carries_what_maven_said(fake_maven: FakeMaven) -> None:
    fake_maven.does("#!/bin/sh\necho could not find it\nexit 1\n")
    with pytest.raises(MavenError, match=r"g:a:1 \(exit code 1\):\ncould not find it"):
        fetch_jar("g:a:1")


def test_a_maven_that_hangs_is_ended_with_its_children(fake_maven: FakeMaven) -> None:
    fake_maven.does("#!/bin/sh\nsleep 60 &\nsleep 60\n")
    begin = time.monotonic()
    with pytest.raises(MavenTimeoutError, match="g:a:1"):
        fetch_jar("g:a:1", timeout_s=0.2)
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("coordinate", ["g:a", "g:a:1:2", "g::1", ""])
def test_a_malformed_coordinate_is_refused(coordinate: str) -> None:
    with pytest.raises(ValueError, match="groupId:artifactId:version"):
        fetch_jar(coordinate)


def test_an_archive_is_copied_once(fake_maven: FakeMaven) -> None:
    fake_maven.does(COPY)
    for _ in range(2):
        path = fetch_archive("org.example:app:1", "all", "tar.gz")
        assert path.name == "app-1-all.tar.gz"
        assert path.read_text() == "-Dartifact=org.example:app:1:tar.gz:all"
    assert fake_maven.executable.with_name("mvn.calls").read_text() == "copy\n"
    with pytest.raises(ValueError, match="not of the form"):
        fetch_archive("app:1", "all", "tar.gz")
