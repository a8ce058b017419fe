"""The tasks of a producer: `TurnTask`, from its start to the cause of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer._util import log
from aioproducer._util.tasks import start_later
from aioproducer.errors import KafkaError, ProducerFailedError
from aioproducer.errors.advice import ADVICE
from aioproducer.runtime.tasks.wakeup import WakeupTimer


class TurnTask:
    """A task that takes turns, and sleeps between them.

    Args:
        name: the subject of the task, for its name and for errors.
        on_end: called once when the task ends, with the cause, or None if it was stopped.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[KafkaError | None], None],
    ) -> None:
        self._name = name
        self._loop = loop
        self._on_end = on_end
        self._wakeup = WakeupTimer(loop)
        self._stopping = False
        self.interrupt: ProducerFailedError | None = None
        """The error with which the task ends, after an exception outside of its turns."""
        self._task: asyncio.Task[None] | None = None
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(log.get("runtime"))

    def start(self) -> None:
        """Start the task."""
        self._task = start_later(self._loop, self._run(), name=f"aioproducer-{self._name}")
        # No `finally` in the task: cancelled before its first step it would not run.
        self._task.add_done_callback(self._on_task_done)

    def wake(self) -> None:
        """Wake the task."""
        self._wakeup.wake()

    def turn_at(self, at: float, now: float) -> None:
        """Have the next turn at this loop time, unless an earlier one is due."""
        self._wakeup.turn_at(at, now)

    def end_by(self, error: BaseException) -> None:
        """End the task after an exception outside of its turns."""
        self.interrupt = self._died_of(error)
        self._wakeup.wake()

    @property
    def sleeping_until(self) -> float:
        """Loop time of the next turn, unless the task is woken before; -inf during one."""
        return self._wakeup.until

    async def _run(self) -> None:
        while not self._stopping:
            await self._turn()

    async def _turn(self) -> None:
        raise NotImplementedError

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        try:
            self._wakeup.close()
        finally:
            self._on_end(self._cause_of_end(task))

    def _cause_of_end(self, task: asyncio.Task[None]) -> KafkaError | None:
        if self.interrupt is not None:
            return self.interrupt
        if task.cancelled():
            if self._stopping:
                return None
            return ProducerFailedError(
                f"the producer's {self._name} task was cancelled from outside",
                advice=ADVICE["task-cancelled"],
            )
        error = task.exception()
        return error if error is None or isinstance(error, KafkaError) else self._died_of(error)

    def _died_of(self, error: BaseException) -> ProducerFailedError:
        cause = ProducerFailedError(f"the producer's {self._name} task failed with {error!r}")
        cause.__cause__ = error
        return cause
