"""The producer in a world: production code with that world's network, chance and clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aioproducer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.runtime.engine import ProducerEngine

if TYPE_CHECKING:
    from aioproducer.net.dial.dialer import Dialer
    from aioproducer.testing.world.world import SimWorld

_POISON = b"\xee"


class SimProducer(Producer):
    """The production producer, given a world's network, chance and clock.

    Args:
        world: Its world.
        purpose: Names its source of chance.
        dialer: Its dialer, if not the world's.
        **options: On top of the world's.
    """

    def __init__(
        self,
        world: SimWorld,
        *,
        purpose: str = "producer",
        dialer: Dialer | None = None,
        **options: Any,
    ) -> None:
        super().__init__(ProducerConfig(**{**world.spec.options, **options}))
        self._world = world
        self._purpose = purpose
        self._dialer = dialer

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        world = self._world
        engine = ProducerEngine(
            self._config,
            loop,
            dialer=self._dialer or world.network,
            rng=world.chance.of(self._purpose),
            wall_ms=world.wall_ms,
            registry=self._registry(),
        )
        _poison_free_memory(engine.pool)
        return engine

    @property
    def was_started(self) -> bool:
        """Return whether it has an engine to inspect."""
        return self._engine is not None

    @property
    def engine(self) -> ProducerEngine:
        """Return its engine, for inspection."""
        if self._engine is None:
            raise RuntimeError("the producer was not started")
        return self._engine


def _poison_free_memory(pool: BufferPool) -> None:
    """Poison returned memory: code that still reads it sends garbage at once, not by chance."""
    deallocate = pool.deallocate

    def poison(buffer: bytearray, size: int) -> None:
        buffer[:] = _POISON * len(buffer)
        deallocate(buffer, size)

    pool.deallocate = poison  # type: ignore[method-assign]
