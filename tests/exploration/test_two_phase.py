"""Every order of the requests of drivers and tasks: no row is lost or there twice."""

from __future__ import annotations

import pytest
from support.broken_drivers import WithoutFencing, WithoutMemory

from aioproducer.spark.exactly_once.decision import Decision
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.types import PreparedTransaction
from exploration.two_phase import (
    LARGE_TWO_PHASE,
    SMALL_STATES,
    SMALL_TWO_PHASE,
    Protocol,
    TwoPhaseConfig,
    explore_two_phase,
)

CRASH = TwoPhaseConfig("crash", crashes=1)
RIVAL = TwoPhaseConfig("rival", rivals=1)


@pytest.mark.parametrize("config", SMALL_TWO_PHASE, ids=lambda config: config.name)
def test_every_row_is_there_once_in_every_order(config: TwoPhaseConfig) -> None:
    result = explore_two_phase(config, states=SMALL_STATES)
    assert result.violation is None, str(result)
    assert result.is_complete or result.states >= SMALL_STATES


class EndsBeforeItDecides(TwoPhaseCommit):
    """Makes the epoch visible before it is decided."""

    async def _decide(self, driver: PreparedTransaction, decision: Decision) -> bool:
        await self._finish(decision)
        return await super()._decide(driver, decision)


class NeverFinishes(TwoPhaseCommit):
    """Leaves what the last driver has decided as it is."""

    async def _last(self) -> Decision | None:
        return await self._ledger.last_decision()


@pytest.mark.parametrize(
    ("protocol", "config", "violation"),
    [
        (WithoutMemory, CRASH, "visible twice"),
        (WithoutFencing, RIVAL, "EpochLostError"),
        (EndsBeforeItDecides, CRASH, "visible before the decision"),
        (NeverFinishes, CRASH, "open for ever"),
    ],
)
def test_a_driver_that_leaves_out_a_step_is_found(
    protocol: Protocol, config: TwoPhaseConfig, violation: str
) -> None:
    result = explore_two_phase(config, protocol, states=3000)
    assert result.violation is not None
    assert violation in result.violation
    assert result.schedule


def test_configurations_have_unique_names() -> None:
    names = [config.name for config in LARGE_TWO_PHASE]
    assert len(set(names)) == len(names)
