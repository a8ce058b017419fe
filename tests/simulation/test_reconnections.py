"""The checks of a producer whose brokers get other addresses."""

from __future__ import annotations

import pytest
from support.stage import Stage, play

from aioproducer.testing.broker import ConnectionFault, Fault
from aioproducer.wire.api_keys import ApiKey
from simulation.aftermath import Aftermath
from simulation.ledger import Ledger
from simulation.reconnections import Reconnections

_NEVER_S = 1e6


@pytest.mark.parametrize("delay_ms", [0, 1900])
@pytest.mark.parametrize("is_refreshed", [True, False])
def test_brokers_that_are_not_found_at_other_addresses_are_found_out(
    delay_ms: int, is_refreshed: bool
) -> None:
    async def act(stage: Stage) -> list[str]:
        ledger = Ledger()
        async with stage.producer as producer:
            await producer.send_and_wait("t", b"v")
            questions = Aftermath(producer, stage.world, ledger)
            stage.faults.add(Fault(ConnectionFault(delay_ms=delay_ms), api=ApiKey.METADATA))
            if not is_refreshed:
                stage.engine.metadata._max_age = _NEVER_S
            check = Reconnections(
                producer, stage.world, ledger, questions._sent, questions._outcome_of
            )
            await check._check_addresses()
        return ledger.unrecovered

    options = {"metadata_max_age_ms": 2000, "delivery_timeout_ms": 40_000}
    found = play(act, brokers=2, **options)
    assert len(found) == (not is_refreshed)
