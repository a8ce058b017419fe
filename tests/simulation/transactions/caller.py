"""Calls of a user: repeated after a timeout, sometimes cut short, given up after a while.

Owns: the repetition of calls that may be repeated, the check of their bounds. Not here: which
call it is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
)
from aioproducer.testing.world.trace import Trace
from aioproducer.types import Persistence
from simulation.ledger import Ledger
from simulation.scenario import CHAOS_S

_TIMEOUT_S = 0.1
"""What may come on top of a promised bound."""


class GaveUpError(KafkaError):
    """The user waits no longer for a call's outcome."""


class Caller:
    """One user's way to make calls.

    Args:
        name: The user's.
        max_block: Seconds a call may take.
        rng: Draws when to give up.
        ledger: Where calls that took too long are noted.
        trace: Where timeouts are logged.
    """

    def __init__(
        self, name: str, max_block: float, rng: random.Random, ledger: Ledger, trace: Trace
    ) -> None:
        self._name = name
        self._max_block = max_block
        self._rng = rng
        self._ledger = ledger
        self._trace = trace
        self._loop = asyncio.get_running_loop()

    async def call(self, what: str, method: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Makes a call until it has an outcome, or the user gives up.

        Raises:
            GaveUpError: it had none several times.
            KafkaError: what the call raises.
        """
        tries, is_repeated = 0, False
        while True:
            try:
                if self._rng.random() < 0.1 and self._loop.time() < CHAOS_S:
                    if await self.cut_short(method()):
                        return
                    is_repeated = True
                    continue
                await self.bounded(what, method(), self._max_block)
            except IllegalStateError as error:
                if is_repeated and not isinstance(error, ProducerClosedError):
                    self._ledger.false_reports.append(f"{self._name}: {what} is repeated: {error}")
                raise
            except KafkaTimeoutError:
                tries, is_repeated = tries + 1, True
                self._trace(f"{self._name}: {what} has no outcome yet")
                if self._loop.time() > CHAOS_S or (tries > 1 and self._rng.random() < 0.3):
                    raise GaveUpError(f"{what} takes too long") from None
            else:
                return

    async def check_repeated(
        self, what: str, method: Callable[[], Awaitable[None]], error: KafkaError
    ) -> None:
        """Notes it if a call, made again at the end of its producer, has another outcome."""
        again: KafkaError | None = None
        try:
            await method()
        except KafkaError as repeated:
            again = repeated
        if again is None or (type(again), again.persistence) != (type(error), error.persistence):
            text = f"{self._name}: {what} ended with {error!r}, and now with {again!r}"
            self._ledger.false_reports.append(text)

    async def cut_short(self, call: Coroutine[Any, Any, None]) -> bool:
        """Makes a call and cancels it; returns whether it had come to its end."""
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait([task], timeout=self._rng.choice((0.0, 0.001, 0.03, 0.3)))
        finally:
            task.cancel()
            await asyncio.wait([task])
        if task.cancelled():
            return False
        task.result()
        return True

    async def bounded(self, what: str, work: Awaitable[None], seconds: float | None = None) -> None:
        """Awaits what has to end within `seconds`, by default what a call may take."""
        limit = self._max_block if seconds is None else seconds
        began = self._loop.time()
        try:
            await work
        except KafkaTimeoutError as error:
            if error.persistence is Persistence.NOT_PERSISTED:
                self._ledger.false_reports.append(f"{self._name}: {what} goes on, and yet {error}")
            raise
        finally:
            self._check(what, began, limit)

    def check(self, what: str, began: float, calls: int) -> None:
        """Notes it if something took longer than so many calls may."""
        self._check(what, began, calls * self._max_block)

    def _check(self, what: str, began: float, seconds: float) -> None:
        now = self._loop.time()
        self._ledger.calls.append((f"{self._name}: {what}", began, now))
        took = now - began
        if took > seconds + _TIMEOUT_S:
            self._ledger.late_ends.append(f"{self._name}: {what} took {took:.3f} s")
