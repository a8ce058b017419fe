"""What goes over the wire, counted per broker.

Owns: requests, answers, bytes, latencies and connections as totals. Must not know: what a request
is for, exporters.

Invariant: counted once per request, answer or connection; a broker's totals outlive those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from aioproducer.metrics.sampling import Sampled

_MOST_NODES: Final = 10_000
"""Brokers whose totals are kept: a hostile cluster may name others in each answer."""


@dataclass(slots=True, eq=False)
class NodeTraffic(Sampled):
    """Totals of one broker; bootstrap servers have negative ids and totals of their own."""

    PEAKS: ClassVar[tuple[str, ...]] = ("request_size_max", "latency_max")

    requests: int = 0
    bytes_out: int = 0
    responses: int = 0
    bytes_in: int = 0
    latency: float = 0.0
    request_size_max: float = 0.0
    latency_max: float = 0.0

    def on_request(self, size: int, now: float) -> None:
        """A request was handed to the transport."""
        self.tick(now)
        self.requests += 1
        self.bytes_out += size
        self.request_size_max = max(self.request_size_max, size)

    def on_response(self, size: int, latency_s: float, now: float) -> None:
        """An answer was read."""
        self.tick(now)
        self.responses += 1
        self.bytes_in += size
        self.latency += latency_s
        self.latency_max = max(self.latency_max, latency_s)


@dataclass(slots=True, eq=False)
class Traffic(Sampled):
    """The totals of all brokers, and those of connections and how they were authenticated."""

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
    nodes: dict[int, NodeTraffic] = field(default_factory=dict, repr=False)

    def of(self, node_id: int) -> NodeTraffic:
        """The totals of a broker."""
        known = self.nodes.get(node_id)
        if known is None:
            if len(self.nodes) >= _MOST_NODES:
                del self.nodes[next(iter(self.nodes))]
            known = self.nodes[node_id] = NodeTraffic(sampling=self.sampling)
        return known

    @property
    def open_connections(self) -> int:
        """How many connections there are."""
        return self.connections_created - self.connections_closed

    def on_connected(self, now: float) -> None:
        """A stream was opened."""
        self.tick(now)
        self.connections_created += 1

    def on_closed(self, now: float) -> None:
        """A stream that was opened is over."""
        self.tick(now)
        self.connections_closed += 1

    def on_authenticated(self, now: float, *, endless: bool) -> None:
        """A secured connection was set up, for as long as it lasts if `endless`."""
        self.tick(now)
        self.authentications += 1
        self.endless_authentications += endless

    def on_renewed(self, took_s: float, now: float) -> None:
        """A connection was authenticated again (KIP-368)."""
        self.tick(now)
        self.renewals += 1
        self.renewal_time += took_s
        self.renewal_time_max = max(self.renewal_time_max, took_s)

    def on_refused(self, now: float, *, renewal: bool) -> None:
        """A broker, or this side, was not convinced."""
        self.tick(now)
        if renewal:
            self.failed_renewals += 1
        else:
            self.failed_authentications += 1
