"""The moments at which a producer is checked: when it may have changed, and before long waits."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from aioproducer.testing.world.pipe import Pipe
from aioproducer.testing.world.server import Session
from aioproducer.testing.world.weather import Direction
from simulation.liveness import LivenessWatch, is_step_of_brokers


class _Recording(LivenessWatch):
    """Notes the checks of all rules in place of making them."""

    def __init__(self) -> None:
        self.only_brokers_ran = False
        super().__init__(lambda: 0.0, Mock(), only_brokers_ran=lambda: self.only_brokers_ran)
        self.add(Mock(was_started=True, engine=SimpleNamespace(failure=None, closing=True)))
        self.checks: list[bool] = []

    def _broken_by(self, producer: Any, now: float, is_long: bool) -> list[str]:
        self.checks.append(is_long)
        return []


@pytest.mark.parametrize(
    ("jump_s", "only_brokers_ran", "found"),
    [
        (0.01, False, [False, False]),
        (0.01, True, [False]),
        (1.0, True, [False, True]),
        (1.0, False, [False, True]),
    ],
)
def test_all_rules_are_checked_after_a_change_and_before_long_jumps(
    jump_s: float, only_brokers_ran: bool, found: list[bool]
) -> None:
    watch = _Recording()
    watch.check(0.01)
    watch.only_brokers_ran = only_brokers_ran
    watch.check(jump_s)
    assert watch.checks == found


def test_a_change_in_extra_turns_is_checked_at_the_next_moment() -> None:
    watch = _Recording()
    watch.check(0.01)
    watch._extra_turns = [Mock(broken=lambda: [])]
    watch.check(0.01)
    watch.only_brokers_ran = True
    watch.check(0.01)
    assert watch.checks == [False, False]


def test_only_steps_of_brokers_leave_producers_unchanged() -> None:
    network: Any = Mock()
    to_broker, to_client = (Pipe(network, 1, each, print) for each in Direction)
    session = Session(Mock(), Mock())
    steps = [session._when_running, to_broker._pump]
    others = [to_client._pump, session.kill, random.random, asyncio.Future.set_result, None]
    assert [is_step_of_brokers(each) for each in (*steps, *others)] == [True, True, *[False] * 5]
