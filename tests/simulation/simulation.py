"""One run: a seed becomes a cluster, a network, a producer, tasks and faults, and then a verdict.

Owns: the order of events of a run. Not here: what faults do, what the guarantees are.

    start producer -> tasks send while faults strike -> heal -> tasks end -> probe -> flush -> close
                                        or: -> close amid the faults -> heal
    -> the network runs dry -> judge

Invariant: a run is a function of its seed and its schedule; nothing else enters, and nothing is
left in the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from aioproducer.errors import (
    BootstrapError,
    BufferFullError,
    KafkaError,
    ProducerClosedError,
    SaslAuthenticationFailedError,
)
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.world.faults import Fault
from aioproducer.testing.world.loop import BusyLoopError, StuckError, VirtualLoop
from aioproducer.testing.world.producer import SimProducer
from aioproducer.testing.world.spec import Chance
from aioproducer.testing.world.trace import Trace
from aioproducer.testing.world.world import SimWorld
from aioproducer.types import TopicPartition
from simulation.batches import LATE_S, LONGEST_SPAN_S
from simulation.calls import MoreCalls
from simulation.endings import Endings
from simulation.evidence import (
    Evidence,
    LogWatch,
    calm_times,
    leftovers,
    names_deleted,
    names_lost,
)
from simulation.faults import (
    draw_changes,
    draw_odd_answers,
    draw_refused_logins,
    draw_release_changes,
    draw_schedule,
)
from simulation.faults.answers import DuplicateAnswer
from simulation.faults.brokers import RefusedLogins
from simulation.hand_over import HandingProducer, HandingWorkload
from simulation.ledger import EARLY, Alarm, CallState, Entry, Ledger
from simulation.liveness import LivenessWatch, is_step_of_brokers, recovery_bound
from simulation.oracles import Violation, judge, recoveries
from simulation.releases import with_lowered_broker, with_two_releases
from simulation.scenario import (
    CHAOS_S,
    Scenario,
    draw_scenario,
    with_hand_over,
    with_large_batches,
    with_more_calls,
    with_more_options,
    with_node_0,
    with_plan,
    with_racks,
    with_sessions,
    without_producer_ids,
)
from simulation.themes import (
    LOST_ENDS,
    Theme,
    draw_theme,
    draw_transactional_theme,
    with_older_brokers,
)
from simulation.transactions.book import TransactionBook
from simulation.transactions.cast import Cast
from simulation.transactions.oracles import judge_transactions
from simulation.transactions.plan import Plan, draw_plan
from simulation.transactions.play import TransactionalPlay
from simulation.workload import Workload

_SETTLING_S = 10.0
"""How long after the healing the cluster has all its leaders and the producer its connections."""
_DRAINING_S = 30.0
_LONGEST_RUN_S = 600.0
_MOST_TURNS, _MOST_TURNS_PER_INSTANT = 400_000, 2000
"""Of the loop: a run takes up to 15,000, and 80,000 with days of pauses; an instant up to 300."""

_PROBES = 4
_SHARE_UNANSWERED, _SHARE_CANCELLED = 0.3, 0.15
"""Of the closes after all faults."""
_SHARE_DROPPED = 0.2
"""Of the others: the producer is dropped without a close."""
_FORBIDDEN_TOPIC, _LATER_TOPIC, _LATER_TIMES = "zz-early", "zz-later", 3
_MOST_LOST, _LOST_FOR_S = 8, 2.0
"""Requests for metadata that are lost while a producer starts, and records are sent already."""
_SHARE_OF_REFUSED_STARTS, _REFUSED_FOR_S = 0.6, (0.2, 2.0)
T = TypeVar("T")


@dataclass(slots=True)
class Result:
    """The result of a run.

    Attributes:
        schedule: The faults that struck.
        drawn: The faults of the seed, whether they struck or not.
        happened: How often each kind of fault was felt.
        records: How many records tasks wanted to send.
        virtual_s: How long the run took on its own clock.
        transactions: How many transactions were begun.
        recovery: Seconds from the healing to the last outcome of what was pending then, and the
            bound for it.
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
    transactions: int = 0
    recovery: tuple[float, float] = (0.0, 0.0)


@dataclass
class Setup:
    """Replacements for what the seed of a run determines.

    Attributes:
        schedule: The faults; None for the seed's own.
        producer: The producer under test.
        sabotage: Spoils the run before it starts; tests use it to see the oracles notice.
        options: Producer options in place of those drawn.
        unclean_elections: Whether committed records may be lost.
        theme: A subject of the run in place of the one drawn.
    """

    schedule: Sequence[Fault] | None = None
    producer: type[SimProducer] = SimProducer
    sabotage: Callable[[Simulation], None] = lambda simulation: None
    options: Mapping[str, Any] = field(default_factory=dict)
    unclean_elections: bool = False
    theme: Theme | None = None


def run_seed(seed: int, setup: Setup | None = None) -> Result:
    """Runs one seed from beginning to end."""
    setup = setup or Setup()
    chance = Chance(seed)
    loop = VirtualLoop(chance.of("executor"))
    watch = LogWatch(loop.time)
    logger = logging.getLogger("aioproducer")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(watch)
    # When garbage is collected must not depend on what this process did before.
    gc_was_on = gc.isenabled()
    gc.disable()
    gc.freeze()  # collections are for what the run makes: the rest would cost half its time
    asyncio.set_event_loop(loop)
    try:
        with _unraised_errors_noted(watch.reports):
            return Simulation(seed, chance, loop, setup).run(watch)
    finally:
        _end(loop)
        asyncio.set_event_loop(None)
        loop.close()
        logger.removeHandler(watch)
        logger.propagate = propagate
        gc.unfreeze()
        if gc_was_on:
            gc.enable()


@contextmanager
def _unraised_errors_noted(reports: list[str]) -> Iterator[None]:
    """Note exceptions in `__del__`, and coroutines that were never awaited."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda each: reports.append(f"{each.err_msg}: {each.exc_value!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = before


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


async def _collect_garbage() -> None:
    """Have failed batches reported that are garbage in a cycle, as with CPython 3.13."""
    gc.collect()
    await asyncio.sleep(0)  # what is collected with a failure is reported by the loop


class Simulation:
    """One run in the making."""

    def __init__(self, seed: int, chance: Chance, loop: VirtualLoop, setup: Setup) -> None:
        self.seed: int = seed
        self.chance: Chance = chance
        self.loop: VirtualLoop = loop
        drawn = draw_scenario(chance.of("scenario"), unclean_elections=setup.unclean_elections)
        drawn = with_node_0(drawn, chance.of("node 0"))
        plan = None if setup.unclean_elections else draw_plan(chance.of("transactions"))
        themes = chance.of("theme" if plan is None else "transactional theme")
        if plan is not None:
            newer = chance.of("newer transactional theme")
            theme = draw_transactional_theme(themes, plan, newer)
        elif setup.unclean_elections:
            theme = draw_theme(themes, None)
        else:
            theme = draw_theme(themes, chance.of("newer theme"))
            theme = with_older_brokers(theme, chance.of("older brokers"))
            drawn = with_more_calls(drawn, chance.of("more calls"))
            drawn = with_hand_over(drawn, chance.of("hand-over"))
        theme = setup.theme or theme
        if plan is None:
            drawn = with_more_options(drawn, chance.of("more options"))
            drawn = with_racks(drawn, chance.of("racks"))
            drawn = with_large_batches(drawn, chance.of("large batches"))
        if theme is not None:
            drawn = theme.applied_to(drawn)
        if plan is not None:
            drawn = with_plan(drawn, plan, chance.of("transactional scenario"))
        drawn = with_sessions(drawn, chance.of("sessions"))
        drawn = replace(drawn, options={**drawn.options, **setup.options})
        if setup.theme is None and not (setup.unclean_elections or (theme and theme.alone)):
            drawn = with_two_releases(drawn, chance.of("releases"))
            drawn = with_lowered_broker(drawn, chance.of("lowered broker"))
        if plan is None and not setup.unclean_elections:
            drawn = without_producer_ids(drawn, chance.of("producer ids"))
        self.scenario: Scenario = drawn
        loop.longest_turn_s = self.scenario.longest_turn_s
        loop.limit_turns(_MOST_TURNS, _MOST_TURNS_PER_INSTANT)
        self.world: SimWorld = SimWorld(chance, loop, self.scenario)
        self.trace: Trace = self.world.trace
        shape, times = self.scenario.shape, self.scenario.fault_times
        faults: list[Fault] = []
        if theme is None or not theme.alone:
            faults += draw_schedule(chance.of("faults"), shape, *times)
            if not setup.unclean_elections:
                faults += draw_odd_answers(chance.of("odd answers"), shape, *times)
                if self.scenario.heals_at == CHAOS_S:
                    faults += draw_changes(chance.of("changes"), shape, *times)
                if self.scenario.session_ms and plan is None:
                    faults += draw_refused_logins(chance.of("refused logins"), shape, *times)
        if theme is not None:
            faults += theme.schedule(themes, shape, *times)
        if self.scenario.releases is not None:
            changes = chance.of("release changes")
            faults += draw_release_changes(changes, shape, *times, self.scenario.releases)
        if setup.unclean_elections:
            faults += LOST_ENDS.schedule(themes, shape, *times)
        faults = [replace(fault, at=self.scenario.clock(fault.at)) for fault in faults]
        self.drawn: list[Fault] = sorted(faults, key=lambda fault: fault.at)
        self.schedule: list[Fault] = self.drawn if setup.schedule is None else list(setup.schedule)
        self.ledger: Ledger = Ledger()
        self._liveness = LivenessWatch(
            loop.time,
            self.world.cluster,
            takes_turns=not loop.longest_turn_s,
            only_brokers_ran=lambda: loop.only_bystanders_ran,
        )
        loop.is_bystander = is_step_of_brokers
        loop.on_idle = self._liveness.check
        self.book: TransactionBook | None = None
        self._setup = setup
        self._later: asyncio.Future[None] | None = None

    # -- the run ----------------------------------------------------------------------------------

    def run(self, watch: LogWatch) -> Result:
        """Carries the run out and judges it."""
        self._setup.sabotage(self)
        violations: list[Violation] = []
        recovery = (0.0, 0.0)
        try:
            evidence = self.loop.run_until_complete(self._play())
            evidence.reports += watch.reports + self.loop.failures
            evidence.restarts, evidence.expirations = watch.restarts, watch.expirations
            evidence.logged_unread = watch.unread
            violations = judge(evidence) + judge_transactions(evidence)
            recovery = _recovery(evidence)
        except BusyLoopError as error:
            violations = [Violation("no_task_turns_without_end", str(error))]
        except StuckError as error:
            violations = [Violation("the_run_goes_on", str(error))]
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{error!r} in {where.name} of {where.filename}"
            before = self.ledger.undocumented
            violations = [Violation("send_raises_what_it_documents", each) for each in before]
            violations.append(Violation("nothing_surprising_is_raised", text))
        return Result(
            self.seed,
            self.scenario,
            self.schedule,
            self.drawn,
            violations,
            self.world.happened,
            self.trace,
            records=len(self.ledger.entries),
            delivered=sum(entry.is_acknowledged for entry in self.ledger.entries),
            virtual_s=self.loop.time(),
            transactions=0 if self.book is None else len(self.book.transactions),
            recovery=recovery,
        )

    async def _play(self) -> Evidence:
        if self.scenario.transactions is not None:
            evidence = await self._play_transactions(self.scenario.transactions)
        else:
            self.world.expect(self.schedule)
            producer = await self._start_producer()
            async with self._to_the_end(lambda: producer.close(0)):
                tasks = self._start_tasks(producer)
                if self.scenario.closes_at is None:
                    await self._end_in_peace(producer, tasks)
                else:
                    await self._end_in_haste(producer, tasks, self.scenario.closes_at)
            evidence = self._evidence([producer])
        evidence.leftovers += leftovers(self.loop, self.world.network)
        await asyncio.sleep(_DRAINING_S)
        for entry in self.ledger.entries:
            entry.seal()
        await _collect_garbage()
        return evidence

    async def _play_transactions(self, plan: Plan) -> Evidence:
        cast = Cast(self, plan)
        self.book = cast.book
        self.world.enter(cast)
        self.world.expect(self.schedule)
        play = TransactionalPlay(self, cast)
        async with self._to_the_end(lambda: play.close(0)):
            await play.run()
        self.world.happened["overslept transaction"] = any(
            tx.overslept for tx in cast.book.transactions
        )
        evidence = self._evidence([actor.producer for actor in cast.actors])
        evidence.transactions = cast.book
        await _collect_garbage()
        return evidence

    @asynccontextmanager
    async def _to_the_end(self, close: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Bounds a run, and notes what ends it but should not."""
        try:
            async with asyncio.timeout_at(self.scenario.clock(_LONGEST_RUN_S)):
                yield
        except KafkaError as error:
            self.ledger.surprises.append(f"the end fails: {error!r}")
        except TimeoutError:
            self.ledger.late_ends.append(f"no end within {_LONGEST_RUN_S:.0f} s")
        finally:
            self.world.heal()
            await close()

    def make_producer(self, **arguments: Any) -> SimProducer:
        """One more producer under test; see `SimProducer`."""
        note_alarm = partial(self._note_alarm, arguments.get("purpose", "producer"))
        hooks = {"on_data_loss": note_alarm, "on_delivery_error": self._note_unread}
        arguments = {**hooks, **arguments}
        producer = self._setup.producer(self.world, **arguments)
        self._liveness.add(producer)
        return producer

    def _note_alarm(self, producer: str, where: TopicPartition) -> None:
        """The producer says that acknowledged records of a partition are lost."""
        self.trace(f"on_data_loss({where})")
        lost = names_lost(self.world.cluster, where)
        if not self.scenario.writes_by_id:
            lost |= names_deleted(self.world.cluster, where)
        self.ledger.alarms.append(Alarm(where, self.loop.time(), lost, producer))

    def _note_unread(self, where: TopicPartition, count: int, error: KafkaError) -> None:
        """The producer says that records have failed whose deliveries no task has read."""
        self.ledger.unread += count

    async def _start_producer(self) -> SimProducer:
        """A user tries again: `max_block_ms` may be too short, or brokers refuse logins."""
        while True:
            producer = self.make_producer()
            if self.scenario.starts_early:
                lost = self.chance.of("lost metadata").randint(1, _MOST_LOST)
                self.world.disturb(_LOST_FOR_S)
                faults = FaultScript(self.world.cluster.faults)
                faults.next("metadata", times=lost).drops_the_connection()
                if self.scenario.session_ms:
                    self._refuse_first_logins()
                await producer.start(wait=False)
                # The first record may come while the tasks sleep, and nothing else wakes them.
                await asyncio.sleep(self.chance.of("first early record").choice((0, 0.001)))
                await self._send_what_waits_longer(producer)
                return producer
            try:
                await producer.start()
            except (BootstrapError, SaslAuthenticationFailedError) as error:
                self.trace(f"start() raises {error!r}")
                is_true = self._logins_were_refused or isinstance(error, BootstrapError)
                if not is_true or self.loop.time() > CHAOS_S:
                    raise
            else:
                return producer

    @property
    def _logins_were_refused(self) -> bool:
        return any(broker.security.refusals for broker in self.world.brokers.values())

    def _refuse_first_logins(self) -> None:
        """In half of the runs every broker refuses logins at first: early records fail by it."""
        chance = self.chance.of("first logins")
        if chance.random() < _SHARE_OF_REFUSED_STARTS:
            seconds = chance.uniform(*_REFUSED_FOR_S)
            for node_id in self.world.brokers:
                RefusedLogins(0.0, node_id, seconds).strike(self.world)

    async def _send_what_waits_longer(self, producer: SimProducer) -> None:
        """Records without metadata yet, of a partition that is absent and a forbidden topic.

        And one of a topic that has no leader at first, while the others have metadata.
        """
        faults = FaultScript(self.world.cluster.faults)
        faults.every("metadata", topic=_FORBIDDEN_TOPIC).answers("TOPIC_AUTHORIZATION_FAILED")
        self.world.cluster.create_topic(_LATER_TOPIC, TopicSpec(1, 3))
        late_s = producer.config.metadata_max_idle_ms / 1000 + _LOST_FOR_S
        if 2 * late_s < producer.config.delivery_timeout_ms / 1000:
            # For so long that the topic would not be in use any more, but for this record.
            fault = faults.every("metadata", topic=_LATER_TOPIC).answers("LEADER_NOT_AVAILABLE")
            self.world.disturb(late_s)
            self.loop.call_later(late_s, faults.remove, fault)
        else:
            later = faults.next("metadata", topic=_LATER_TOPIC, times=_LATER_TIMES)
            later.answers("LEADER_NOT_AVAILABLE")
        topic, spec = min(self.scenario.topics.items())
        for mark, name, partition in (
            (EARLY, topic, spec.partitions),
            (EARLY, _FORBIDDEN_TOPIC, None),
            (b"<later/", _LATER_TOPIC, None),
        ):
            value = b"%s%s>" % (mark, name.encode())
            entry = Entry(value, -2, name, partition, None, value, (), None, self.loop.time())
            try:
                entry.delivery = await producer.send(name, value, partition=partition)
                entry.state = CallState.ACCEPTED
            except KafkaError as error:
                entry.state, entry.error = CallState.REFUSED, error
            entry.settled_at = self.loop.time()
            self.ledger.entries.append(entry)
        self._later = asyncio.ensure_future(self._send_after_early(producer))

    async def _send_after_early(self, producer: SimProducer) -> None:
        """Records after one whose topic has no metadata, when others have: they may not wait."""
        with suppress(ProducerClosedError):
            await producer.engine.metadata_task.waits.wait_for_bootstrap(None)
        self._send_later(producer, b"<later again>")
        await asyncio.sleep(LONGEST_SPAN_S + 2 * LATE_S)
        self._send_later(producer, b"<and again>")

    def _send_later(self, producer: SimProducer, value: bytes) -> None:
        """Send a value of a length that no serializer waits for, if there are such records yet."""
        early = producer.engine.appender.early
        if early is None or _LATER_TOPIC not in early.topics:
            return
        entry = Entry(value, -2, _LATER_TOPIC, None, None, value, (), None, self.loop.time())
        try:
            entry.delivery = producer.send_nowait(_LATER_TOPIC, value)
            entry.state = CallState.ACCEPTED
        except KafkaError as error:
            entry.state, entry.error = CallState.REFUSED, error
            if not isinstance(error, BufferFullError | ProducerClosedError):
                self.ledger.false_reports.append(f"{entry.label} after an early record: {error}")
        entry.settled_at = self.loop.time()
        self.ledger.entries.append(entry)

    def _start_tasks(self, producer: SimProducer) -> list[asyncio.Task[None]]:
        scenario = self.scenario
        kind = MoreCalls if scenario.more_calls else Workload
        sends_by: Any = producer
        if scenario.hands_over:
            kind, sends_by = HandingWorkload, HandingProducer(producer, self.ledger)
        work = kind(
            sends_by,
            scenario.shape,
            self.ledger,
            self.trace,
            self.world.wall_ms,
            purges=scenario.purges,
            parade=scenario.parade,
            clock=scenario.clock,
            large_records=scenario.large_records,
        )
        each = scenario.records // scenario.tasks + 1
        tasks = [
            asyncio.ensure_future(work.run(i, self.chance.of(f"task {i}"), each, CHAOS_S))
            for i in range(scenario.tasks)
        ]
        return (
            [*tasks, asyncio.ensure_future(sends_by.end(tasks))] if scenario.hands_over else tasks
        )

    async def _end_in_peace(
        self, producer: SimProducer, tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        heals_at = self.scenario.clock(self.scenario.heals_at)
        await asyncio.sleep(max(0.0, heals_at - self.loop.time()))
        self.world.heal()
        await asyncio.gather(*tasks)
        await asyncio.sleep(_SETTLING_S)
        aftermath = Endings(producer, self.world, self.ledger)
        await aftermath.before_probes()
        await self._probe(producer)
        left = await self._bounded("flush", producer.flush())
        if left:
            self.ledger.false_reports.append(f"flush() left {left} record(s)")
        pool = producer.engine.pool
        if not left and pool.available != pool.total:
            missing = pool.total - pool.available
            self.ledger.late_ends.append(f"flush() is over and {missing} bytes are still in use")
        await aftermath.after_probes()
        drawn = self.chance.of("last close").random()
        if drawn < _SHARE_UNANSWERED:
            await aftermath.close_unanswered(cancels=drawn < _SHARE_CANCELLED)
        else:
            aftermath.drops = self.chance.of("drop").random() < _SHARE_DROPPED
            await self._bounded("close", aftermath.close())

    async def _end_in_haste(
        self, producer: SimProducer, tasks: Sequence[asyncio.Task[None]], at: float
    ) -> None:
        await asyncio.sleep(max(0.0, self.scenario.clock(at) - self.loop.time()))
        timeout = self.scenario.close_timeout_s
        self.trace(f"close({timeout})")
        await self._bounded("close", producer.close(timeout), timeout + 1.0)
        self.trace("closed")
        await asyncio.gather(*tasks)
        self.world.heal()

    async def _probe(self, producer: SimProducer) -> None:
        """A healthy cluster takes a record for every partition."""
        topics = self.scenario.shape.topics
        if self.scenario.parade:
            topics = dict.fromkeys(self.world.cluster.topics, 1)
        wanted = [(topic, i) for topic, count in sorted(topics.items()) for i in range(count)]
        errors: dict[tuple[str, int], KafkaError] = {}
        for attempt in range(_PROBES):
            outcomes = [await self._probe_partition(producer, *at, attempt) for at in wanted]
            errors = {at: error for at, error in zip(wanted, outcomes, strict=True) if error}
            wanted = list(errors)
            if not wanted:
                return
            await asyncio.sleep(1.0)
        self.ledger.unrecovered.append(f"no recovery: {errors}")

    async def _probe_partition(
        self, producer: SimProducer, topic: str, partition: int, attempt: int
    ) -> KafkaError | None:
        name = b"<probe/%s-%d/%d>" % (topic.encode(), partition, attempt)
        entry = Entry(name, -2, topic, partition, None, name, (), None, self.loop.time())
        self.ledger.entries.append(entry)
        try:
            entry.delivery = await producer.send(topic, name, partition=partition)
        except KafkaError as error:
            entry.state, entry.error = CallState.REFUSED, error
            return error
        finally:
            entry.settled_at = self.loop.time()
        entry.state = CallState.ACCEPTED
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
        self.ledger.calls.append((what, began, self.loop.time()))
        took = self.loop.time() - began
        if took > seconds:
            self.ledger.late_ends.append(f"{what} took {took:.3f} s, allowed are {seconds:.3f}")
        return result

    # -- evidence ---------------------------------------------------------------------------------

    def _evidence(self, producers: Sequence[SimProducer]) -> Evidence:
        world, config = self.world, producers[0].config
        if not self.scenario.gives_producer_ids:
            config = config.replace(enable_idempotence=False)
        engines = [each.engine for each in producers if each.was_started]
        transports = [(str(each), each.transport) for each in world.network.connections]
        complaints = [text for broker in world.brokers.values() for text in broker.complaints]
        complaints += [
            f"{name}: memory changed before it had left"
            for name, transport in transports
            if transport is not None and transport.memory_changed
        ]
        return Evidence(
            config,
            self.ledger,
            world.cluster,
            [engine.stats for engine in engines],
            writes_by_id=self.scenario.writes_by_id,
            may_lose=self.scenario.unclean_elections or config.acks_value == 1,
            memory_missing=sum(
                each.memory_left + each.pool.total - each.pool.available for each in engines
            ),
            places_missing=sum(map(_places_missing, engines)),
            calm=calm_times(world.disturbances, world.healed_at or 0.0, self.loop.time()),
            idle=self.scenario.idle_times(config.delivery_timeout_ms / 1000),
            opened=[each.opened_at for each in world.network.connections],
            early_speakers=[
                name
                for name, transport in transports
                if transport is not None and transport.spoke_too_early
            ],
            complaints=complaints,
            healed_at=world.healed_at,
            recovery_bound=recovery_bound(config, self.scenario),
            stalls=self._liveness.violations,
            refusals=world.network.refusals,
            described=() if self.scenario.parade else world.trace.times_of(" metadata #"),
            failures=[each.failure for each in engines if each.failure is not None],
            scripted_codes=frozenset().union(*(b.scripted_codes for b in world.brokers.values())),
            leaves_out_offsets=world.happened[DuplicateAnswer.kind] > 0,
            logins_were_refused=self._logins_were_refused,
        )


def _recovery(evidence: Evidence) -> tuple[float, float]:
    longest = max((took for took, _ in recoveries(evidence)), default=0.0)
    bound = evidence.recovery_bound
    return max(longest, 0.0), 0.0 if bound is None else bound.seconds


def _places_missing(engine: ProducerEngine) -> int:
    """Records that still count for `buffer_max_records`."""
    most = engine.config.buffer_max_records
    if most is None:
        return 0
    return most - (engine.pool.ceiling - engine.appender.fast_path.appended)
