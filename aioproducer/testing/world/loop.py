"""An event loop on virtual time: no descriptor, no thread, no waiting.

Invariants:
- `time()` does not advance while anything is runnable, unless `longest_turn_s` is set, and then
  jumps to the next timer, exactly; no timer fires early, not even by the nanosecond that asyncio
  allows itself.
- No timer and nothing runnable is a deadlock. A loop that turns for ever without its clock moving,
  or more often than `limit_turns` allows, is busy, and so is a task that reads the clock for ever
  in one turn. All raise out of `run_until_complete`.
- `run_in_executor` calls the function on the loop, some virtual time later: what production code
  does in threads happens at an instant that the seed decides.
"""

from __future__ import annotations

import asyncio
import math
import random
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple, Unpack

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_LONGEST_JOB_S = 0.02
_MOST_TURNS_PER_INSTANT = 20_000
_MOST_READINGS_PER_TURN = 100_000


class StuckError(Exception):
    """The run cannot go on: a deadlock or a busy loop."""


class BusyLoopError(StuckError):
    """The loop turns without end."""


def _nothing(seconds: float) -> None:
    """Do nothing while the loop is idle: the default callback."""


class _NoSelector:
    """A selector for `BaseEventLoop` without events: time passes instead."""

    def __init__(self, advance: Callable[[float | None], None]) -> None:
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[Any]:
        self._advance(timeout)
        return []


_UNSUPPORTED = (
    *("create_connection", "create_server", "connect_accepted_socket", "create_datagram_endpoint"),
    *("create_unix_connection", "create_unix_server", "sendfile", "start_tls"),
    *("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom"),
    *("sock_recvfrom_into", "sock_sendall", "sock_sendto", "sock_sendfile"),
    *("add_reader", "remove_reader", "add_writer", "remove_writer"),
    *("connect_read_pipe", "connect_write_pipe", "subprocess_exec", "subprocess_shell"),
    *("add_signal_handler", "remove_signal_handler"),
)


class VirtualLoop(BaseEventLoop):
    """A loop whose clock jumps.

    Args:
        rng: How long jobs given to an executor take.
    """

    def __init__(self, rng: random.Random) -> None:
        self._now = 0.0
        super().__init__()
        self._rng = rng
        self._turns = 0
        self._turns_left: float = math.inf
        self._readings = 0
        self._most_readings: float = math.inf
        self._most_turns_per_instant = _MOST_TURNS_PER_INSTANT
        self._selector = _NoSelector(self._advance)
        self.failures: list[str] = []
        self.on_idle: Callable[[float], None] = _nothing
        """Called whenever nothing is runnable, with the seconds by which the clock will jump.

        The clock does not jump if the call makes something runnable.
        """
        self.is_bystander: Callable[[object], bool] = lambda callback: False
        """Returns whether a callback changes nothing that `on_idle` checks."""
        self.only_bystanders_ran: bool = False
        """Whether only such callbacks have run since the last call of `on_idle`."""
        self.longest_turn_s: float = 0.0
        """The seconds that a turn with something to run takes at most. As on a real loop, a timer
        can then become due while a task is between two of its steps."""
        self.set_exception_handler(self._note_failure)

    def limit_turns(self, turns: int, per_instant: int = _MOST_TURNS_PER_INSTANT) -> None:
        """Raise `BusyLoopError` after so many turns more: a run that takes more does not end."""
        self._turns_left, self._most_turns_per_instant = turns, per_instant
        self._most_readings = _MOST_READINGS_PER_TURN

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        self._readings += 1
        if self._readings > self._most_readings:
            raise BusyLoopError("a task goes on without end in one turn of the loop")
        return self._now

    def run_in_executor(
        self, executor: object, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Call `func` on this loop after a virtual moment."""
        future: asyncio.Future[_T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._rng.uniform(0, _LONGEST_JOB_S), run)
        return future

    def pending_timers(self) -> list[asyncio.TimerHandle]:
        """Return the timers that are set and not cancelled."""
        return [timer for timer in self._timers if not timer.cancelled()]

    def _advance(self, timeout: float | None) -> None:
        self._turns_left -= 1
        if self._turns_left < 0 or self._readings > self._most_readings:
            self._turns_left = self._most_readings = math.inf
            raise BusyLoopError(f"the loop does too much at {self._now:.3f} s")
        self._readings = 0
        if timeout is None:
            raise StuckError("deadlock: nothing is runnable and no timer is set")
        if timeout == 0:
            self._turns += 1
            if self._turns > self._most_turns_per_instant:
                self._turns = 0
                raise BusyLoopError(f"the loop turns without end at {self._now:.3f} s")
            if self.longest_turn_s:
                self._set_time(self._now + self._rng.uniform(0, self.longest_turn_s))
            self.only_bystanders_ran = self.only_bystanders_ran and self._runs_only_bystanders()
            return
        self.on_idle(timeout)
        if self._ready:  # type: ignore[attr-defined]
            return
        self._turns = 0
        # Not `now + timeout`, whose rounding would depend on how the moment was reached.
        self._set_time(max(self._now, self._timers[0].when()))
        self.only_bystanders_ran = self._runs_only_bystanders()

    def _runs_only_bystanders(self) -> bool:
        """Return whether the turn that begins runs bystanders only."""
        handles: list[Any] = [*self._ready]  # type: ignore[attr-defined]
        timers, places = self._timers, [0]
        while places:  # of a heap: what is due is at its top
            place = places.pop()
            if place < len(timers) and timers[place].when() <= self._now:
                handles.append(timers[place])
                places += (2 * place + 1, 2 * place + 2)
        return all(each.cancelled() or self.is_bystander(each._callback) for each in handles)

    def _set_time(self, now: float) -> None:
        self._now = now
        # asyncio fires timers that are due within this; none may fire before its time here, or it
        # would be set again and again while the clock does not advance.
        self._clock_resolution = math.ulp(now)

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        return self._scheduled  # type: ignore[attr-defined, no-any-return]

    def _note_failure(self, loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}" if error else str(context))

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread calls."""


def _refusing(name: str) -> Callable[..., Any]:
    """Return a method that raises: it does not work on virtual time."""

    def refuse(self: VirtualLoop, *_args: object, **_options: object) -> Any:
        raise NotImplementedError(
            f"loop.{name}() is not supported on virtual time, which has no sockets, processes and "
            "signals; use the cluster that run_virtual() gives to the test, or EmbeddedCluster in "
            "a test on real time"
        )

    refuse.__name__ = name
    return refuse


for _name in _UNSUPPORTED:
    setattr(VirtualLoop, _name, _refusing(_name))
