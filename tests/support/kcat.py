"""Reads topics with kcat. It is installed by `make system-deps`; tests skip visibly without it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from dataclasses import dataclass

from support.foreign import ReaderMissingError

DEFAULT_TIMEOUT_S = 60.0
# Lengths first, so that keys and values may hold any byte; a null has the length -1.
_FORMAT = "%p %o %T %K %S\n%k%s"
_SETTINGS = ("-X", "check.crcs=true", "-X", "fetch.wait.max.ms=20")
_OPTIONS = ("-C", "-o", "beginning", "-e", "-q", *_SETTINGS, "-f", _FORMAT)


@dataclass(frozen=True, slots=True)
class KcatRecord:
    """One record as kcat prints it; it has no binary-safe way to print headers."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


async def read_all_kcat(
    bootstrap: str, topic: str, *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> list[KcatRecord]:
    """Read a topic from its beginning to its present end.

    Raises:
        ReaderMissingError: kcat is not installed.
        RuntimeError: kcat failed; the message carries what it printed.
    """
    return await asyncio.to_thread(_read, bootstrap, topic, timeout_s)


def _read(bootstrap: str, topic: str, timeout_s: float) -> list[KcatRecord]:
    executable = shutil.which("kcat")
    if executable is None:
        raise ReaderMissingError("kcat is not installed; `make system-deps` installs it")
    answer = subprocess.run(
        [executable, *_OPTIONS, "-b", bootstrap, "-t", topic],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    if answer.returncode != 0:
        raise RuntimeError(f"kcat failed: {answer.stderr.decode(errors='replace')[-2000:]}")
    return _parse(answer.stdout)


def _parse(output: bytes) -> list[KcatRecord]:
    records = []
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        partition, offset, timestamp, *lengths = map(int, output[position:end].split())
        position = end + 1
        parts: list[bytes | None] = []
        for length in lengths:
            parts.append(None if length < 0 else output[position : position + length])
            position += max(0, length)
        records.append(KcatRecord(partition, offset, timestamp, parts[0], parts[1]))
    return records
