"""The production producer with a network of the test's own."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from aioproducer import Producer
from aioproducer.net.dial.dialer import Dialer
from aioproducer.runtime.engine import ProducerEngine


class DialedProducer(Producer):
    """A producer that reaches brokers through a given `Dialer`, with a seeded chance."""

    def __init__(self, dialer: Dialer, *, seed: int = 3, **options: Any) -> None:
        super().__init__(**options)
        self._dialer = dialer
        self._seed = seed

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        return ProducerEngine(
            self._config, loop, dialer=self._dialer, rng=random.Random(self._seed)
        )
