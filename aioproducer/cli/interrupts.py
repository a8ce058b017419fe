"""Ctrl-C, once and twice.

    running --1st--> stopping (delivers what was accepted) --2nd--> aborting --3rd--> gone

Invariants
- The first signal ends the reading, not the delivering; before there is anything to deliver it
  aborts.
- The second cancels the command's task; the third ends the process without any clean-up.
- A SIGHUP that the parent has ignored, as `nohup` does, stays ignored.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from aioproducer.cli.console import say
from aioproducer.cli.exit_codes import ExitCode

_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
if hasattr(signal, "SIGHUP"):  # not on Windows
    _CODES[signal.SIGHUP] = ExitCode.TERMINAL_CLOSED
if sys.platform == "win32":  # where only Ctrl-Break asks another process to end
    _CODES[signal.SIGBREAK] = ExitCode.TERMINATED


class Interrupts:
    """The signals of one command's run."""

    def __init__(self) -> None:
        self.code: ExitCode | None = None
        self._signals = 0
        self._stop: Callable[[], None] | None = None
        self._stopping = "finishing what was accepted; Ctrl-C again to abort"
        self._task: asyncio.Task[int] | None = None

    def on_stop(self, stop: Callable[[], None], *, message: str | None = None) -> None:
        """Set the function that the first signal calls instead of aborting."""
        self._stop = stop
        if message is not None:
            self._stopping = message

    @contextmanager
    def caught(self, task: asyncio.Task[int]) -> Iterator[None]:
        """Catch the signals while the task runs."""
        loop = asyncio.get_running_loop()
        self._task = task
        numbers = [
            number
            for number, code in _CODES.items()
            if code != ExitCode.TERMINAL_CLOSED or signal.getsignal(number) != signal.SIG_IGN
        ]
        with ExitStack() as handlers:
            for number in numbers:
                handlers.callback(self._handled(loop, number))
            yield

    def _handled(
        self, loop: asyncio.AbstractEventLoop, number: signal.Signals
    ) -> Callable[[], object]:
        """Handle a signal in the loop; return the function that ends that."""
        on_signal = partial(self._on_signal, number)
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # on Windows
            before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_signal))
            return partial(signal.signal, number, before)
        return partial(loop.remove_signal_handler, number)

    def _on_signal(self, number: signal.Signals) -> None:
        self._signals += 1
        self.code = self.code or _CODES[number]
        if self._signals > 2:
            os._exit(self.code)
        if self._signals == 1 and self._stop is not None:
            say(f"stopping: {self._stopping}", style="yellow")
            self._stop()
        elif self._task is not None:
            say("aborting", style="yellow")
            self._task.cancel()


def run_command(command: Callable[[Interrupts], Coroutine[Any, Any, int]]) -> int:
    """Run a command's coroutine; return its exit code, or the signal's when it was aborted."""
    interrupts = Interrupts()

    async def supervised() -> int:
        task = asyncio.ensure_future(command(interrupts))
        with interrupts.caught(task):
            try:
                return await task
            except asyncio.CancelledError:
                return interrupts.code or ExitCode.INTERRUPTED

    return asyncio.run(supervised())
