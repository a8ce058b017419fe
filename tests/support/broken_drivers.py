"""Drivers of the Spark sink that leave out a step of the two-phase commit, for tests to find."""

from __future__ import annotations

from collections.abc import Iterable

from aioproducer.spark.exactly_once.attempts import Plan, TaskResult
from aioproducer.spark.exactly_once.two_phase import CommitReport, TwoPhaseCommit


class WithoutFencing(TwoPhaseCommit):
    """Decides under whatever identity is the last one."""

    async def commit(self, epoch: int, results: Iterable[TaskResult | None]) -> CommitReport:
        driver = await self._ledger.take_over()
        known = [each for each in results if each is not None]
        renamed = [
            TaskResult(driver, each.epoch, each.owner, each.part, each.skipped) for each in known
        ]
        return await super().commit(epoch, renamed)


class WithoutMemory(TwoPhaseCommit):
    """Does not skip what is decided."""

    async def plan(self) -> Plan:
        plan = await super().plan()
        return Plan(plan.prefix, plan.driver)
