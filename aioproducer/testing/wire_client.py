"""A small client for the tools that inspect a cluster from outside: one request at a time.

Invariants: every wait ends at the client's deadline with a `KafkaTimeoutError` that names the last
failure; a connection that failed is closed and dialed anew; `close()` leaves nothing open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, Self, TypeVar, cast

from aioproducer import errors
from aioproducer._util.arguments import seconds_of
from aioproducer._util.hosts import is_host
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import decode_response, encode_request, frame_size
from aioproducer.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.wire.schema import Message

_CLIENT_ID = "aioproducer-testing"
_READ_AHEAD_BYTES = 4 * 1024 * 1024
_RETRY_PAUSE_S = 0.1
_ATTEMPT_S = 10.0

Address = tuple[str, int]
_Result = TypeVar("_Result")


def parse_bootstrap(bootstrap: str | Iterable[str]) -> list[Address]:
    """`"host:port,[::1]:port"` (or a sequence of such) as addresses."""
    parts = bootstrap.split(",") if isinstance(bootstrap, str) else list(bootstrap)
    addresses = []
    for part in filter(None, map(str.strip, parts)):
        host, _, port = part.rpartition(":")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap server given")
    return addresses


class Link(Protocol):
    """One connection to a broker whose versions are known."""

    async def ask(self, request: Message, lowest: int, highest: int) -> Message:
        """Send a request in the highest common version and await its response."""

    def abort(self) -> None:
        """Give it up at once."""

    async def close(self) -> None:
        """End it."""


OpenLink = Callable[[Address], Awaitable[Link]]
"""Connects to a broker; raises `OSError` or `KafkaError`."""


class _PlainLink:
    """A connection without TLS or SASL."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] = {}

    @classmethod
    async def open(cls, address: Address) -> Self:
        link = cls(*await asyncio.open_connection(*address, limit=_READ_AHEAD_BYTES))
        try:
            versions = cast(ApiVersionsResponse, await link._exchange(ApiVersionsRequest(), 0))
        except BaseException:
            link.abort()
            raise
        link._ranges = {
            each.api_key: (each.min_version, each.max_version) for each in versions.api_keys
        }
        return link

    async def ask(self, request: Message, lowest: int, highest: int) -> Message:
        key = cast(ApiKey, request.API_KEY)
        low, high = self._ranges.get(int(key), (0, -1))
        version = min(highest, high)
        if version < max(lowest, low):
            raise errors.UnsupportedVersionError(
                f"the broker serves {key.name} {low}-{high}, asked for {lowest}-{highest}"
            )
        return await self._exchange(request, version)

    async def _exchange(self, request: Message, version: int) -> Message:
        self._correlation_id += 1
        self._writer.write(encode_request(request, version, self._correlation_id, _CLIENT_ID))
        await self._writer.drain()
        size = frame_size(await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        correlation_id, response = decode_response(type(request), version, frame)
        if correlation_id != self._correlation_id:
            raise errors.ProtocolError(f"answer {correlation_id} to request {self._correlation_id}")
        return response

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class WireClient:
    """Asks brokers questions until a deadline.

    async with WireClient("localhost:9092", timeout_s=30) as client:
        metadata = await client.metadata(["orders"])
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        timeout_s: float,
        open_link: OpenLink | None = None,
    ) -> None:
        """Set up without connecting; the deadline runs from `__aenter__`.

        Args:
            bootstrap: `host:port` of one or more brokers.
            timeout_s: For everything that is asked.
            open_link: How to connect; without TLS and SASL if left out.
        """
        self._bootstrap = parse_bootstrap(bootstrap)
        self._timeout_s = seconds_of(timeout_s, "timeout_s")
        self._open_link: OpenLink = open_link or _PlainLink.open
        self._deadline = 0.0
        self._nodes: dict[int, Address] = {}
        self._links: dict[Address, Link] = {}
        self._failure: errors.KafkaConnectionError | None = None

    async def __aenter__(self) -> Self:
        self._deadline = asyncio.get_running_loop().time() + self._timeout_s
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    @property
    def node_ids(self) -> list[int]:
        """The brokers the last cluster-wide metadata named."""
        return sorted(self._nodes)

    async def metadata(
        self, topics: Iterable[str] | None, *, node_id: int | None = None
    ) -> MetadataResponse:
        """Return a broker's metadata of topics (None: all); any broker unless one is named.

        Topics are never created by asking. One attempt per known broker.
        """
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        # v4 is the first that can ask without creating; up to v9 there are no topic ids to null.
        response = cast(MetadataResponse, await self.ask(node_id, request, 4, 12))
        if node_id is None:
            self._nodes = {
                node.node_id: (node.host, node.port)
                for node in response.brokers
                if node.host.isascii() and is_host(node.host) and 0 < node.port < 65536
            }
        return response

    async def ask(
        self, node_id: int | None, request: Message, lowest: int, highest: int
    ) -> Message:
        """Send a request to one broker, or to the first that answers; return its response."""
        failure: errors.KafkaConnectionError | None = None
        for address in self._addresses(node_id):
            try:
                return await self._ask_at(address, request, lowest, highest)
            except errors.KafkaConnectionError as error:
                failure = error
        raise failure or errors.KafkaConnectionError(
            f"broker {node_id} is not known", node_id=node_id
        )

    async def retry(
        self,
        attempt: Callable[[], Awaitable[_Result]],
        *,
        final: tuple[type[errors.BrokerError], ...] = (),
    ) -> _Result:
        """Repeat `attempt` until the deadline while it fails with something that may pass.

        Errors named `final` are raised at once although they are retriable in general.
        """
        while True:
            try:
                return await attempt()
            except (errors.KafkaConnectionError, errors.BrokerError) as error:
                if not error.retriable or isinstance(error, final):
                    raise
                failure: errors.KafkaError = error
            await self.pause(failure)

    def extend_deadline(self) -> None:
        """Start the time for everything that is asked anew."""
        self._deadline = asyncio.get_running_loop().time() + self._timeout_s

    @property
    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return self._left_s() <= 0

    async def pause(self, failure: errors.KafkaError | None = None) -> None:
        """Wait a moment before another try; raise KafkaTimeoutError if there is no time for one."""
        if self._left_s() <= _RETRY_PAUSE_S:
            raise self._timeout(failure) from failure
        await asyncio.sleep(_RETRY_PAUSE_S)

    def _addresses(self, node_id: int | None) -> list[Address]:
        if node_id is None:
            return list(dict.fromkeys([*self._nodes.values(), *self._bootstrap]))
        return [self._nodes[node_id]] if node_id in self._nodes else []

    async def _ask_at(
        self, address: Address, request: Message, lowest: int, highest: int
    ) -> Message:
        left_s = self._left_s()
        if left_s <= 0:
            raise self._timeout(self._failure) from self._failure
        link = self._links.pop(address, None)
        try:
            async with asyncio.timeout(min(left_s, _ATTEMPT_S)):
                link = link or await self._open_link(address)
                response = await link.ask(request, lowest, highest)
        except (OSError, EOFError, TimeoutError, errors.ProtocolError) as error:
            if link is not None:
                link.abort()
            host, port = address
            self._failure = errors.KafkaConnectionError(
                f"{host}:{port} does not answer: {type(error).__name__} {error}"
            )
            raise self._failure from error
        except BaseException:
            if link is not None:
                link.abort()
            raise
        self._links[address] = link
        return response

    def _left_s(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()

    def _timeout(self, failure: errors.KafkaError | None) -> errors.KafkaTimeoutError:
        because = f": {failure.without_advice()}" if failure else ""
        return errors.KafkaTimeoutError(
            f"no success within {self._timeout_s:g} s{because}",
            advice=failure.advice if failure else None,
        )


def first_of(answers: Sequence[_Result], what: str) -> _Result:
    """Return the first of a broker's answers; raise `ProtocolError` if there is none."""
    if not answers:
        raise errors.ProtocolError(f"a broker's answer has no {what}")
    return answers[0]
