"""An open load: requests are sent when they are due, whatever became of those before.

An event loop cannot keep time to better than a millisecond (epoll's timeout is one), and a timer
that is late would hide in the latency of asyncio clients alone. So a metronome writes the moment
at which each request is due into a pipe, and a client's loop is woken as if by the network. A
record is sent where that is read, whether by a call or by a coroutine: a task that is new would
begin a turn of the loop later, and that turn would show in the latency of asyncio clients alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.figures import due_times, latencies

if TYPE_CHECKING:
    from bench.clients import Adapter, Pair

Work = Coroutine[Any, Any, None]

_TICK = struct.Struct("d")
_READ_BYTES = _TICK.size * 4096
_HEAD_START_S = 0.2
_GRACE_S = 20.0
_WAITING_TASKS = 100
_PR_SET_TIMERSLACK = 29
_ROOT = Path(__file__).parents[1]


async def paced(adapter: Adapter, records: Iterator[Pair], rate: float, count: int) -> list[float]:
    """Run `Metronome.pace` with a new metronome."""
    async with Metronome() as metronome:
        return await metronome.pace(adapter, records, rate, count)


class Metronome:
    """A process that writes a tick into a pipe whenever a request is due; an `async with` block."""

    async def __aenter__(self) -> Self:
        self._inward, outward = os.pipe()
        os.set_blocking(self._inward, False)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.pacing", stdin=PIPE, stdout=outward, cwd=_ROOT
        )
        os.close(outward)
        return self

    async def __aexit__(self, *error: object) -> None:
        os.close(self._inward)
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def pace(
        self, adapter: Adapter, records: Iterator[Pair], rate: float, count: int
    ) -> list[float]:
        """Send `count` records at a rate; return the seconds from due to acknowledged of each."""
        load = Load(adapter, records, count)
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if moments := os.read(self._inward, _READ_BYTES):
                load.tick(moments)
            else:  # it has ended
                loop.remove_reader(self._inward)

        try:
            await load.tasks.start(_WAITING_TASKS)
            loop.add_reader(self._inward, heard)
            assert self._process.stdin is not None
            self._process.stdin.write(b"%r %d\n" % (rate, count))
            async with asyncio.timeout(count / rate + _GRACE_S):
                while not load.complete:  # noqa: ASYNC110 - a thread may complete it
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass  # `latencies` says how many are missing
        finally:
            load.tasks.stop()
            loop.remove_reader(self._inward)
        return latencies(load.due, load.done)


class Load:
    """The times at which requests were due and done."""

    def __init__(self, adapter: Adapter, records: Iterator[Pair], count: int) -> None:
        self.due: list[float] = []
        self.done: list[float | None] = [None] * count
        self._adapter = adapter
        self._records = records
        self._acknowledged = 0
        self.tasks = TaskPool()

    @property
    def complete(self) -> bool:
        return self._acknowledged == len(self.done)

    def tick(self, moments: bytes) -> None:
        """Send a record for each tick that was read."""
        for (moment,) in _TICK.iter_unpack(moments):
            index = len(self.due)
            self.due.append(moment)
            waiting = self._adapter.fire(next(self._records), lambda at=index: self._finish(at))
            if waiting is not None:
                self.tasks.run(waiting)

    def _finish(self, index: int) -> None:
        self.done[index] = time.monotonic()
        self._acknowledged += 1


class TaskPool:
    """Idle tasks, in which a coroutine can begin without a turn of the loop."""

    def __init__(self) -> None:
        self._idle: list[_Slot] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def start(self, count: int) -> None:
        """Create so many idle tasks."""
        for _ in range(count):
            self._add_task(None)
        await asyncio.sleep(0)

    def run(self, coroutine: Work) -> None:
        """Run a coroutine in an idle task up to its first wait; call it outside of tasks."""
        if self._idle:
            self._idle.pop().begin(coroutine)
        else:
            self._add_task(coroutine)  # a new one begins with the next turn of the loop

    def stop(self) -> None:
        """End the idle tasks now, and the others after their coroutines."""
        self._is_stopped = True
        for slot in self._idle:
            asyncio.get_running_loop().call_soon(slot.begin, None)

    def _add_task(self, coroutine: Work | None) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, coroutine: Work | None) -> None:
        if coroutine is not None:
            await coroutine
        while not self._is_stopped:
            slot = _Slot()
            self._idle.append(slot)
            if (coroutine := await slot) is not None:
                await coroutine


class _Slot:
    """Awaitable like a future, except that `begin` resumes the task synchronously."""

    def __init__(self) -> None:
        self._asyncio_future_blocking = False  # by this a task recognizes what it may await
        self._loop = asyncio.get_running_loop()
        self._coroutine: Work | None = None
        self._callback: Callable[[_Slot], object] | None = None

    def __await__(self) -> Generator[_Slot, None, Work | None]:
        self._asyncio_future_blocking = True
        yield self
        return self._coroutine

    def begin(self, coroutine: Work | None) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            self._coroutine = coroutine
            self._context.run(callback, self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, callback: Callable[[_Slot], object], *, context: Context) -> None:
        self._callback, self._context = callback, context

    def cancel(self, msg: object = None) -> bool:
        """Resume the task, in which the cancellation is then raised."""
        self._loop.call_soon(self.begin, None)
        return False

    def result(self) -> None:
        """Return None, as a future does whose task is resumed."""


def sleep_exactly() -> None:
    """Set the timer slack of this process to 1 ns.

    By default Linux adds up to 50 us to each sleep, a quarter of the latency of a request.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)


def main() -> None:
    sleep_exactly()
    for request in iter(sys.stdin.readline, ""):
        rate, count = request.split()
        for moment in due_times(time.monotonic() + _HEAD_START_S, float(rate), int(count)):
            time.sleep(max(0.0, moment - time.monotonic()))
            try:
                os.write(sys.stdout.fileno(), _TICK.pack(moment))
            except BrokenPipeError:
                return


if __name__ == "__main__":
    main()
