"""Totals of requests, responses, bytes, latencies and connections per broker.

Invariant: each request, response and connection is counted once; a broker's totals outlive its
connections.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from aioproducer.metrics.sampling import Sampled

_MOST_NODES: Final = 10_000
"""Limit of brokers with totals: a hostile cluster may name new brokers in each response."""


@dataclass(slots=True, eq=False)
class NodeIOStats(Sampled):
    """Totals of one broker; bootstrap servers have negative ids and separate totals."""

    PEAKS: ClassVar[tuple[str, ...]] = ("request_size_max", "latency_max")

    requests: int = 0
    bytes_out: int = 0
    responses: int = 0
    bytes_in: int = 0
    latency: float = 0.0
    request_size_max: float = 0.0
    latency_max: float = 0.0

    def on_request(self, size: int, now: float) -> None:
        """Count a request that was handed to the transport."""
        self.tick(now)
        self.requests += 1
        self.bytes_out += size
        self.request_size_max = max(self.request_size_max, size)

    def on_response(self, size: int, latency_s: float, now: float) -> None:
        """Count a response."""
        self.tick(now)
        self.responses += 1
        self.bytes_in += size
        self.latency += latency_s
        self.latency_max = max(self.latency_max, latency_s)


@dataclass(slots=True, eq=False)
class IOStats(Sampled):
    """The totals of all brokers, of connections and of authentications."""

    PEAKS: ClassVar[tuple[str, ...]] = ("renewal_time_max",)

    connections_created: int = 0
    connections_closed: int = 0
    authentications: int = 0
    endless_authentications: int = 0
    failed_authentications: int = 0
    renewals: int = 0
    failed_renewals: int = 0
    renewal_time: float = 0.0
    renewal_time_max: float = 0.0
    nodes: dict[int, NodeIOStats] = field(default_factory=dict, repr=False)

    def of(self, node_id: int) -> NodeIOStats:
        """Return the totals of a broker."""
        known = self.nodes.get(node_id)
        if known is None:
            if len(self.nodes) >= _MOST_NODES:
                del self.nodes[next(iter(self.nodes))]
            known = self.nodes[node_id] = NodeIOStats(sampling=self.sampling)
        return known

    @property
    def open_connections(self) -> int:
        """Number of open connections."""
        return self.connections_created - self.connections_closed

    def on_connected(self, now: float) -> None:
        """Count an opened connection."""
        self.tick(now)
        self.connections_created += 1

    def on_closed(self, now: float) -> None:
        """Count a closed connection."""
        self.tick(now)
        self.connections_closed += 1

    def on_authenticated(self, now: float, *, endless: bool) -> None:
        """Count an authenticated connection; `endless` if it needs no renewal."""
        self.tick(now)
        self.authentications += 1
        self.endless_authentications += endless

    def on_renewed(self, took_s: float, now: float) -> None:
        """Count a renewed authentication (KIP-368)."""
        self.tick(now)
        self.renewals += 1
        self.renewal_time += took_s
        self.renewal_time_max = max(self.renewal_time_max, took_s)

    def on_refused(self, now: float, *, renewal: bool) -> None:
        """Count a failed authentication or renewal."""
        self.tick(now)
        if renewal:
            self.failed_renewals += 1
        else:
            self.failed_authentications += 1
