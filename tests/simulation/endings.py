"""A check of a producer that a broker refuses for good, after all other questions to it.

Owns: the last answer that a producer gets. Not here: what `close` does, see `simulation.aftermath`.
"""

from __future__ import annotations

import asyncio

from aioproducer.errors import ClusterAuthorizationFailedError
from aioproducer.testing.faults import FaultScript
from simulation.appearances import Appearances
from simulation.ledger import CallState
from simulation.wrong_arguments import accepted_after_end

_TURNS_S = 0.001


class Endings(Appearances):
    """The questions to the producer of a run, that about its end last."""

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        await super().after_probes()
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_final_refusal()

    async def close(self) -> None:
        """Close, twice; no call goes on then."""
        await super().close()
        if not self.drops:
            await self._producer.close()
            topic = min(self._world.cluster.topics, default="t1")
            self._ledger.false_reports += await accepted_after_end(self._producer, topic)

    async def _check_final_refusal(self) -> None:
        """A producer that may not write any more ends at once, not with its next record."""
        engine = self._producer.engine
        is_idempotent = engine.accumulator.sequencer.is_idempotent
        if self._config.linger_ms or engine.transactions is not None or not is_idempotent:
            return
        await self._producer.flush()
        faults = FaultScript(self._world.cluster.faults)
        fault = faults.next("produce").answers("CLUSTER_AUTHORIZATION_FAILED")
        entry = await self._sent(min(self._world.cluster.topics), None, 0)
        await self._outcome_of(entry)
        faults.remove(fault)
        await asyncio.sleep(_TURNS_S)
        error = entry.error
        if isinstance(error, ClusterAuthorizationFailedError):
            if engine.failure is None:
                self._ledger.late_ends.append(f"the producer goes on after {error}")
            else:
                found = await accepted_after_end(self._producer, entry.topic, type(error))
                self._ledger.false_reports += found
        entry.state, entry.error, entry.delivery = CallState.UNKNOWN, None, None
