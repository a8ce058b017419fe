"""A producer that sends numbered records over the cable, and the verdict on them.

Owns: the order of a trial's events and the bounds of its waits. Not here: the weather.
"""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from support.clusters import unique_topic
from support.faults.ledger import Ledger, LogEntry, Verdict, judge
from support.namespaces.cable import Weather
from support.namespaces.hosts import Network

DELIVERY_TIMEOUT_MS = 60_000
_TIMEOUT_S = 60.0


class Trial:
    """One producer with its own topic."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._topic = unique_topic()

    async def begin(
        self, per_second: int, request_timeout_ms: int, servers: str | None = None, **options: Any
    ) -> None:
        """In good weather, sends from now on; returns at the first acknowledgement."""
        brokers, client = self._network.brokers, self._network.client
        self._network.cable.weather = Weather()
        await brokers.order("create", topic=self._topic)
        await client.order(
            "send",
            per_second=per_second,
            options=options,
            bootstrap_servers=servers or await brokers.order("servers"),
            topic=self._topic,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        )

    async def acknowledge_more(self, count: int = 100) -> None:
        """Waits until so many more records are acknowledged."""
        ask = self._network.client.order
        wanted = await ask("acknowledged") + count
        async with asyncio.timeout(_TIMEOUT_S + count):
            while await ask("acknowledged") < wanted:  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.02)

    async def end(self) -> Verdict:
        """In good weather again, waits for every outcome and compares it with the log."""
        self._network.cable.weather = Weather()
        await self.acknowledge_more()
        ledger, retries = await self._network.client.order(
            "finish", timeout_s=DELIVERY_TIMEOUT_MS / 1000
        )
        reported: Ledger = pickle.loads(bytes.fromhex(ledger))
        found = await self._network.brokers.order("log", topic=self._topic)
        log = [LogEntry(*entry) for entry in found]
        verdict = judge(reported, log, retries=retries)
        assert verdict.violations == {}
        assert verdict.acknowledged == verdict.accepted == len(log) > 0
        assert (verdict.failed, verdict.refused) == (0, 0), verdict.reasons
        return verdict
