"""The stage on which clients and faults meet.

Owns: the cluster of one run, its client processes and their reports, waiting for a client to
arrive at a phase. Not here: which faults there are, the verdict.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.faults.ground import FaultGround
from support.transactions.client import FENCED_EXIT, Phase, TransactionalClient, Work, command
from support.transactions.history import History, State

_ARRIVAL_S = 120.0
_END_S = 60.0
_NUMBERS_PER_CLIENT = 100_000
"""How many numbers each client has to itself."""
_TESTS = Path(__file__).parents[2]


class Stage:
    """One run: the ground, the history, and the meeting point.

    Attributes:
        fault_is_over: The client may stop when it has done its work.
    """

    def __init__(self, ground: FaultGround, work: Work) -> None:
        self.ground = ground
        self.work = work
        self.history = History()
        self.fault_is_over = False
        self.producers = 0
        self.slowest_s = 0.0
        self._phase: Phase | None = None
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()

    # -- a client in this process ------------------------------------------------------------------

    async def run_client(self) -> None:
        """One client, from its first transaction to its last."""
        client = TransactionalClient(
            self.work, self.history.note, self._pause, lambda: not self.fault_is_over
        )
        try:
            await client.run()
        finally:
            self.producers, self.slowest_s = client.producers, client.slowest_s

    @asynccontextmanager
    async def at(self, phase: Phase) -> AsyncIterator[None]:
        """Hold the client before this phase for as long as the block lasts."""
        self._arrived.clear()
        self._released.clear()
        self._phase = phase
        try:
            async with asyncio.timeout(_ARRIVAL_S):
                await self._arrived.wait()
            yield
        finally:
            self._phase = None
            self._released.set()

    async def _pause(self, phase: Phase) -> None:
        if self._phase is phase:
            self._phase = None
            self._arrived.set()
            await self._released.wait()

    # -- clients in separate processes -------------------------------------------------------------

    @asynccontextmanager
    async def client_process(self) -> AsyncIterator[ClientProcess]:
        """A client that is killed at the end of the block, if it has not ended by then."""
        work = replace(self.work, first=self.producers * _NUMBERS_PER_CLIENT, stands_down=True)
        self.producers += 1
        process = await asyncio.create_subprocess_exec(
            *command(work),
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            cwd=_TESTS.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        client = ClientProcess(process, self.history)
        try:
            yield client
        finally:
            await client.kill()

    # -- the cluster -------------------------------------------------------------------------------

    async def coordinator(self) -> int:
        """The broker that coordinates the client's transactions."""
        return await self.ground.coordinator(self.work.transactional_id)

    async def leader(self) -> int:
        """A broker that leads a partition of the topic."""
        return (await self.ground.leaders(self.work.topic))[0]

    async def wait_in_sync(self) -> None:
        """All brokers are back, and all replicas of the topic and of the coordinators' own."""
        await self.ground.wait_ready()
        await self.ground.wait_in_sync(self.work.topic)
        await self.ground.wait_in_sync("__transaction_state")


class ClientProcess:
    """A client that can be killed or frozen; all its reports go to the history."""

    def __init__(self, process: asyncio.subprocess.Process, history: History) -> None:
        self._process = process
        self._history = history
        self._phase: Phase | None = None
        self._changed = asyncio.Condition()
        self.committed = 0
        self._listening = asyncio.create_task(self._listen())

    async def reach(self, phase: Phase, after: int = 0) -> None:
        """Returns when it begins this phase, having committed so many transactions."""
        async with asyncio.timeout(_ARRIVAL_S), self._changed:
            await self._changed.wait_for(
                lambda: self._listening.done() or (self._phase is phase and self.committed >= after)
            )
        self._check_runs()

    async def kill(self) -> None:
        """Send SIGKILL, and read what was reported before it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._listening

    def freeze(self) -> None:
        """SIGSTOP."""
        self._check_runs()
        self._process.send_signal(signal.SIGSTOP)

    async def thaw_and_see_it_fenced(self) -> None:
        """SIGCONT; it has to end, and to have been fenced.

        Raises:
            AssertionError: It ended otherwise.
            TimeoutError: It went on.
        """
        self._process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(_END_S):
            code = await self._process.wait()
        await self._listening
        if code != FENCED_EXIT:
            raise AssertionError(f"the zombie ended with {code} instead of being fenced")

    async def finish(self, timeout_s: float) -> None:
        """Wait until it has done its work."""
        async with asyncio.timeout(timeout_s):
            code = await self._process.wait()
        await self._listening
        if code != 0:
            raise AssertionError(f"the client ended with {code}")

    def _check_runs(self) -> None:
        if self._process.returncode is not None or self._listening.done():
            raise AssertionError(f"the client ended with {self._process.returncode}")

    async def _listen(self) -> None:
        out = self._process.stdout
        try:
            while out is not None and (line := await out.readline()):
                if line.endswith(b"\n"):  # else it was killed in the middle of the word
                    await self._hear(json.loads(line))
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _hear(self, event: dict[str, Any]) -> None:
        self._history.note(event)
        self.committed += event.get("state") == State.COMMITTED
        if "phase" in event:
            async with self._changed:
                self._phase = Phase(event["phase"])
                self._changed.notify_all()
