"""A network client with what tests need around it: its events, waiting, and a clean end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

from aioproducer.errors import KafkaError, NodeDisconnectedError
from aioproducer.net.client import NetworkClient
from aioproducer.net.context import NodeState
from aioproducer.net.dial.dialer import Dialer
from aioproducer.net.settings import NetSettings
from aioproducer.types import Node
from aioproducer.wire.messages.metadata import MetadataRequest
from aioproducer.wire.schema import Message
from net.virtual import MemoryDialer

SETTINGS = NetSettings(
    client_id="tests",
    request_timeout_s=30.0,
    connection_setup_timeout_s=10.0,
    connection_setup_timeout_max_s=30.0,
    reconnect_backoff_s=0.05,
    reconnect_backoff_max_s=1.0,
)


class Harness:
    """A client and its node 1."""

    def __init__(self, dialer: Dialer, settings: NetSettings) -> None:
        self.loop = asyncio.get_running_loop()
        self.events = 0
        self._event = asyncio.Event()
        self.client = NetworkClient(
            settings,
            dialer=dialer,
            loop_time=self.loop.time,
            rng=Random(7),
            on_event=self._on_event,
        )

    def _on_event(self) -> None:
        self.events += 1
        self._event.set()

    @property
    def now(self) -> float:
        return self.loop.time()

    async def next_event(self) -> None:
        self._event.clear()
        await self._event.wait()

    async def connect(self, node_id: int = 1) -> KafkaError | None:
        """Dials once; the error if it did not work, None if the node is ready."""
        self.client.maybe_connect(node_id, self.now)
        while self.client.state(node_id) in {NodeState.CONNECTING, NodeState.HANDSHAKING}:
            await self.next_event()
        return self.client.connection_failures(node_id)

    async def wait_for_state(self, *states: NodeState, node_id: int = 1) -> None:
        while self.client.state(node_id) not in states:
            await self.next_event()

    def send(
        self, message: Message | None = None, node_id: int = 1, **options: Any
    ) -> asyncio.Future[Message | None]:
        request = MetadataRequest(topics=None) if message is None else message
        return self.client.send(node_id, request, now=self.now, **options)

    async def ask(self, node_id: int = 1, **options: Any) -> Message | None:
        return await self.send(node_id=node_id, **options)

    def lose_connection(self, reason: str, node_id: int = 1) -> None:
        """Ends the connection of the node as if it broke."""
        self.client.link(node_id)._connection.abort(  # type: ignore[union-attr]
            NodeDisconnectedError(reason, node_id=node_id)
        )


@asynccontextmanager
async def harness(
    dialer: Dialer, nodes: Mapping[int, tuple[str, int]] | None = None, **settings: Any
) -> AsyncIterator[Harness]:
    """A harness whose client is closed at the end, as are the dialer's servers."""
    it = Harness(dialer, replace(SETTINGS, **settings))
    places = {1: ("broker", 9092)} if nodes is None else nodes
    it.client.set_nodes({node_id: Node(node_id, *place) for node_id, place in places.items()})
    try:
        yield it
    finally:
        await it.client.close(1.0)
        if isinstance(dialer, MemoryDialer):
            await dialer.shut_down()
