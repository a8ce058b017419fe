"""NetworkClient: connections to all brokers, choice of the node, sending of requests.

It has one `BrokerLink` per known broker (bootstrap servers have negative ids), chooses the least
loaded node and the version of each request.

Invariants
- Only `close` waits; callers wait with `ready_at` and `on_event`.
- Each dial runs in its own task: an unreachable broker does not delay others.
- A broker that left the cluster keeps its connection until its requests are answered.
- After `close` no task, timer or socket is left on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import NamedTuple

from aioproducer._util import log
from aioproducer.errors import KafkaConnectionError, KafkaError
from aioproducer.metrics.totals import IOStats
from aioproducer.net.cluster_check import ClusterCheck
from aioproducer.net.connection import InFlightRequest, OnEnd
from aioproducer.net.context import LinkContext, NodeState
from aioproducer.net.dial.dialer import Dialer
from aioproducer.net.link import RESERVE, BrokerLink
from aioproducer.net.settings import NetSettings
from aioproducer.net.versions import BrokerVersions
from aioproducer.types import Node
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.framing import encode_request
from aioproducer.wire.schema import Message

Buffers = Sequence[bytes | memoryview]


class NodeNotReady(KafkaConnectionError):  # noqa: N818 - says what the node is, not what went wrong
    """The broker cannot take a request now; nothing was sent. Check `is_ready` first."""


class PreparedRequest(NamedTuple):
    """A request that is encoded once version and correlation id are known."""

    request_type: type[Message]
    build: Callable[[int, int, str | None], Buffers]
    """(version, correlation id, client id) -> buffers of the frame, size prefix included."""
    expect_response: bool = True
    version: int | None = None
    """The result of `api_version`; None for the highest common version."""

    @classmethod
    def of(cls, message: Message, version: int | None = None) -> PreparedRequest:
        """Return a request with a plain message."""

        def build(version: int, correlation_id: int, client_id: str | None) -> Buffers:
            return [encode_request(message, version, correlation_id, client_id)]

        return cls(type(message), build, version=version)


class NetworkClient:
    """Connections to all brokers of one cluster."""

    def __init__(
        self,
        settings: NetSettings,
        *,
        dialer: Dialer,
        loop_time: Callable[[], float],
        rng: Random,
        on_event: Callable[[], None],
    ) -> None:
        """Create a client without a running loop; `loop_time` is the clock of its later loop."""
        self.closed: bool = False
        self._brokers: dict[int, BrokerLink] = {}
        self._bootstrap: dict[int, BrokerLink] = {}
        self._retired: dict[BrokerLink, None] = {}  # in order
        self.avoided: set[int] = set()
        """The nodes that `least_loaded_node` returns only if no other one is usable."""
        warnings = log.RateLimitedLog(log.get("net"))
        self._check = ClusterCheck(settings.rebootstrap and settings.check_cluster)
        self.io_stats: IOStats = IOStats(sampling=settings.sampling)
        self._around = LinkContext(
            settings, self._check, dialer, loop_time, rng, on_event, warnings, self.io_stats
        )

    # -- nodes ------------------------------------------------------------------------------------

    def set_bootstrap(self, servers: Iterable[tuple[str, int]]) -> None:
        """Set the bootstrap servers; they get the ids -1, -2, ... in their order."""
        nodes = {-i: Node(-i, host, port) for i, (host, port) in enumerate(servers, start=1)}
        self._around.bootstrap_places.update((node.host, node.port) for node in nodes.values())
        self._replace(self._bootstrap, nodes)

    def set_nodes(self, nodes: Mapping[int, Node], cluster_id: str | None = None) -> None:
        """Set the brokers; unchanged ones of the same cluster keep their connections."""
        if cluster_id is not None:
            if self._check.cluster_id not in {None, cluster_id}:
                self._replace(self._brokers, {})
            self._check.cluster_id = cluster_id
        self._replace(self._brokers, nodes)

    def rebootstrap(self) -> None:
        """Drop the brokers and keep the bootstrap servers, which are resolved and dialed again.

        Open connections to bootstrap servers are closed too: their names may resolve to other
        addresses now.
        """
        servers = {node_id: link.node for node_id, link in self._bootstrap.items()}
        for links in (self._brokers, self._bootstrap):
            self._replace(links, {})
        self._replace(self._bootstrap, servers)
        self.avoided.clear()
        self._check.cluster_id = self._check.rebootstrap_error = None

    @property
    def rebootstrap_required(self) -> KafkaError | None:
        """The error of a broker that requires a rebootstrap, until `rebootstrap` (KIP-1242)."""
        return self._check.rebootstrap_error

    def _replace(self, links: dict[int, BrokerLink], nodes: Mapping[int, Node]) -> None:
        if self.closed:
            return
        for node_id, link in list(links.items()):
            node = nodes.get(node_id)
            if node is None or node[:3] != link.node[:3]:
                self._retired[link] = None  # first, so that `close` finds it after an interrupt
                del links[node_id]
                link.retire()
        for node_id, node in nodes.items():
            if node_id not in links:
                links[node_id] = BrokerLink(node, self._around)
        self._retired = {link: None for link in self._retired if not link.is_over}

    # -- questions --------------------------------------------------------------------------------

    def link(self, node_id: int) -> BrokerLink | None:
        """Return the link to a node, or None for an unknown one."""
        return (self._bootstrap if node_id < 0 else self._brokers).get(node_id)

    def is_ready(self, node_id: int, now: float) -> bool:
        """Return whether `begin` would accept a request for the node now."""
        link = self.link(node_id)
        return link is not None and link.is_ready(now)

    def can_ask(self, node_id: int, now: float) -> bool:
        """Return whether `send` would accept a request for the node now."""
        link = self.link(node_id)
        return link is not None and link.can_ask(now)

    def any_ready(self) -> bool:
        """Return whether any node is connected, or was until an idle close."""
        return any(link.is_healthy for link in self._links())

    def any_connected(self) -> bool:
        """Return whether some broker or bootstrap server has an open connection, busy or not."""
        return any(link.versions is not None for link in self._links())

    def has_no_live_connections(self) -> bool:
        """Return whether no connection is left, and the last one was lost.

        Its broker may be down or not: only a new connection shows that. A connection that this
        client closed because it was idle is not lost.
        """
        lost_at = ready_at = -inf
        for links in (self._brokers, self._bootstrap):
            for link in links.values():
                if link.versions is not None or link.is_dialing:
                    return False  # usually at the first link; called for every response
                lost_at = max(lost_at, link.lost_at)
                ready_at = max(ready_at, link.ready_since)
        return lost_at > ready_at

    def ready_at(self, node_id: int, now: float) -> float:
        """Return the loop time of the next check; inf while only an event can change the state."""
        link = self.link(node_id)
        return inf if link is None else link.ready_at(now)

    def next_chance_at(self, now: float) -> float:
        """Return the loop time at which the next backoff or throttle ends."""
        moments = (link.ready_at(now) for link in self._links())
        return min((at for at in moments if at > now), default=inf)

    def throttled_for(self, node_id: int, now: float) -> float:
        """Return the remaining throttle time of the node in seconds."""
        link = self.link(node_id)
        return 0.0 if link is None else max(0.0, link.throttled_until - now)

    def in_flight(self, node_id: int) -> int:
        """Return the number of requests in flight to the node."""
        link = self.link(node_id)
        return 0 if link is None else link.in_flight

    def is_dialing(self, node_id: int) -> bool:
        """Return whether a dial or a handshake with the node is in progress."""
        link = self.link(node_id)
        return link is not None and link.is_dialing

    def state(self, node_id: int) -> NodeState:
        """Return the connection state of the node."""
        link = self.link(node_id)
        if link is None:
            return NodeState.CLOSED if self.closed else NodeState.DISCONNECTED
        return link.state(self._around.loop_time())

    def connection_failures(self, node_id: int) -> KafkaError | None:
        """Return the last connection error of the node; None once it is ready again."""
        link = self.link(node_id)
        return None if link is None else link.last_error

    def api_version(
        self, node_id: int, kind: type[Message], lowest: int = 0, highest: int | None = None
    ) -> int:
        """Return the version in which a request of this kind would be sent."""
        return self._versions(node_id).choose(kind, lowest, highest, node_id=node_id)

    def version_ranges(self, node_id: int) -> Mapping[int, tuple[int, int]]:
        """Return the lowest and highest version of each API key that the node supports."""
        return self._versions(node_id).ranges

    def _versions(self, node_id: int) -> BrokerVersions:
        link = self.link(node_id)
        if link is None or link.versions is None:
            raise NodeNotReady("the versions of the broker are not known", node_id=node_id)
        return link.versions

    def highest_version(self, api: ApiKey) -> int | None:
        """Return the highest version of all connected brokers; None while none is connected."""
        known = [link.versions for link in self._links() if link.versions is not None]
        return min((versions.highest(api) for versions in known), default=None)

    def transaction_version(self) -> int | None:
        """Return the cluster's transaction.version (KIP-890), 0 if none is finalized (KIP-584).

        The latest of the levels that connected brokers reported at connect. While no broker is
        connected, as after an idle close, that of the last connection; None before the first one.
        At most 1 if one of them does not support the requests of V2: proxies lower the versions of
        requests, and leave features as they are.
        """
        links = self._links()
        known = [link.versions for link in links if link.versions is not None]
        if not known and links:
            last = max(links, key=lambda link: link.ready_since).last_versions
            known = [] if last is None else [last]
        latest = max(known, key=lambda versions: versions.features_epoch, default=None)
        if latest is None:
            return None
        level = latest.features.get("transaction.version", 0)
        return level if all(each.has_transactions_v2 for each in known) else min(level, 1)

    def least_loaded_node(self, now: float) -> int | None:
        """Return the node for a request that any node can answer; None if none is usable.

        The order: the ready node with the fewest requests; a node with a dial in progress that is
        not slow; the node whose last attempt is longest ago; a connected node that is busy or
        throttled. Bootstrap servers count while the brokers are unknown, and when no broker is
        usable (KIP-899): all back off, or their dials are slow. Java waits for these dials to end.
        Of the nodes that can be asked or dialed now, those in `avoided` come last.
        """
        groups = self._groups()
        for avoided in (self.avoided, ()):
            for links in groups:
                chosen = self._least_loaded(links, now, avoided)
                if chosen is not None:
                    return chosen
        dialing = (link.node.id for links in groups for link in links.values() if link.is_dialing)
        return next(dialing, None)

    def failures(self) -> dict[int, KafkaError | None]:
        """Return `connection_failures` of each node that `least_loaded_node` may return."""
        return {
            link.node.id: link.last_error for nodes in self._groups() for link in nodes.values()
        }

    def _groups(self) -> list[dict[int, BrokerLink]]:
        """Return the brokers, and the bootstrap servers if they may be used."""
        groups = [self._brokers, self._bootstrap]
        return groups[:1] if self._brokers and not self._around.settings.rebootstrap else groups

    def ready_node(self, now: float) -> int | None:
        """Return the least loaded node that is ready now, including bootstrap servers.

        For optional requests, for which no connection is opened.
        """
        ready = [link for link in self._links() if link.is_ready(now)]
        return min(ready, key=lambda link: link.in_flight).node.id if ready else None

    def _least_loaded(
        self, links: Mapping[int, BrokerLink], now: float, avoided: Collection[int]
    ) -> int | None:
        candidates = [link for node_id, link in links.items() if node_id not in avoided]
        if not candidates:
            return None
        # A random start spreads many clients over equally loaded nodes.
        start = self._around.rng.randrange(len(candidates))
        candidates = candidates[start:] + candidates[:start]
        ready = [link for link in candidates if link.can_ask(now)]
        if ready:
            return min(ready, key=lambda link: link.in_flight).node.id
        for link in candidates:
            if link.dial_is_promising(now):
                return link.node.id
        connectable = [link for link in candidates if link.can_connect(now)]
        if connectable:
            return min(connectable, key=lambda link: link.last_attempt_at).node.id
        if avoided:
            return None  # one of these may be asked at once, a throttled node after minutes
        connected = (link.node.id for link in candidates if link.versions is not None)
        return next(connected, None)

    # -- actions ----------------------------------------------------------------------------------

    def maybe_connect(self, node_id: int, now: float) -> None:
        """Start one dial in the background, unless connected, dialing or backing off."""
        link = self.link(node_id)
        if link is not None:
            link.connect(now)

    def send(
        self,
        node_id: int,
        request: Message | PreparedRequest,
        *,
        timeout_s: float | None = None,
        now: float,
    ) -> asyncio.Future[Message | None]:
        """Send in the highest common version; return a future of the response.

        Not for Produce requests, which leave one request in flight to this method (`begin`). With
        `expect_response=False` the result is None, once the bytes are written. If it raises, for
        example `NodeNotReady` (see `can_ask`), nothing was sent.
        """
        future: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self.begin(node_id, request, timeout_s=timeout_s, now=now, future=future, reserve=RESERVE)
        return future

    def begin(
        self,
        node_id: int,
        request: Message | PreparedRequest,
        *,
        timeout_s: float | None = None,
        now: float,
        on_end: OnEnd | None = None,
        future: asyncio.Future[Message | None] | None = None,
        reserve: int = 0,
    ) -> None:
        """Send a request whose response or error ends `future`, or is the argument of `on_end`.

        `timeout_s` is that of the settings when left out. `reserve` requests above the limit may be
        in flight; 0 for Produce requests. If it raises, for example `NodeNotReady` (see
        `is_ready`), nothing was sent.
        """
        link = self.link(node_id)
        connection = None if link is None else link.ready_connection(now, reserve)
        if link is None or link.versions is None or connection is None:
            raise NodeNotReady("the node takes no request now", node_id=node_id)
        if isinstance(request, Message):
            request = PreparedRequest.of(request)
        kind, version = request.request_type, request.version
        if version is None:
            version = link.versions.choose(kind, node_id=node_id)
        if timeout_s is None:
            timeout_s = self._around.settings.request_timeout_s
        correlation_id = connection.next_correlation_id()
        connection.begin(
            InFlightRequest(
                kind,
                version,
                correlation_id,
                request.build(version, correlation_id, self._around.settings.client_id),
                now + timeout_s,
                on_end,
                future,
            ),
            expect_response=request.expect_response,
        )

    async def close(self, timeout_s: float) -> None:
        """End all dials and connections; may be called again.

        Requests without an expected response (acks=0) have `timeout_s` to leave the process;
        everything else fails at once.
        """
        self.closed = True
        links = [*self._links(), *self._retired]
        await asyncio.gather(*(link.close(timeout_s) for link in links))
        # Last: after an exception, the next call closes the rest.
        self._brokers, self._bootstrap, self._retired = {}, {}, {}
        self._around.warnings.flush(self._around.loop_time())

    def drop(self) -> None:
        """Close all sockets after the loop was closed, when no transport can be closed."""
        self.closed = True
        for link in (*self._links(), *self._retired):
            link.drop()

    def _links(self) -> list[BrokerLink]:
        return [*self._brokers.values(), *self._bootstrap.values()]
