"""Servers and brokers for the doctor to check, and its findings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aioproducer import ProducerConfig
from aioproducer.cli.checkup import Checkup, Finding, Scope, Status
from aioproducer.cli.checkup.probe import BrokerProbe
from aioproducer.cli.checkup.probe_context import ProbeContext
from aioproducer.net.dial.dialer import Address
from aioproducer.net.settings import NetSettings

STEP_S = 10.0
"""Long enough for a busy machine; what is to time out says so itself."""
BRIEF_S = 0.2


async def examined(
    servers: str,
    topic: str | None = None,
    *,
    write: bool = False,
    step_s: float = STEP_S,
    total_s: float = 60.0,
    **given: Any,
) -> list[Finding]:
    """All findings about a cluster."""
    config = ProducerConfig(bootstrap_servers=servers, **given)
    scope = Scope(topic, write=write, step_s=step_s, total_s=total_s)
    checkup = Checkup(config, scope, lambda _: None)
    await checkup.run()
    return checkup.findings


def failures(findings: Sequence[Finding]) -> list[str]:
    """The codes of everything that is not well."""
    return [each.code for each in findings if each.status in {Status.WARN, Status.FAIL}]


def only(findings: Sequence[Finding], code: str) -> Finding:
    """The one trouble there is."""
    assert failures(findings) == [code], findings
    return next(each for each in findings if each.code == code)


class FakeDialer:
    """Names and ports that behave as given: an error, or None for never."""

    def __init__(
        self,
        name: OSError | Sequence[Address] | None = None,
        ports: Mapping[Address, OSError | None] | None = None,
    ) -> None:
        self._name = name
        self._ports = ports or {}

    async def resolve(self, host: str, port: int, *, canonical: bool) -> list[Address]:
        return list(await _outcome(self._name))

    async def connect(
        self, address: Address, *, server_hostname: str, limit: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await _outcome(self._ports.get(address))
        raise AssertionError("a fake port accepts no connections")


async def _outcome(reported: Any) -> Any:
    if reported is None:
        await asyncio.Event().wait()
    if isinstance(reported, OSError):
        raise reported
    return reported


def probe_by(dialer: Any, step_s: float = STEP_S) -> BrokerProbe:
    """A probe to a broker that is reached through a dialer."""
    return BrokerProbe(ProbeContext(NetSettings(), dialer, dialer, False, step_s), "broker", 9092)


@contextmanager
def closed_port() -> Iterator[str]:
    """A port that is held, and refuses."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@asynccontextmanager
async def stranger(answer: bytes) -> AsyncIterator[str]:
    """A server that answers any request with these bytes and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
