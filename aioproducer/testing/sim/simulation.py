"""One run: a seed becomes a cluster, a network, a producer, tasks and faults, and then a verdict.

Owns: the order of events of a run and the collection of evidence. Must not know: what faults do,
what the guarantees are.

    start producer -> tasks send while faults strike -> heal -> tasks end -> probe -> flush -> close
                                        or: -> close amid the faults -> heal
    -> the network runs dry -> judge

Invariant: a run is a function of its seed and its schedule; nothing else enters, and nothing is
left behind in the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from aioproducer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import BootstrapError, KafkaError
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.testing.broker import BrokerSpec, ClusterSettings
from aioproducer.testing.sim.cluster import SimCluster
from aioproducer.testing.sim.faults import Fault, Probe, draw_schedule, revive, thaw
from aioproducer.testing.sim.ledger import Entry, Fate, Ledger
from aioproducer.testing.sim.loop import StuckError, VirtualLoop
from aioproducer.testing.sim.network import SimNetwork
from aioproducer.testing.sim.oracles import Evidence, Violation, judge
from aioproducer.testing.sim.scenario import CHAOS_S, Chance, Scenario, draw_scenario
from aioproducer.testing.sim.server import SimBroker
from aioproducer.testing.sim.trace import Trace
from aioproducer.testing.sim.workload import Workload

_EPOCH_MS = 1_700_000_000_000
_SETTLING_S = 10.0
"""How long after the healing the cluster has all its leaders and the producer its connections."""
_DRAINING_S = 30.0
_LONGEST_RUN_S = 600.0

_PROBES = 4

T = TypeVar("T")


class SimProducer(Producer):
    """The production producer, given the run's network, chance and clock."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(ProducerConfig(**simulation.scenario.options))
        self._simulation = simulation

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        simulation = self._simulation
        return ProducerEngine(
            self._config,
            loop,
            dialer=simulation.network,
            rng=simulation.chance.of("producer"),
            wall_ms=simulation.wall_ms,
        )

    @property
    def engine(self) -> ProducerEngine:
        """The machinery, for looking at."""
        if self._engine is None:
            raise RuntimeError("the producer was not started")
        return self._engine


@dataclass(slots=True)
class Result:
    """What came out of a run.

    Attributes:
        schedule: The faults that struck.
        drawn: The faults of the seed, whether they struck or not.
        happened: How often each kind of fault was felt.
        records: How many records somebody wanted to send.
        virtual_s: How long the run took on its own clock.
    """

    seed: int
    scenario: Scenario
    schedule: Sequence[Fault]
    drawn: Sequence[Fault]
    violations: list[Violation]
    happened: Counter[str]
    trace: Trace
    records: int = 0
    delivered: int = 0
    virtual_s: float = 0.0


@dataclass
class Setup:
    """What a run may be given in place of what its seed says.

    Attributes:
        schedule: The faults; None for the seed's own.
        producer: The producer under test.
        sabotage: Spoils the run before it starts; tests use it to see the oracles notice.
        options: Producer options in place of those drawn.
        unclean_elections: Whether committed records may be lost.
    """

    schedule: Sequence[Fault] | None = None
    producer: type[SimProducer] = SimProducer
    sabotage: Callable[[Simulation], None] = lambda simulation: None
    options: Mapping[str, Any] = field(default_factory=dict)
    unclean_elections: bool = False


@dataclass
class _LogWatch(logging.Handler):
    """Collects exceptions that the package logs."""

    reports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.ERROR)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what carries an exception."""
        if record.exc_info and record.exc_info[1] is not None:
            self.reports.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def run_seed(seed: int, setup: Setup | None = None) -> Result:
    """Runs one seed from beginning to end."""
    setup = setup or Setup()
    chance = Chance(seed)
    loop = VirtualLoop(chance.of("executor"))
    watch = _LogWatch()
    logger = logging.getLogger("aioproducer")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(watch)
    # When garbage is collected must not depend on what this process did before.
    gc_was_on = gc.isenabled()
    gc.disable()
    asyncio.set_event_loop(loop)
    try:
        return Simulation(seed, chance, loop, setup).run(watch.reports)
    finally:
        _end(loop)
        asyncio.set_event_loop(None)
        loop.close()
        logger.removeHandler(watch)
        logger.propagate = propagate
        if gc_was_on:
            gc.enable()


def _end(loop: VirtualLoop) -> None:
    """Ends what a run that broke off has left, so that nothing of it reaches the next one."""
    left = asyncio.all_tasks(loop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for task in left:
            task.cancel()
        if left:
            with suppress(StuckError):
                loop.run_until_complete(asyncio.wait(left, timeout=_DRAINING_S))
        gc.collect()


class Simulation:
    """One run in the making; the `World` that faults change."""

    def __init__(self, seed: int, chance: Chance, loop: VirtualLoop, setup: Setup) -> None:
        self.seed = seed
        self.chance = chance
        self.loop = loop
        drawn = draw_scenario(chance.of("scenario"), unclean_elections=setup.unclean_elections)
        self.scenario: Scenario = replace(drawn, options={**drawn.options, **setup.options})
        self.trace: Trace = Trace(loop.time)
        self.network: SimNetwork = SimNetwork(
            loop,
            chance.of("network"),
            self.trace,
            window=self.scenario.window,
            base_latency_s=self.scenario.base_latency_s,
        )
        self.cluster: SimCluster = self._make_cluster()
        self.brokers: dict[int, SimBroker] = {
            node_id: self._make_broker(node_id) for node_id in self.scenario.nodes
        }
        start, end = self.scenario.fault_times
        self.drawn: list[Fault] = draw_schedule(
            chance.of("faults"), self.scenario.shape, start, end
        )
        self.schedule: list[Fault] = self.drawn if setup.schedule is None else list(setup.schedule)
        self.ledger: Ledger = Ledger()
        self.probes: list[tuple[str, Probe]] = []
        self.disturbances: list[tuple[float, float]] = []
        self.happened: Counter[str] = Counter()
        self._clock_offset_s = 0.0
        self._healed = False
        self._healed_at = 0.0
        self._fault_timers: list[asyncio.TimerHandle] = []
        self._setup = setup

    # -- World ------------------------------------------------------------------------------------

    def now(self) -> float:
        """Virtual seconds."""
        return self.loop.time()

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Does something in some virtual seconds, unless everything was healed by then."""
        self._fault_timers.append(self.loop.call_later(seconds, action))

    def disturb(self, seconds: float) -> None:
        """Notes that for so long from now nobody can expect everything to work."""
        self.disturbances.append((self.loop.time(), self.loop.time() + seconds))

    def jump_clock(self, seconds: float) -> None:
        """Moves the producer's wall clock."""
        self._clock_offset_s += seconds

    # -- clocks -----------------------------------------------------------------------------------

    def broker_ms(self) -> int:
        """The brokers' clock."""
        return _EPOCH_MS + int(self.loop.time() * 1000)

    def wall_ms(self) -> int:
        """The producer's clock."""
        return self.broker_ms() + int(self._clock_offset_s * 1000)

    # -- the run ----------------------------------------------------------------------------------

    def run(self, reports: list[str]) -> Result:
        """Carries the run out and judges it."""
        self._setup.sabotage(self)
        violations: list[Violation] = []
        try:
            evidence = self.loop.run_until_complete(self._play())
            evidence.reports += reports + self.loop.failures
            violations = judge(evidence)
        except StuckError as error:
            violations = [Violation("the_run_goes_on", str(error))]
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{error!r} in {where.name} of {where.filename}"
            violations = [Violation("nothing_surprising_is_raised", text)]
        return Result(
            self.seed,
            self.scenario,
            self.schedule,
            self.drawn,
            violations,
            self.happened,
            self.trace,
            records=len(self.ledger.entries),
            delivered=sum(entry.is_acknowledged for entry in self.ledger.entries),
            virtual_s=self.loop.time(),
        )

    async def _play(self) -> Evidence:
        for fault in self.schedule:
            self._fault_timers.append(self.loop.call_at(fault.at, self._strike, fault))
        producer = await self._start_producer()
        try:
            async with asyncio.timeout_at(_LONGEST_RUN_S):
                tasks = self._start_tasks(producer)
                if self.scenario.closes_at is None:
                    await self._end_in_peace(producer, tasks)
                else:
                    await self._end_in_haste(producer, tasks, self.scenario.closes_at)
        except KafkaError as error:
            self.ledger.surprises.append(f"the end fails: {error!r}")
        except TimeoutError:
            self.ledger.surprises.append(f"no end within {_LONGEST_RUN_S:.0f} s")
        finally:
            self.heal()
            await producer.close(0)
        evidence = self._evidence(producer)
        evidence.leftovers += self._leftovers()
        await asyncio.sleep(_DRAINING_S)
        for entry in self.ledger.entries:
            entry.seal()
        gc.collect()
        return evidence

    async def _start_producer(self) -> SimProducer:
        """A user tries again: with a short `max_block_ms` a slow network can be too slow."""
        while True:
            producer = self._setup.producer(self)
            try:
                await producer.start()
            except BootstrapError as error:
                self.trace(f"start() raises {error!r}")
                if self.loop.time() > CHAOS_S:
                    raise
            else:
                return producer

    def _start_tasks(self, producer: SimProducer) -> list[asyncio.Task[None]]:
        scenario = self.scenario
        work = Workload(producer, scenario.shape, self.ledger, self.trace, self.wall_ms)
        each = scenario.records // scenario.tasks + 1
        return [
            asyncio.ensure_future(work.run(i, self.chance.of(f"task {i}"), each, CHAOS_S))
            for i in range(scenario.tasks)
        ]

    async def _end_in_peace(
        self, producer: SimProducer, tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        await asyncio.sleep(max(0.0, CHAOS_S - self.loop.time()))
        self.heal()
        await asyncio.gather(*tasks)
        await asyncio.sleep(_SETTLING_S)
        await self._probe(producer)
        left = await self._bounded("flush", producer.flush())
        if left:
            self.ledger.surprises.append(f"flush() left {left} record(s)")
        await self._bounded("close", producer.close())

    async def _end_in_haste(
        self, producer: SimProducer, tasks: Sequence[asyncio.Task[None]], at: float
    ) -> None:
        await asyncio.sleep(max(0.0, at - self.loop.time()))
        timeout = self.scenario.close_timeout_s
        self.trace(f"close({timeout})")
        await self._bounded("close", producer.close(timeout), timeout + 1.0)
        self.trace("closed")
        await asyncio.gather(*tasks)
        self.heal()

    async def _probe(self, producer: SimProducer) -> None:
        """A healthy cluster takes a record for every partition."""
        shape = self.scenario.shape
        wanted = [(topic, i) for topic, count in sorted(shape.topics.items()) for i in range(count)]
        errors: dict[tuple[str, int], KafkaError] = {}
        for attempt in range(_PROBES):
            outcomes = [await self._probe_partition(producer, *at, attempt) for at in wanted]
            errors = {at: error for at, error in zip(wanted, outcomes, strict=True) if error}
            wanted = list(errors)
            if not wanted:
                return
            await asyncio.sleep(1.0)
        self.ledger.surprises.append(f"no recovery: {errors}")

    async def _probe_partition(
        self, producer: SimProducer, topic: str, partition: int, attempt: int
    ) -> KafkaError | None:
        name = b"<probe/%s-%d/%d>" % (topic.encode(), partition, attempt)
        entry = Entry(name, -2, topic, partition, None, name, (), None, self.loop.time())
        self.ledger.entries.append(entry)
        try:
            entry.delivery = await producer.send(topic, name, partition=partition)
        except KafkaError as error:
            entry.fate = Fate.REFUSED
            return error
        finally:
            entry.settled_at = self.loop.time()
        entry.fate = Fate.ACCEPTED
        try:
            await entry.delivery
        except KafkaError as error:
            return error
        return None

    async def _bounded(self, what: str, work: Awaitable[T], seconds: float | None = None) -> T:
        """Awaits what has to end within `seconds`, by default the delivery timeout."""
        if seconds is None:
            seconds = self.scenario.options["delivery_timeout_ms"] / 1000 + 1.0
        began = self.loop.time()
        result = await work
        took = self.loop.time() - began
        if took > seconds:
            self.ledger.surprises.append(f"{what} took {took:.3f} s, allowed are {seconds:.3f}")
        return result

    # -- faults -----------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.trace(f"FAULT {fault}")
        self.disturb(fault.lasts_s)
        self.probes.append((fault.kind, fault.strike(self)))

    def heal(self) -> None:
        """Ends every fault at once."""
        if self._healed:
            return
        self._healed = True
        self._healed_at = self.loop.time()
        self.trace("healed")
        for timer in self._fault_timers:
            timer.cancel()
        for kind, probe in self.probes:
            self.happened[kind] += probe() > 0
        self.happened["fragmentation"] += self.network.weather.fragmented > 0
        self.network.weather.clear()
        self.cluster.heal()
        self._clock_offset_s = 0.0
        for node_id, broker in self.brokers.items():
            broker.dies_at = None
            revive(self, node_id)
            thaw(self, node_id)

    # -- making -----------------------------------------------------------------------------------

    def _make_cluster(self) -> SimCluster:
        scenario = self.scenario
        cluster = SimCluster(
            [BrokerSpec(node_id, f"broker-{node_id}.sim", 9092) for node_id in scenario.nodes],
            settings=ClusterSettings(verify_records=True, auto_create_topics=False),
            rng=self.chance.of("cluster"),
            loop=self.loop,
            trace=self.trace,
            timing=scenario.timing,
        )
        cluster.unclean_elections = scenario.unclean_elections
        for name, spec in scenario.topics.items():
            cluster.create_topic(name, spec)
        return cluster

    def _make_broker(self, node_id: int) -> SimBroker:
        rng = self.chance.of(f"broker {node_id}")
        broker = SimBroker(node_id, self.cluster, rng, self.trace, self.broker_ms)
        self.network.listen(node_id, f"broker-{node_id}.sim", broker)
        return broker

    # -- evidence ---------------------------------------------------------------------------------

    def _evidence(self, producer: SimProducer) -> Evidence:
        engine = producer.engine
        pool = engine.pool
        return Evidence(
            producer.config,
            self.ledger,
            self.cluster,
            engine.stats,
            may_lose=self.scenario.unclean_elections or producer.config.acks_value == 1,
            memory_missing=pool.total - pool.available,
            calm=_calm(self.disturbances, self._healed_at, self.loop.time()),
            early_speakers=[
                str(connection)
                for connection in self.network.connections
                if connection.transport is not None and connection.transport.spoke_too_early
            ],
            complaints=[text for broker in self.brokers.values() for text in broker.complaints],
        )

    def _leftovers(self) -> list[str]:
        """What the producer has on the loop; everything else there is known by its module."""
        current = asyncio.current_task()
        left = [f"task {task.get_name()}" for task in asyncio.all_tasks() if task is not current]
        for connection in self.network.connections:
            transport = connection.transport
            if transport is not None and not transport.is_lost:
                left.append(f"connection {connection}")
        for timer in self.loop.pending_timers():
            owner = _owner(timer)
            if owner is not None and not owner.startswith("aioproducer.testing."):
                left.append(f"timer of {owner} in {timer.when() - self.loop.time():.3f} s")
        return sorted(left)


def _calm(
    disturbances: Sequence[tuple[float, float]], healed_at: float, ended_at: float
) -> list[tuple[float, float]]:
    """The times between the disturbances, and after the healing."""
    calm, quiet_since = [], 0.0
    for start, end in sorted(disturbances):
        if start > quiet_since:
            calm.append((quiet_since, start))
        quiet_since = max(quiet_since, min(end, healed_at))
    return [*calm, (quiet_since, ended_at)]


def _owner(timer: asyncio.TimerHandle) -> str | None:
    """The module a timer belongs to."""
    callback = timer._callback  # type: ignore[attr-defined]
    target = getattr(callback, "__self__", None)
    if target is not None and not isinstance(target, asyncio.Future):
        return type(target).__module__
    return getattr(callback, "__module__", None)
