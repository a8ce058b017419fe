"""The simulated cluster on TCP: real sockets in front of `ClusterState`.

Invariants:
- One request per connection at a time, answered in order, as with a real broker; a long poll or a
  delayed response holds back those after it.
- A frame's size is checked before it is read.
- A stopped broker has no connection left, keeps its port, and comes back on it.
- `stop()` leaves no task, no socket.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from aioproducer._util import log
from aioproducer._util.hosts import host_and_port
from aioproducer.errors import IllegalStateError
from aioproducer.testing.broker import (
    BrokerSpec,
    ClusterSettings,
    ClusterState,
    TelemetrySubscription,
    TopicSpec,
)
from aioproducer.testing.embedded_server import BrokerServer, PartitionTracker
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.security import ListenerSecurity
from aioproducer.types import TopicPartition

_log = log.get("testing")

Topics = Mapping[str, int | TopicSpec]
"""Topics to create: a number of partitions or a full `TopicSpec` per name."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class EmbeddedCluster:
    """A Kafka cluster of several brokers in this process.

        async with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
            producer = Producer(bootstrap_servers=cluster.bootstrap_servers)

    Attributes:
        state: The cluster itself: topics, logs, leaders, faults. May be prepared before `start()`.
        security: What listeners ask of clients; users and tokens may change at any time.
    """

    def __init__(
        self,
        brokers: int = 3,
        host: str = "127.0.0.1",
        ports: Sequence[int] | None = None,
        topics: Topics | None = None,
        *,
        settings: ClusterSettings | None = None,
        racks: Sequence[str | None] | None = None,
        rng: random.Random | None = None,
        security: ListenerSecurity | None = None,
        clock_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        """Describe the cluster; nothing listens before `start()`.

        Args:
            brokers: How many; their ids are 1, 2, ...
            host: Where to listen, and the advertised host.
            ports: One per broker; 0 or left out for any free port.
            topics: What to create at once.
            settings: How the brokers behave.
            racks: One per broker.
            rng: Where topic ids come from.
            security: TLS and SASL of the listeners; plain text without authentication if left out.
            clock_ms: The brokers' clock, epoch milliseconds.
        """
        given = list(ports) if ports is not None else [0] * brokers
        if len(given) != brokers or (racks is not None and len(racks) != brokers):
            raise ValueError("ports and racks, when given, need one entry per broker")
        specs = [
            BrokerSpec(index + 1, host, port, racks[index] if racks else None)
            for index, port in enumerate(given)
        ]
        self.state: ClusterState = ClusterState(
            specs, settings=settings, rng=rng or random.Random()
        )
        self._clock_ms = clock_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tracker = PartitionTracker()
        self.state.subscribe(self._tracker.changed)
        self.state.subscribe_wakeups(self._set_timer)
        self.security: ListenerSecurity = security or ListenerSecurity()
        self._servers = {
            spec.node_id: BrokerServer(
                self.state, spec.node_id, self._tracker, clock_ms, self.security
            )
            for spec in specs
        }
        for name, wanted in (topics or {}).items():
            self.create_topic(name, wanted)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, up or down."""
        return ",".join(host_and_port(node.host, node.port) for node in self.state.brokers.values())

    @property
    def faults(self) -> FaultScript:
        """The faults, to be set as `faults.next("produce").answers(...)`."""
        return FaultScript(self.state.faults)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on all ports.

        Raises:
            OSError: A port is taken; nothing is left listening then.
        """
        self._loop = asyncio.get_running_loop()
        self._set_timer(self.state.next_wakeup_ms)
        try:
            for node_id, server in self._servers.items():
                spec = self.state.brokers[node_id]
                port = await server.start(spec.host, spec.port)
                self.state.set_broker_address(node_id, spec.host, port)
        except BaseException:
            await self.stop()
            raise
        _log.debug("embedded cluster listens on %s", self.bootstrap_servers)

    async def stop(self) -> None:
        """Close every connection and every port; may be called twice."""
        self._loop = None
        self._clear_timer()
        for server in self._servers.values():
            await server.stop()

    def set_transaction_version(self, level: int) -> None:
        """Upgrade or downgrade the cluster's `transaction.version`; clients notice it later."""
        self.state.set_transaction_version(level)

    def create_topic(self, name: str, topic: int | TopicSpec = 1) -> None:
        """Create a topic with a number of partitions, or as the `TopicSpec` says.

        Raises:
            RefusedError: As a broker would refuse it.
        """
        self.state.create_topic(name, TopicSpec(topic) if isinstance(topic, int) else topic)

    def move_leader(self, topic: str, partition: int, node_id: int | None = None) -> int:
        """Give a partition another leader; see `ClusterState.move_leader`."""
        return self.state.move_leader(topic, partition, node_id)

    def subscribe_telemetry(self, wanted: TelemetrySubscription | None = None) -> None:
        """Request metrics from clients, all of them by default (KIP-714).

        Clients that have connected without a subscription ask again after five minutes; their
        pushes are in `state.telemetry.received`.
        """
        self.state.telemetry.subscription = wanted or TelemetrySubscription()

    async def stop_broker(self, node_id: int) -> None:
        """Kill a broker: its connections are reset, its partitions move, its port refuses."""
        self.state.set_broker_down(node_id)
        await self._servers[node_id].stop(keep_port=True)

    async def start_broker(self, node_id: int, *, port: int | None = None) -> None:
        """Start a stopped broker, on its port unless another is given (0: any)."""
        if self.state.is_live(node_id):
            raise IllegalStateError(f"broker {node_id} is not stopped")
        spec = self.state.brokers[node_id]
        wanted = spec.port if port is None else port
        self.state.set_broker_address(
            node_id, spec.host, await self._servers[node_id].start(spec.host, wanted)
        )
        self.state.set_broker_up(node_id)

    def freeze_broker(self, node_id: int) -> None:
        """Freeze a broker, as SIGSTOP does: ports stay open, and no request is answered."""
        self._servers[node_id].freeze()

    def thaw_broker(self, node_id: int) -> None:
        """Continue a frozen broker, which answers the requests that arrived meanwhile."""
        self._servers[node_id].thaw()

    def drop_connections(self, node_id: int | None = None) -> None:
        """Reset the connections of one broker or all; ports stay open."""
        for server_id, server in self._servers.items():
            if node_id in {None, server_id}:
                server.drop_connections()

    def long_polls(self, topic: str, partition: int) -> int:
        """Return how many fetches wait for a partition to change."""
        return self._tracker.watchers(TopicPartition(topic, partition))

    def connection_count(self, node_id: int) -> int:
        """Return how many clients are connected to a broker."""
        return self._servers[node_id].connection_count

    def _set_timer(self, due_ms: int | None) -> None:
        self._clear_timer()
        if due_ms is not None and self._loop is not None:
            wait_s = max(0, due_ms - self._clock_ms()) / 1000
            self._timer = self._loop.call_later(wait_s, self._advance)

    def _clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _advance(self) -> None:
        self.state.advance(self._clock_ms())
        # Also when nothing changed: the loop's clock and the brokers' may differ a little.
        self._set_timer(self.state.next_wakeup_ms)


async def serve(
    brokers: int = 3,
    host: str = "127.0.0.1",
    base_port: int = 9092,
    topics: Topics | None = None,
    *,
    settings: ClusterSettings | None = None,
    on_ready: Callable[[EmbeddedCluster], None] | None = None,
) -> None:
    """Run a cluster until cancelled; prints nothing.

    Args:
        brokers: How many.
        host: Where to listen, and the advertised host.
        base_port: The first broker's port, the others' follow; 0 for any free ports.
        topics: What to create at once.
        settings: How the brokers behave.
        on_ready: Called with the cluster once all ports listen.

    Raises:
        OSError: A port is taken.
    """
    ports = [base_port + index if base_port else 0 for index in range(brokers)]
    async with EmbeddedCluster(brokers, host, ports, topics, settings=settings) as cluster:
        if on_ready is not None:
            on_ready(cluster)
        await asyncio.Event().wait()
