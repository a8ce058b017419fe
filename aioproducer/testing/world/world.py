"""Network, cluster, brokers and clocks on virtual time, and the faults that change them.

Invariant: after `heal` nothing is disturbed any more, and nothing ever will be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from aioproducer.testing.broker import BrokerSpec, ClusterSettings
from aioproducer.testing.world.cluster import SimCluster
from aioproducer.testing.world.faults import Cast, Fault, Probe, revive, thaw
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.network import SimNetwork
from aioproducer.testing.world.server import SimBroker
from aioproducer.testing.world.spec import Chance, WorldSpec
from aioproducer.testing.world.trace import Trace

_EPOCH_MS = 1_700_000_000_000
_RECHECK_S = 0.005


class SimWorld:
    """A `WorldSpec` on a loop; the `World` that faults change.

    Attributes:
        disturbances: From when to when a fault could be felt.
        happened: How often each kind of fault was felt, once everything is healed.
        healed_at: When everything was healed; None before.
    """

    def __init__(self, chance: Chance, loop: VirtualLoop, spec: WorldSpec) -> None:
        self.chance: Chance = chance
        self.loop: VirtualLoop = loop
        self.spec: WorldSpec = spec
        self.trace: Trace = Trace(loop.time)
        self.network: SimNetwork = SimNetwork(
            loop,
            chance.of("network"),
            self.trace,
            window=spec.window,
            base_latency_s=spec.base_latency_s,
        )
        self._wakeup: asyncio.TimerHandle | None = None
        self.cluster: SimCluster = self._make_cluster()
        self.brokers: dict[int, SimBroker] = {
            node_id: self._make_broker(node_id) for node_id in spec.nodes
        }
        self.disturbances: list[tuple[float, float]] = []
        self.happened: Counter[str] = Counter()
        self.healed_at: float | None = None
        self._clock_offset_s = 0.0
        self._probes: list[tuple[str, Probe]] = []
        self._fault_timers: list[asyncio.TimerHandle] = []
        self._cast: Cast | None = None

    # -- World ------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual seconds."""
        return self.loop.time()

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something in some virtual seconds, unless everything was healed by then."""
        self._fault_timers.append(self.loop.call_later(seconds, action))

    def disturb(self, seconds: float) -> None:
        """Note that failures are to be expected for so long from now."""
        self.disturbances.append((self.loop.time(), self.loop.time() + seconds))

    def jump_clock(self, seconds: float) -> None:
        """Move the producer's wall clock."""
        self._clock_offset_s += seconds

    @property
    def cast(self) -> Cast:
        """The transactional producers."""
        if self._cast is None:
            raise LookupError("no producer is transactional in this run")
        return self._cast

    def enter(self, cast: Cast) -> None:
        """Set the producers that faults affect."""
        self._cast = cast

    # -- clocks -----------------------------------------------------------------------------------

    def broker_ms(self) -> int:
        """Return the brokers' clock."""
        return _EPOCH_MS + int(self.loop.time() * 1000)

    def wall_ms(self) -> int:
        """Return the producer's clock."""
        return self.broker_ms() + int(self._clock_offset_s * 1000)

    def _plan_wakeup(self, due_ms: int | None) -> None:
        """Let coordinators do at its time what no request makes them do."""
        if self._wakeup is not None:
            self._wakeup.cancel()
            self._wakeup = None
        if due_ms is not None:
            due = max((due_ms - _EPOCH_MS) / 1000, self.loop.time() + _RECHECK_S)
            self._wakeup = self.loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._wakeup = None
        self.cluster.advance(self.broker_ms())
        if self._wakeup is None:  # what is due cannot be done yet
            self._plan_wakeup(self.cluster.next_wakeup_ms)

    # -- faults -----------------------------------------------------------------------------------

    def expect(self, schedule: Sequence[Fault]) -> None:
        """Let every fault strike at its time."""
        for fault in schedule:
            self._fault_timers.append(self.loop.call_at(fault.at, self._strike, fault))

    def heal(self) -> None:
        """End every fault at once."""
        if self.healed_at is not None:
            return
        self.healed_at = self.loop.time()
        self.trace("healed")
        for timer in self._fault_timers:
            timer.cancel()
        for kind, probe in self._probes:
            self.happened[kind] += probe() > 0
        self.happened["fragmentation"] += self.network.weather.fragmented > 0
        self.network.weather.clear()
        self.cluster.heal()
        self.cluster.settings = self.spec.settings(self.cluster.settings)
        self._clock_offset_s = 0.0
        for node_id, broker in self.brokers.items():
            broker.distort.clear()
            broker.ambushes.clear()
            broker.held_back.clear()
            revive(self, node_id)
            thaw(self, node_id)

    def _strike(self, fault: Fault) -> None:
        self.trace(f"FAULT {fault}")
        self.disturb(fault.lasts_s)
        self._probes.append((fault.kind, fault.strike(self)))

    # -- making -----------------------------------------------------------------------------------

    def _make_cluster(self) -> SimCluster:
        settings = ClusterSettings(verify_records=True, auto_create_topics=False)
        cluster = SimCluster(
            [
                BrokerSpec(node_id, f"broker-{node_id}.sim", 9092, self.spec.rack_of(node_id))
                for node_id in self.spec.nodes
            ],
            settings=self.spec.settings(settings),
            rng=self.chance.of("cluster"),
            loop=self.loop,
            trace=self.trace,
            timing=self.spec.timing,
        )
        cluster.unclean_elections = self.spec.unclean_elections
        cluster.subscribe_wakeups(self._plan_wakeup)
        for name, spec in self.spec.topics.items():
            cluster.create_topic(name, spec)
        return cluster

    def _make_broker(self, node_id: int) -> SimBroker:
        rng = self.chance.of(f"broker {node_id}")
        broker = SimBroker(node_id, self.cluster, rng, self.trace, self.broker_ms)
        broker.security = self.spec.security
        self.network.listen(node_id, f"broker-{node_id}.sim", broker)
        return broker
