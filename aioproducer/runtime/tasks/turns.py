"""The tasks of a producer: `TurnTask`, from its start to the cause of its end.

`WakeupTimer` ends the sleep between two turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from math import inf

from aioproducer._util import log
from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import start_later
from aioproducer.errors import KafkaError, ProducerFailedError
from aioproducer.errors.advice import ADVICE


def cause_of_end(task: asyncio.Task[None], what: str) -> KafkaError | None:
    """Return the error with which a task of the producer has ended, None without one."""
    if task.cancelled():
        return ProducerFailedError(
            f"the producer's {what} was cancelled from outside", advice=ADVICE["task-cancelled"]
        )
    error = task.exception()
    return error if error is None or isinstance(error, KafkaError) else _failure(error, what)


def _failure(error: BaseException, what: str) -> ProducerFailedError:
    failure = ProducerFailedError(f"the producer's {what} failed with {repr_of(error)}")
    failure.__cause__ = error
    return failure


class WakeupTimer:
    """Wake one task at a time it chooses, or when `wake` is called: a future with a timer.

    Any number of `wake()` calls before the next turn cause one turn, and none is lost. A timer is
    not moved to a later time. If it fires too early, it is set again without waking the task.

    `until` is -inf while the task is awake.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.until: float = -inf
        self.is_asleep: bool = False
        self._loop = loop
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_timer = self._timer_calls()
        self._timer_at = inf
        self._woken = False

    def wake(self) -> None:
        """Wake the task."""
        self._woken, self.is_asleep = True, False
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def begin_turn(self) -> None:
        """Begin a turn: `wake()` from now on causes another turn."""
        self._woken = False
        self.until = -inf

    async def sleep(self, until: float) -> None:
        """Return at this loop time, or when `wake` has been called since the turn began."""
        if self._woken:
            return
        self._future = self._loop.create_future()
        self.is_asleep = True
        self._wake_at(until)
        try:
            await self._future
        finally:
            self._future, self.is_asleep = None, False

    def turn_at(self, at: float, now: float) -> None:
        """Have the next turn at this loop time, unless an earlier one is due."""
        if at <= now:
            self.wake()
        elif at < self.until:
            self._wake_at(at)

    def close(self) -> None:
        """Cancel the timer; the task sleeps no more."""
        self.until = -inf
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._on_timer.close()
            self._timer, self._timer_at = None, inf

    def _wake_at(self, until: float) -> None:
        self.until = until
        if until < self._timer_at:
            self._cancel_timer()
            self._on_timer = self._timer_calls()
            next(self._on_timer)
            self._timer = self._loop.call_at(until, next, self._on_timer, None)
            self._timer_at = until

    def _timer_calls(self) -> Generator[None, None, None]:
        """Return a generator that the timer resumes: so no statement is outside of the `try`."""
        try:
            yield
            self._timer, self._timer_at = None, inf
            if self._future is None:
                return  # during a turn: `sleep` sets the timer afterwards
            if self._loop.time() >= self.until:
                self.wake()
            else:
                self._wake_at(self.until)
        except GeneratorExit:
            return  # the timer was cancelled
        except BaseException:
            self._timer, self._timer_at = None, inf
            self.wake()  # a signal handler's exception: one turn too many is harmless
            raise


class TurnTask:
    """A task that takes turns, and sleeps between them; `name` is its subject.

    `on_end` is called once when the task ends, with the cause, or None if it was stopped.
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
        self.interrupt = _failure(error, f"{self._name} task")
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
        if task.cancelled() and self._stopping:
            return None
        return cause_of_end(task, f"{self._name} task")
