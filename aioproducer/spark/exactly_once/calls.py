"""Calls of drivers: a thread for them, and connections that are kept for the next call.

Spark plans and commits the micro-batches of a query in a few Python workers that it reuses, each by
itself: no call may rely on state that another one has left, but its connections help.

Invariants
- A client whose call has failed is closed.
- A forked child starts with none; at exit each is closed.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from aioproducer._util.forks import at_fork
from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.runtime.tasks.coordinator_client import CoordinatorClient
from aioproducer.spark.pool import Kind, Pool

_T = TypeVar("_T")


class Caller:
    """A client for coordinators in a loop thread; both run until `close`."""

    def __init__(self, config: ProducerConfig) -> None:
        async def opened() -> CoordinatorClient:
            return CoordinatorClient(config)

        self._thread = LoopThread("aioproducer driver")
        self._thread.start()
        try:
            self._client: CoordinatorClient = self._thread.call(opened())
        except BaseException:
            self._thread.stop()
            raise

    def call(self, work: Callable[[CoordinatorClient], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine with the client in the thread; return its result."""
        return self._thread.call(work(self._client))

    def close(self) -> None:
        """Close the client and end the thread."""
        with suppress(KafkaError):  # the thread has ended
            self._thread.call(self._client.close())
        self._thread.stop()


class CallerPool(Pool[Caller]):
    """The idle callers of this process."""

    def call(
        self,
        kind: Kind | None,
        config: ProducerConfig,
        work: Callable[[CoordinatorClient], Coroutine[Any, Any, _T]],
    ) -> _T:
        """Run `work` over connections that an earlier call of this kind has left, or new ones."""
        caller = (None if kind is None else self.take(kind)) or Caller(config)
        try:
            result = caller.call(work)
        except BaseException:
            caller.close()
            raise
        if kind is None:
            caller.close()
        else:
            self.put(kind, caller)
        return result


CALLERS: Final = CallerPool()

at_fork(after_in_child=CALLERS.after_fork_in_child)
atexit.register(CALLERS.close)
