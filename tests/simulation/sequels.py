"""Checks of what two calls do one after the other, in a healed cluster.

Owns: situations that a first call brings about for a second one. Not here: what calls return, see
`simulation.results`; what each state must be equal to, see `simulation.batches`.
"""

from __future__ import annotations

import asyncio

from aioproducer.errors import BufferFullError
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.world.faults import Shape
from simulation.bursts import Bursts
from simulation.calls import MoreCalls

_STEP_S, _STEPS = 0.001, 500
_MOST_PLACES, _WHOLE = 40, 3
_RECORD_BYTES = 300
"""More than the bound of the size of a record without content."""


class Sequels(Bursts):
    """The questions to the producer of a run, those about two calls last."""

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        await super().after_probes()
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_after_refusal()
            await self._check_whole_after_record()
            await self._check_whole_without_place()
            await self._check_exact_memory()

    async def _check_after_refusal(self) -> None:
        """A record that is sent while an earlier one backs off does not leave before it."""
        if not self._config.acks_value or not self._config.retries:
            return
        name, faults = min(self._world.cluster.topics), FaultScript(self._world.cluster.faults)
        await self._outcome_of(await self._sent(name, None, 0))
        fault = faults.next("produce").answers("NOT_ENOUGH_REPLICAS")
        first = await self._sent(name, None, 0)
        for _ in range(_STEPS):
            if first.delivery is None or first.delivery.batch_and_index()[0].last_error:
                break
            await asyncio.sleep(_STEP_S)
        faults.remove(fault)
        second = await self._sent(name, None, 0)
        await self._outcome_of(first)
        await self._outcome_of(second)

    async def _check_whole_after_record(self) -> None:
        """A batch that lingers is sent at once if a whole batch follows it."""
        await self._producer.flush()
        name = min(self._world.cluster.topics)
        first = await self._sent(name, None, 0)
        await self._send_whole(name)
        await self._outcome_of(first)

    async def _check_whole_without_place(self) -> None:
        """A whole batch waits until each of its records has a place."""
        most = self._config.buffer_max_records
        if most is None or not _WHOLE <= most <= _MOST_PLACES:
            return
        await self._producer.flush()
        name = min(self._world.cluster.topics)
        entries = [self._sent_nowait(name, 0) for _ in range(most - 1)]
        await self._send_whole(name)
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_exact_memory(self) -> None:
        """A record is accepted without a wait if the free memory is exactly what it takes."""
        await self._producer.flush()
        engine = self._producer.engine
        pool, size = engine.pool, engine.accumulator.settings.first_size(0)
        if size < _RECORD_BYTES or pool.available < 2 * size or pool.queued:
            return
        free = pool.available
        if (everything := pool.try_allocate(free - 1)) is not None:
            pool.deallocate(everything, free - 1)  # so that no buffer is kept for reuse
        taken = pool.try_allocate(free - size)
        entry = self._sent_nowait(min(self._world.cluster.topics), 0)
        if taken is not None:
            pool.deallocate(taken, free - size)
        if isinstance(entry.error, BufferFullError):
            self._ledger.false_reports.append(f"{size} bytes are free: {entry.error}")
        await self._outcome_of(entry)

    async def _send_whole(self, topic: str) -> None:
        """Send some records as one batch."""
        work = MoreCalls(
            self._producer,
            Shape((), {}),
            self._ledger,
            self._world.trace,
            self._world.wall_ms,
            purges=False,
        )
        whole = [self._odd_entry(topic, 0) for _ in range(_WHOLE)]
        await work._send_whole(whole)
        for entry in whole:
            await self._outcome_of(entry)
