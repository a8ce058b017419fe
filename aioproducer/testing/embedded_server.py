"""One simulated broker's TCP side: its port, its connections, its waits.

    read frame -> [frozen?] -> [authenticated?] -> respond -> [long poll] -> [delay] -> write
               -> [mute]

Invariants: every connection is one task in `_tasks`; `stop` cancels and awaits them all; nothing a
peer sends ends anything but its own connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakSet

from aioproducer._util import log
from aioproducer._util.forks import at_fork
from aioproducer.errors import ProtocolError
from aioproducer.testing.broker import ClusterState, Reply
from aioproducer.testing.framing import decode_request_header
from aioproducer.testing.security import ListenerSecurity, SaslGate
from aioproducer.types import TopicPartition
from aioproducer.wire.framing import frame_size

_log = log.get("testing")

_BACKLOG = 128
_READ_AHEAD_BYTES = 1024 * 1024
_TLS_CLOSE_S = 1.0
_TURNS_OF_ACCEPTING = 5
"""Turns of the loop from a connection that the system has accepted to `BrokerServer._accept`."""


class PartitionTracker:
    """Wakes the long polls that watch a partition when it changes."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, set[asyncio.Future[None]]] = {}

    def watchers(self, partition: TopicPartition) -> int:
        """Return how many long polls watch a partition."""
        return len(self._waiting.get(partition, ()))

    def changed(self, partition: TopicPartition) -> None:
        """Wake all tasks that watch `partition`."""
        for waiter in self._waiting.get(partition, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, partitions: frozenset[TopicPartition], timeout_s: float) -> None:
        """Return when one of `partitions` changes, or after `timeout_s`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(waiter)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await waiter
        finally:
            for partition in partitions:
                waiting = self._waiting[partition]
                waiting.discard(waiter)
                if not waiting:
                    del self._waiting[partition]


class BrokerServer:
    """The port and the connections of one broker."""

    def __init__(
        self,
        state: ClusterState,
        node_id: int,
        tracker: PartitionTracker,
        clock_ms: Callable[[], int],
        security: ListenerSecurity,
    ) -> None:
        self._state = state
        self._security = security
        self._node_id = node_id
        self._tracker = tracker
        self._clock_ms = clock_ms
        self._server: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._is_open = False
        self._kept_port: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._running = asyncio.Event()
        self._running.set()
        _servers.add(self)

    @property
    def connection_count(self) -> int:
        """The number of connected clients."""
        return len(self._writers)

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, chosen by the system if `port` was 0."""
        listener, self._kept_port = self._kept_port, None
        if listener is None or listener.getsockname()[1] != port:
            if listener is not None:
                listener.close()
            listener = _bind(host, port)
        self._listener = listener
        self._running.set()
        self._is_open = True
        context = self._security.ssl_context
        self._server = await asyncio.start_server(
            self._accept,
            sock=listener,
            limit=_READ_AHEAD_BYTES,
            backlog=_BACKLOG,
            ssl=context,
            ssl_shutdown_timeout=None if context is None else _TLS_CLOSE_S,
            start_serving=False,  # which can be cancelled, and `stop` then has the server
        )
        await self._server.start_serving()
        return int(listener.getsockname()[1])

    async def stop(self, *, keep_port: bool = False) -> None:
        """Close the port and reset every connection.

        With `keep_port` a bound socket that does not listen keeps others from taking the port
        meanwhile; connecting to it is refused.
        """
        self._is_open = False
        server, self._server = self._server, None
        kept, self._kept_port = self._kept_port, None
        if kept is not None:
            kept.close()
        if server is not None:
            address = server.sockets[0].getsockname()[:2]
            await close_port(server)
        self.drop_connections()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if server is not None:
            await server.wait_closed()
            for _ in range(_TURNS_OF_ACCEPTING):
                await asyncio.sleep(0)  # `_accept` resets what the closed port had accepted before
            if keep_port:
                self._kept_port = _bind(*address)

    def after_fork_in_child(self, null: int) -> None:
        """Replace the child's copies of sockets, which would keep them open after `stop`."""
        connections = (writer.get_extra_info("socket") for writer in self._writers)
        for each in (self._listener, self._kept_port, *connections):
            if each is not None and each.fileno() >= 0:
                os.dup2(null, each.fileno())

    def freeze(self) -> None:
        """Answer nothing until `thaw`."""
        self._running.clear()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._running.set()

    def drop_connections(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        # Our own task, not the one asyncio makes of a coroutine function: 3.11 logs an error for
        # each of those that is cancelled.
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve_requests(reader, writer)
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, TimeoutError):
            pass  # The client went away, maybe in the middle of a frame, or had nothing to say.
        except ProtocolError as error:
            _log.info("broker %d closes a connection: %s", self._node_id, error.message)
        except Exception:
            _log.exception("broker %d failed at a request", self._node_id)
        finally:
            writer.close()
            try:
                with suppress(OSError):
                    await writer.wait_closed()
            finally:
                self._writers.discard(writer)

    async def _serve_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        limit = self._state.settings.max_request_bytes
        idle_ms = self._state.settings.connections_max_idle_ms
        gate = SaslGate(self._security)
        while True:
            async with asyncio.timeout(None if idle_ms < 0 else idle_ms / 1000):
                size = frame_size(await reader.readexactly(4))
            if size > limit:
                raise ProtocolError(f"a request of {size} bytes, the limit is {limit}")
            frame = await reader.readexactly(size)
            await self._running.wait()
            reply = await self._answer(gate, frame)
            await self._running.wait()
            if reply.delay_ms:
                await asyncio.sleep(reply.delay_ms / 1000)
            if reply.frame is not None:
                writer.write(reply.frame)
                await writer.drain()
            if reply.close is not None:
                _log.info("broker %d closes a connection: %s", self._node_id, reply.close)
                return
            if reply.mute_ms:
                await asyncio.sleep(reply.mute_ms / 1000)

    async def _answer(self, gate: SaslGate, frame: bytes) -> Reply:
        if gate.expects_token:
            return gate.take_token(frame, self._clock_ms())
        header, now_ms = decode_request_header(frame), self._clock_ms()
        take = partial(gate.take_request, header, now_ms)
        reply = self._state.respond(self._node_id, header, now_ms, gate=take)
        while reply.wait is not None:
            left_ms = reply.wait.deadline_ms - now_ms
            await self._tracker.wait(reply.wait.poll.watching, left_ms / 1000)
            now_ms = self._clock_ms()
            reply = self._state.respond(self._node_id, header, now_ms, wait=reply.wait)
        return reply


_servers: Final[WeakSet[BrokerServer]] = WeakSet()


def _after_fork_in_child() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for server in list(_servers):
        server.after_fork_in_child(null)
    os.close(null)


at_fork(after_in_child=_after_fork_in_child)


async def close_port(server: asyncio.Server) -> None:
    """Close a server's ports, once each connection that it has accepted has its transport.

    asyncio makes the transport a turn later, and if the server is closed by then, it drops the
    socket without closing it.
    """
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # the loop of Windows has no readers
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
    try:
        await asyncio.sleep(0)
    finally:
        server.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY on what says that it is TCP; else answers wait for acknowledgements.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # on Windows two processes could then listen on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
