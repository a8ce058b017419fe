"""Servers in separate processes, as they are run in production.

Owns: starting a command, finding out where it listens, ending it. Not here: what it serves.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

TIMEOUT_S = 60.0


class ServerProcess:
    """A running server and what it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.said = ""
        self.pid = process.pid
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def hears(self, pattern: str) -> str:
        """The first group of a pattern, once it was said."""
        async with asyncio.timeout(TIMEOUT_S):
            while (found := re.search(pattern, self.said)) is None:
                if self._reading.done():
                    raise RuntimeError(f"the server ended: {self.said}")
                await asyncio.sleep(0.02)
        return found[1]

    async def ends(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(TIMEOUT_S):
            await self._reading
            return await self._process.wait()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """However it takes it."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.ends()

    async def _read(self) -> None:
        if self._process.stdout is not None:
            while some := await self._process.stdout.read(4096):
                self.said += some.decode(errors="replace")


@asynccontextmanager
async def server_process(
    module: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[ServerProcess]:
    """Run `python -m module arguments` for the length of a block, in a new process group."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        start_new_session=True,
    )
    server = ServerProcess(process)
    try:
        yield server
    finally:
        await server.stop()
