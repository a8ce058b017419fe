"""The clock of waits in threads, which tests cannot stop."""

from __future__ import annotations

import asyncio
import time
from math import inf

import pytest

from aioproducer._util.clock import Deadline, use_system_clock


@pytest.fixture
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock as freezegun does."""
    monkeypatch.setattr(time, "monotonic", lambda: 1_577_836_800.0)


@pytest.mark.usefixtures("_stopped_clock")
def test_a_deadline_comes_while_a_test_stops_the_clock() -> None:
    deadline = Deadline(1e-9)
    while deadline.left():
        pass
    assert deadline.is_over


def test_a_deadline_of_none_never_comes() -> None:
    deadline = Deadline(None)
    assert (deadline.left(), deadline.within(1.0), deadline.is_over) == (None, 1.0, False)


def test_within_a_deadline_a_wait_is_as_short_as_both_limits() -> None:
    assert Deadline(inf).within(1.0) == 1.0
    assert Deadline(0.0).within(1.0) == 0.0


@pytest.mark.usefixtures("_stopped_clock")
def test_timers_of_a_loop_with_the_system_clock_fire_while_a_test_stops_the_clock() -> None:
    loop = asyncio.new_event_loop()
    use_system_clock(loop)
    try:
        loop.run_until_complete(asyncio.sleep(0.001))
    finally:
        loop.close()


class _OwnClock(asyncio.SelectorEventLoop):
    def time(self) -> float:
        return 7.0


def test_a_loop_with_another_clock_keeps_it() -> None:
    loop = _OwnClock()
    use_system_clock(loop)
    try:
        assert loop.time() == 7.0
    finally:
        loop.close()
