"""Programs beside the benchmark, each in a separate process, that report in lines of JSON.

Owns: starting and ending such a process, its reports, what the kernel says about its memory. Not
here: what the programs do.

Invariants: a worker ends with its `async with` block; when one dies, the wait for its report
raises. A worker ends by itself when its standard input does.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_PAGE = os.sysconf("SC_PAGE_SIZE")
_END_TIMEOUT_S = 10.0
_LINE_LIMIT = 1 << 24

Report = dict[str, Any]


class WorkerError(Exception):
    """A worker ended, or said nothing, where it should have reported."""


class Worker:
    """A running program.

    Attributes:
        on_report: Called with every report that comes.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self.on_report: Callable[[Report], None] = lambda report: None
        self._process = process
        self._reports: dict[str, Report] = {}
        self._changed = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    def say(self, kind: str, **fields: object) -> None:
        """Send a command to the worker."""
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(_line(kind, fields))

    async def report(self, kind: str, timeout_s: float) -> Report:
        """Return the last report of this kind, after a wait for the first; or `WorkerError`."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(
                    lambda: kind in self._reports or self._listening.done()
                )
        except TimeoutError:
            raise WorkerError(f"{self.name}: no {kind!r} within {timeout_s:g} s") from None
        if kind not in self._reports:
            raise WorkerError(f"{self.name} ended without {kind!r}")
        return self._reports[kind]

    def check(self) -> None:
        """Raise `WorkerError` if the process has ended."""
        if self._process.returncode is not None:
            raise WorkerError(f"{self.name} ended with exit code {self._process.returncode}")

    def rss(self) -> int:
        """Bytes of memory the process occupies now."""
        return rss_of(self.pid)

    def peak_rss(self) -> int:
        """The most bytes it ever occupied, between samples too."""
        return peak_rss_of(self.pid)

    def freeze(self) -> None:
        """Send SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """End the process; kill it if it does not end in time."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.returncode is None:
            self.thaw()
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        out = self._process.stdout
        try:
            while out is not None and (line := await out.readline()):
                report: Report = json.loads(line)
                self.on_report(report)
                async with self._changed:
                    self._reports[report["kind"]] = report
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def worker(
    name: str, module: str, python: str = sys.executable, /, **arguments: object
) -> AsyncIterator[Worker]:
    """Run a module with these arguments for as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        module,
        json.dumps(arguments),
        cwd=_ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
    )
    started = Worker(name, process)
    try:
        yield started
    finally:
        await started.end()


def rss_of(pid: int | str = "self") -> int:
    """Bytes of memory a process occupies now."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def peak_rss_of(pid: int | str = "self") -> int:
    """The most bytes a process ever occupied."""
    return _status(pid, "VmHWM")


def _status(pid: int | str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(f"the kernel has no {field} of process {pid}")


# -- the worker's side -------------------------------------------------------------------------


def arguments() -> Mapping[str, Any]:
    """Return the arguments that `worker` was given."""
    found: Mapping[str, Any] = json.loads(sys.argv[1])
    return found


def tell(kind: str, **fields: object) -> None:
    """Send a report to the process that started this one."""
    sys.stdout.buffer.write(_line(kind, fields))
    sys.stdout.buffer.flush()


def new_runner(loop: str = "fastest") -> asyncio.Runner:
    """A runner with `asyncio`'s loop, `uvloop`'s, or the latter where it is installed."""
    if loop == "asyncio" or (loop == "fastest" and importlib.util.find_spec("uvloop") is None):
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop)


async def orders() -> asyncio.StreamReader:
    """Standard input, for `next_order`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def next_order(reader: asyncio.StreamReader) -> Report | None:
    """Return the next report; None at the end of the output."""
    line = await reader.readline()
    return json.loads(line) if line else None


def _line(kind: str, fields: Mapping[str, object]) -> bytes:
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"
