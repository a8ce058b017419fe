"""Instructions per record: a figure without noise, for machines that are busy.

Method: `bench.instructions_load` sends to the sink under valgrind's callgrind, which counts only
between two marks after the warm-up. Linger is long, so that full batches and the last flush are
sent; but for `single`, where each record is sent when the one before is acknowledged. Hashes are
not random: two runs of the same code differ by about a percent. Instructions are no time: a cache
miss costs as much here as an addition, and a byte of a large buffer that is zeroed or copied may
cost as much as either: `each` has 2% more when its batches find no buffer to use again. Only the
client is counted, in user space, the event loop included.

The figures of each interpreter (`bench.interpreters`) are printed beside its own in
bench/instructions.json. `record` as an argument of `python -m bench.instructions` replaces them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bench.cells import CLIENTS, Cell
from bench.clients import Job
from bench.compare import unavailable, versions
from bench.interpreters import InterpreterError, interpreters
from bench.servers import Server, sink

RECORDED = Path(__file__).with_name("instructions.json")
MODES = ("each", "dropped", "many", "arrow", "single")
_RECORDS, _SINGLE_RECORDS = 20_000, 2_000
_LINGER_MS = 1_000
_VALUE_BYTES, _PARTITIONS = 100, 6
_LIMIT_S = 100.0
_COMPILER_LIMIT_S = 30.0
_AT_ONCE = 2
_MARKS = Path(__file__).with_name("callgrind_marks.c")
_COLLECTED = re.compile(r"Collected : (\d+)")


class CallgrindError(Exception):
    """The instructions could not be counted."""


async def measure(directory: Path, python: str = sys.executable) -> dict[str, float]:
    """Return the instructions per record of each mode; raise `CallgrindError` without valgrind."""
    library = await asyncio.to_thread(_compile_marks, directory)
    turns = asyncio.Semaphore(_AT_ONCE)
    modes = [mode for mode in MODES if unavailable(Cell("aioproducer", mode)) is None]

    async def one(mode: str) -> float:
        async with turns:
            return await _count(server, mode, library, directory / mode, python)

    async with sink() as server:
        counts = await asyncio.gather(*map(one, modes))
    return dict(zip(modes, counts, strict=True))


def _compile_marks(directory: Path) -> Path:
    library, compiler = directory / "marks.so", shutil.which("cc")
    if compiler is None or shutil.which("valgrind") is None:
        raise CallgrindError("it takes a C compiler and valgrind (`make system-deps`)")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, _MARKS]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_COMPILER_LIMIT_S, check=False
    )
    if done.returncode:
        raise CallgrindError(f"valgrind's headers are not usable:\n{done.stderr[-500:]}")
    return library


async def _count(server: Server, mode: str, library: Path, out: Path, python: str) -> float:
    """Return the instructions per record of one run, after a check that its records arrived."""
    client, is_single = CLIENTS["aioproducer"], mode == "single"
    records = _SINGLE_RECORDS if is_single else _RECORDS
    async with server.topics(1, _PARTITIONS) as topics:
        job = Job(
            bootstrap=server.bootstrap,
            topics=topics,
            size=_VALUE_BYTES,
            codec="none",
            keyed=False,
            tuning="common",
            linger_ms=0 if is_single else _LINGER_MS,
        )
        given = {"module": client.module, "loop": client.loop, "core": client.core}
        given |= {"mode": mode, "records": records, "job": asdict(job), "library": str(library)}
        reported = await _run_callgrind(python, out, json.dumps(given))
        arrived = await server.arrived(topics)
    match = _COLLECTED.search(reported)
    if match is None or arrived < records:
        raise CallgrindError(f"{arrived:,} records arrived, not {records:,}:\n{reported[-500:]}")
    return int(match[1]) / records


async def _run_callgrind(python: str, out: Path, given: str) -> str:
    """Return the last lines of valgrind's output."""
    process = await asyncio.create_subprocess_exec(
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--callgrind-out-file={out}",
        python,
        "-m",
        "bench.instructions_load",
        given,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_LIMIT_S):
            _, reported = await process.communicate()
    except TimeoutError:
        raise CallgrindError(f"not done within {_LIMIT_S:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise CallgrindError(f"the client failed under valgrind:\n{reported.decode()[-2000:]}")
    return reported.decode(errors="replace")


def table(found: Mapping[str, dict[str, float]], before: Mapping[str, dict[str, float]]) -> str:
    """By version of Python: now, and the change since it was recorded; more is worse."""
    lines = [
        "instructions per record (100 B, no compression, sink), and the change since recorded:",
        "  " + " " * 8 + "".join(f"{'CPython ' + python:>20}" for python in found),
    ]
    for mode in MODES:
        line = f"  {mode:8}"
        for python, now in found.items():
            count, then = now.get(mode), before.get(python, {}).get(mode)
            line += f"{count:12,.0f}" if count else f"{'-':>12}"
            line += f"{count / then - 1:+8.1%}" if count and then else " " * 8
        lines.append(line.rstrip())
    return "\n".join(lines)


def recorded(path: Path = RECORDED) -> dict[str, dict[str, float]]:
    """The figures in the repository, by version of Python, such as `3.13`."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {python: entry["instructions"] for python, entry in kept.items()}


def record(found: Mapping[str, dict[str, float]], path: Path = RECORDED) -> None:
    """Replace the figures of these versions of Python."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for python, counts in found.items():
        rounded = {mode: round(count, 1) for mode, count in counts.items()}
        kept[python] = {"versions": versions() | {"CPython": python}, "instructions": rounded}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(*words: str) -> None:
    found = {}
    try:
        for version, python in interpreters().items():
            with tempfile.TemporaryDirectory(prefix="aioproducer-callgrind-") as directory:
                found[version] = asyncio.run(measure(Path(directory), python))
    except (CallgrindError, InterpreterError) as error:
        print(f"no instructions counted: {error}")
        return
    print(table(found, recorded()))
    if "record" in words:
        record(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
