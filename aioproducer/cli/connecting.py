"""A started producer for one command.

Owns: the quick first look whether anybody listens, start and close. Must not know: commands.

Invariants
- Nobody listening is told within `_LISTENING_S`, long before `max_block_ms` would end.
- An aborted command does not wait for deliveries; any other end does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aioproducer.config import ProducerConfig
from aioproducer.errors import BootstrapError
from aioproducer.producer import Producer

_LISTENING_S = 5.0
_PAUSE_S = 0.25


@asynccontextmanager
async def started_producer(config: ProducerConfig) -> AsyncIterator[Producer]:
    """A producer connected to its cluster; closed at the end."""
    await wait_for_listener(config.bootstrap)
    producer = Producer(config)
    await producer.start()
    try:
        yield producer
    except asyncio.CancelledError:
        await producer.close(timeout=0)
        raise
    finally:
        await producer.close()


async def wait_for_listener(
    servers: Sequence[tuple[str, int]], *, within_s: float = _LISTENING_S
) -> None:
    """Returns once one of the servers accepts a connection; raises `BootstrapError`."""
    reasons: dict[str, str] = {}
    try:
        async with asyncio.timeout(within_s):
            while True:
                if await _any_listens(servers, reasons):
                    return
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        listed = "; ".join(
            f"{host}:{port} {reasons.get(f'{host}:{port}', 'does not answer')}"
            for host, port in servers
        )
        raise BootstrapError(f"cannot reach the cluster: {listed}") from None


async def _any_listens(servers: Sequence[tuple[str, int]], reasons: dict[str, str]) -> bool:
    found = await asyncio.gather(*(_listens(host, port, reasons) for host, port in servers))
    return any(found)


async def _listens(host: str, port: int, reasons: dict[str, str]) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        reasons[f"{host}:{port}"] = (error.strerror or str(error)).lower()
        return False
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass
    return True
