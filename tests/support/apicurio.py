"""A real Apicurio Registry, as a Java process with its data in memory.

Owns: fetching and unpacking it, starting it, its end. Not here: what is asked of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from aioproducer.testing.kafka.java import JavaRange, find_java
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.maven import cache_dir, fetch_archive

VERSION = "3.0.9"
"""The newest release on Maven Central whose classes run on Java 17; later ones need 21."""

_JAVA = JavaRange(17, 24, "17.0.9.2")
_START_S = 180.0
_POLL_S = 0.5


@contextmanager
def apicurio(directory: Path) -> Iterator[str]:
    """The URL of its Confluent-compatible API, while the block lasts.

    Args:
        directory: For its log.
    """
    home = _unpacked()
    (port,) = free_ports(1)
    command = [str(find_java(_JAVA).executable), "-Xmx384m", "-XX:+UseSerialGC"]
    command += ["-XX:TieredStopAtLevel=1", f"-Dquarkus.http.port={port}"]
    command += ["-Dquarkus.http.host=127.0.0.1", "-jar"]
    command += [str(next(home.glob("apicurio-registry-app-*-runner.jar")))]
    log_path = directory / "apicurio.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _wait_until_it_answers(url, process, log_path)
        yield url
    finally:
        process.kill()
        process.wait()


def _unpacked() -> Path:
    archive = fetch_archive(f"io.apicurio:apicurio-registry-app:{VERSION}", "all", "tar.gz")
    home = cache_dir() / f"apicurio-{VERSION}"
    if not home.exists():
        draft = home.with_name(f"{home.name}.{os.getpid()}")
        with tarfile.open(archive) as content:
            content.extractall(draft, filter="data")
        try:
            draft.rename(home)
        except OSError:  # another process was quicker
            shutil.rmtree(draft)
    return home


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/subjects", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(_POLL_S)
    tail = log_path.read_bytes()[-3000:].decode(errors="replace")
    raise RuntimeError(f"Apicurio Registry did not start:\n{tail}")
