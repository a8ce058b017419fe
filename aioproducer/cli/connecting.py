"""A started producer for one command.

Invariants
- If no server listens, that is reported within `_LISTENING_S`, long before `max_block_ms` ends.
- An aborted command does not wait for deliveries; any other end does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aioproducer._util.hosts import host_and_port
from aioproducer.cli.sessions import abort_stream
from aioproducer.client.producer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import BootstrapError
from aioproducer.net.dial.dialer import Address, Dialer, reason_of
from aioproducer.runtime.settings import make_plain_dialer

_LISTENING_S = 5.0
_PAUSE_S = 0.25
_READ_AHEAD_BYTES = 4096


@asynccontextmanager
async def started_producer(config: ProducerConfig) -> AsyncIterator[Producer]:
    """Yield a producer connected to its cluster; close it at the end."""
    await wait_for_listener(config)
    producer = Producer(config)
    await producer.start()
    try:
        yield producer
    except asyncio.CancelledError:
        await producer.close(timeout=0)
        raise
    finally:
        await producer.close()


async def wait_for_listener(config: ProducerConfig, *, within_s: float = _LISTENING_S) -> None:
    """Return once one of the servers accepts a connection; raise `BootstrapError`."""
    dialer, servers = make_plain_dialer(config), config.bootstrap
    reasons: dict[str, str] = {}
    try:
        async with asyncio.timeout(within_s):
            await _first(_listener(dialer, host, port, reasons) for host, port in servers)
    except TimeoutError:
        listed = "; ".join(
            f"{place} {reasons.get(place, 'does not answer')}"
            for place in (host_and_port(host, port) for host, port in servers)
        )
        raise BootstrapError(f"cannot reach the cluster: {listed}") from None


async def _listener(dialer: Dialer, host: str, port: int, reasons: dict[str, str]) -> bool:
    """Return once a server accepts a connection at one of its addresses."""
    place = host_and_port(host, port)

    async def accepts(address: Address) -> bool:
        try:
            _, writer = await dialer.connect(address, server_hostname=host, limit=_READ_AHEAD_BYTES)
        except OSError as error:
            reasons[place] = reason_of(error).lower()
            return False
        await abort_stream(writer)
        return True

    while True:
        try:
            addresses = await dialer.resolve(host, port, canonical=False)
        except OSError as error:
            reasons[place] = (error.strerror or str(error)).lower()
        else:
            if await _first(map(accepts, addresses)):
                return True
        await asyncio.sleep(_PAUSE_S)


async def _first(attempts: Iterable[Coroutine[Any, Any, bool]]) -> bool:
    """Return whether one of them succeeds, without a wait for the others: these may hang."""
    running = [asyncio.ensure_future(each) for each in attempts]
    try:
        for done in asyncio.as_completed(running):
            if await done:
                return True
        return False
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
