"""Connections to single brokers, dialed and authenticated as the producer's are.

Invariant: a session that fails leaves no open connection.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError, NodeDisconnectedError
from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.connection import Connection
from aioproducer.net.dial.attempt import Streams, open_stream
from aioproducer.net.handshake import shake_hands
from aioproducer.net.session import Session
from aioproducer.net.settings import NetSettings
from aioproducer.runtime import settings as made
from aioproducer.testing.wire_client import Address, Link, OpenLink
from aioproducer.types import Node
from aioproducer.wire.schema import Message

_UNKNOWN_NODE = -1
"""The server at an address, whatever its identity."""


class _Unobserved:
    """A connection listener that ignores every event."""

    def response_received(self, kind: type[Message], version: int, response: Message) -> None:
        return

    def capacity_freed(self) -> None:
        return

    def connection_failed(self, connection: Connection, error: KafkaError, lost: int) -> None:
        return


def session_on(streams: Streams, settings: NetSettings, host: str, within_s: float) -> Session:
    """Return a session on an open stream; its handshake may take `within_s`."""
    loop_time = asyncio.get_running_loop().time
    connection = Connection(
        *streams, node_id=_UNKNOWN_NODE, observer=_Unobserved(), loop_time=loop_time
    )
    check = ClusterCheck(enabled=False, cluster_id=None)
    return Session(connection, settings, check, host, loop_time() + within_s)


async def end(session: Session) -> None:
    """Close a session's connection, and wait for its end."""
    session.connection.abort(NodeDisconnectedError("the session was closed"))
    await session.connection.wait_closed()


async def abort_stream(writer: asyncio.StreamWriter) -> None:
    """Abort a connection that has no session."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


class _SessionLink:
    """A session as a `Link`."""

    def __init__(self, session: Session, within_s: float) -> None:
        self._session = session
        self._within_s = within_s

    async def ask(self, request: Message, lowest: int, highest: int) -> Message:
        session = self._session
        if session.versions is None:
            raise TypeError("a question comes after the handshake")
        version = session.versions.choose(type(request), lowest, highest)
        session.deadline = asyncio.get_running_loop().time() + self._within_s
        return await session.request(request, version, Message)

    def abort(self) -> None:
        self._session.connection.abort(NodeDisconnectedError("the link was given up"))

    async def close(self) -> None:
        await end(self._session)


def link_opener(config: ProducerConfig) -> OpenLink:
    """Return the dialer that connects as the producer would: by proxy, TLS and SASL."""
    settings, dialer = made.net_settings(config), made.make_dialer(config)

    async def open_link(address: Address) -> Link:
        opened: list[Streams] = []
        found = await open_stream(
            dialer,
            Node(_UNKNOWN_NODE, *address),
            canonical=settings.dns_canonical and tuple(address) in config.bootstrap,
            timeout_s=settings.connection_setup_timeout_s,
            loop_time=asyncio.get_running_loop().time,
            opened=opened,
            tried=[],
        )
        host = found.canonical_name or address[0]
        session = session_on(opened[-1], settings, host, settings.request_timeout_s)
        try:
            await shake_hands(session)
        except BaseException:
            await end(session)
            raise
        return _SessionLink(session, settings.request_timeout_s)

    return open_link
