"""Whole runs of the simulation whose producer starts without its cluster: nothing lost, no order
changed, every wait bounded."""

from __future__ import annotations

import pytest

from aioproducer.testing.faults import FaultScript
from aioproducer.testing.world.producer import SimProducer
from simulation.simulation import Setup, run_seed


class BackgroundProducer(SimProducer):
    """One whose first metadata requests are lost, while records are sent already."""

    async def start(self, *, init_transactions: bool = True, wait: bool = True) -> None:
        """Does not wait for the cluster, unless it is transactional."""
        is_plain = self.config.transactional_id is None
        if is_plain:
            lost = self._world.chance.of("lost metadata").randrange(1, 9)
            faults = FaultScript(self._world.cluster.faults)
            faults.next("metadata", times=lost).drops_the_connection()
        wait = wait and not is_plain
        await super().start(init_transactions=init_transactions, wait=wait)


@pytest.mark.parametrize("seed", [3, 11, 42, 93, 107, 140])
def test_a_run_in_which_records_are_accepted_before_the_metadata(seed: int) -> None:
    assert run_seed(seed, Setup(producer=BackgroundProducer)).violations == []
