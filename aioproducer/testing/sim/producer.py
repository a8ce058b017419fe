"""The producer under test: production code with the run's network, chance and clock.

Owns: the three replacements, and the poisoning of memory that was given back. Must not know: what
the producer is used for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.core.buffer_pool import BufferPool
from aioproducer.runtime.engine import ProducerEngine

if TYPE_CHECKING:
    from aioproducer.testing.sim.simulation import Simulation

_POISON = b"\xee"


class SimProducer(Producer):
    """The production producer, given the run's network, chance and clock."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(ProducerConfig(**simulation.scenario.options))
        self._simulation = simulation

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        simulation = self._simulation
        engine = ProducerEngine(
            self._config,
            loop,
            dialer=simulation.world.network,
            rng=simulation.chance.of("producer"),
            wall_ms=simulation.world.wall_ms,
        )
        _poison_free_memory(engine.pool)
        return engine

    @property
    def engine(self) -> ProducerEngine:
        """The machinery, for looking at."""
        if self._engine is None:
            raise RuntimeError("the producer was not started")
        return self._engine


def _poison_free_memory(pool: BufferPool) -> None:
    """Whoever still reads memory that was given back sends garbage at once, not by chance."""
    deallocate = pool.deallocate

    def poison(buffer: bytearray, size: int) -> None:
        buffer[:] = _POISON * len(buffer)
        deallocate(buffer, size)

    pool.deallocate = poison  # type: ignore[method-assign]
