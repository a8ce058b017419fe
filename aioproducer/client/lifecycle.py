"""The lifecycle of a producer: from `start()` to `close()`, and which calls are allowed when.

States:

    new --start()--> running --close()--> closed
     \\-- start() raises --> closed
"""

from __future__ import annotations

import asyncio
import warnings
import weakref
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex, TypeVar

from aioproducer._checks.event_loop import running_loop
from aioproducer._util import log
from aioproducer._util.arguments import timeout_of
from aioproducer._util.forks import at_fork
from aioproducer.config import ProducerConfig
from aioproducer.errors import ForkedError, IllegalStateError, ProducerClosedError, WrongLoopError
from aioproducer.runtime.native import missing_core, warn_once
from aioproducer.runtime.tasks.closing import silence

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.observability.registry import MetricsRegistry

_log = log.get("producer")

_ProducerT = TypeVar("_ProducerT", bound="ProducerLifecycle")
_live: weakref.WeakValueDictionary[int, ProducerLifecycle] = weakref.WeakValueDictionary()
"""Started producers by their identity: subclasses may be equal to others, or have no hash."""


class State(Enum):
    """The states of a producer."""

    NEW = "not started"
    STARTING = "starting"
    RUNNING = "running"
    CLOSED = "closed"
    FORKED = "forked"


class ProducerLifecycle:
    """The part of `Producer` that begins and ends it."""

    _owner_warns = False
    """Whether an object around this one warns if it is left unclosed; see `warned_of_by_owner`."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._state = State.NEW
        self._engine: ProducerEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_metrics: MetricsRegistry | None = None

    @property
    def config(self) -> ProducerConfig:
        """The options in force."""
        return self._config

    @property
    def client_id(self) -> str:
        """The name in the brokers' logs and quotas, and in exported metrics."""
        return self._config.client_id

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The producer's loop; None before `start()`."""
        return self._loop

    async def start(self, *, init_transactions: bool = True, wait: bool = True) -> None:
        """Connect to the cluster; return when a broker has answered.

        With `wait=False` it returns at once and the producer connects in the background, however
        long that takes. Until then `send()` accepts records within `buffer_memory`, which are
        delivered in order, and `health()` is not ready and says why. What waiting does not change
        (wrong credentials, another service than Kafka, TLS that is refused) is logged once, and
        sends fail with it until it is corrected.

        Otherwise it waits at most `max_block_ms` (or `bootstrap_resolve_timeout_ms`, if that is
        longer), and as long again for the transaction coordinator if there is a `transactional_id`.
        With `max_block_ms=0`, which makes `send` never wait, this and all other calls that ask the
        cluster wait at most `request_timeout_ms`. When it raises, everything is cleaned up.

        Args:
            init_transactions: False leaves `init_transactions()` to the caller.
            wait: whether to wait for the cluster. A transactional producer that does not is
                initialized in the background as well; `begin_transaction()` waits for that.

        Raises:
            BootstrapError: no bootstrap server answered in time, or none of their names can be
                resolved (KIP-909); the text says why, for each.
            IllegalStateError: the producer was started before.
            UnsupportedCodecError: the compression's library cannot be imported.
        """
        if self._state is not State.NEW:
            raise IllegalStateError(
                f"a producer starts once; this one is {self._state.value}",
                advice="create a new Producer",
            )
        warn_once(_log, missing_core())
        self._loop = running_loop()
        self._engine = self._new_engine(self._loop)
        self._state = State.STARTING
        _live[id(self)] = self
        try:
            if wait:
                await self._engine.start(init_transactions=init_transactions)
            else:
                self._engine.start_in_background(init_transactions=init_transactions)
        except BaseException:
            self._state = State.CLOSED
            _live.pop(id(self), None)
            raise
        if self._state is State.STARTING:
            self._state = State.RUNNING
            self._opened(self._engine)
        if not self._config.effective_idempotence:
            _log.info(
                "started without idempotence: a retried batch may be written twice (client id %s)",
                self._config.client_id,
            )

    async def close(self, timeout: float | None = None) -> None:
        """Deliver what was accepted, then release everything; safe to call again.

        An open transaction is aborted, unless it is prepared; a commit under way is waited for, at
        most `max_block_ms`. Where the producer's event loop is closed already, nothing can be
        delivered any more: the sockets are closed, and what is given up is logged.

        Args:
            timeout: seconds to wait for deliveries; what is left then fails with
                `ProducerClosedError`. None or infinity waits as long as the records' own
                `delivery_timeout_ms` allows; 0 does not wait. Of several calls the shortest timeout
                counts.

        Raises:
            ValueError: the timeout is negative or NaN; nothing has changed then.
            IllegalStateError: called in a callback outside of a task, or in another loop.
        """
        timeout = timeout_of(timeout)
        if self._state is State.FORKED:
            return
        engine = self._engine
        loop_is_closed = engine is not None and engine.loop.is_closed()
        if engine is not None and not loop_is_closed:
            self._check_loop()
            check_in_task("close")
        self._state = State.CLOSED
        _live.pop(id(self), None)
        if engine is not None and loop_is_closed:
            engine.drop()
        elif engine is not None:
            await engine.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_state", None) is State.RUNNING:
            if self._engine is not None:
                self._engine.close_soon()
            if not self._owner_warns:
                self._warn_of_being_unclosed()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Refuse copies and pickles of a producer that was started; the end of one closes both."""
        if self._state is not State.NEW:
            raise TypeError(
                "a Producer that was started has connections and cannot be copied or pickled; "
                "pass its config on and create one in each process"
            )
        return super().__reduce_ex__(protocol)

    def __repr__(self) -> str:
        if not hasattr(self, "_state"):
            return "<Producer, not complete>"  # in frames of its constructor
        return f"<Producer {self._config.client_id} {self._state.value}>"

    # -- for the classes above ---------------------------------------------------------------------

    @property
    def _state_name(self) -> str:
        """The state for people: one that runs may not have reached the cluster yet."""
        engine = self._engine
        if self._state is State.RUNNING and engine is not None and engine.is_connecting:
            return "connecting"
        return self._state.value

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        raise NotImplementedError

    def _opened(self, engine: ProducerEngine) -> None:
        """Note that the producer runs now."""

    def _warn_of_being_unclosed(self) -> None:
        warnings.warn(
            f"unclosed {self!r}: call close() or use `async with`; "
            "it delivers what it has accepted and is closed now",
            ResourceWarning,
            source=self,
            stacklevel=3,
        )

    def _forked(self) -> None:
        """Give up everything in a forked child: it is the parent's."""
        self._state = State.FORKED

    def _block_deadline(self, engine: ProducerEngine) -> float:
        return engine.loop.time() + self._config.call_timeout_ms / 1000

    def _usable(self) -> ProducerEngine:
        if self._state is not State.RUNNING or self._engine is None:
            self._refuse()
        if asyncio._get_running_loop() is not self._loop:
            self._check_loop()
        engine = self._engine
        if engine.failure is not None or engine.closing:
            engine.check_usable()
        return engine

    def _refuse(self) -> NoReturn:
        match self._state:
            case State.NEW | State.STARTING:
                raise IllegalStateError(
                    f"the producer is {self._state.value}",
                    advice="await producer.start() first, or use `async with`",
                )
            case State.FORKED:
                raise ForkedError(
                    "this producer was started before fork(); its connections are the parent's",
                    advice="create a producer in each process after the fork",
                )
            case _:
                raise ProducerClosedError

    def _check_loop(self) -> None:
        if asyncio._get_running_loop() is not self._loop:
            raise WrongLoopError(
                "the producer was started in another event loop than the one running here, if any",
                advice="use one producer per loop, from coroutines and callbacks of that loop",
            )


def warned_of_by_owner(producer: _ProducerT) -> _ProducerT:
    """Return a producer that does not warn if it is left unclosed: the object around it does.

    In a reference cycle the collector may end the inner object first.
    """
    producer._owner_warns = True
    return producer


def check_in_task(what: str) -> None:
    """Raise in a callback that drives a coroutine by hand, which would wait for ever."""
    if asyncio.current_task() is None:
        raise IllegalStateError(
            f"{what}() can only be awaited in a task, not in a callback (KIP-1118)",
            advice=f"start a task there: asyncio.create_task(producer.{what}())",
        )


_tasks_at_fork: list[asyncio.Task[Any]] = []
"""Tasks of all producers while the process forks; in the child, CPython 3.14 lists none of them."""


def _before_fork() -> None:
    for producer in list(_live.values()):
        if producer._engine is not None:
            _tasks_at_fork.extend(producer._engine.tasks())


def _after_fork_in_child() -> None:
    """Let no call of a child write to the sockets that it shares with its parent."""
    silence(_tasks_at_fork)
    _tasks_at_fork.clear()
    for producer in list(_live.values()):
        producer._forked()
    _live.clear()


at_fork(
    before=_before_fork, after_in_parent=_tasks_at_fork.clear, after_in_child=_after_fork_in_child
)
