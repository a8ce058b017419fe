"""The rule of `core.driver`, checked at every idle moment, and how soon a healed cluster is done.

Owns: the check of a running producer whenever the clock is about to move, and the bound within
which a healed cluster has taken everything. Not here: which faults struck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from support.liveness_rule import broken_rules

from aioproducer.core.driver import Turns
from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.core.transactions.requests import CoordinatorKey, CoordinatorKind
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.sequencer import TransactionalSequencer
from aioproducer.errors import BrokerError, NodeDisconnectedError, error_for_code
from aioproducer.testing.world.cluster import SimCluster
from aioproducer.testing.world.pipe import Pipe
from aioproducer.testing.world.server import Session
from aioproducer.testing.world.weather import Direction
from aioproducer.testing.world.world import SimWorld
from aioproducer.wire.api_keys import ApiKey
from simulation.batches import (
    LATE_S,
    LONGEST_SPAN_S,
    Acknowledgements,
    Choices,
    Doubts,
    EarlyAges,
    Failures,
    Gaps,
    RefusedIds,
    derived_state_differs,
)
from simulation.consistency import (
    RequestCounts,
    bulk_calls_are_paced,
    early_although_decided,
    inconsistent,
)
from simulation.leaders import Leaders
from simulation.links import dialed_too_long, not_asked, not_dialed
from simulation.other_clusters import EpochsWithoutIds, leaders_of_another_cluster
from simulation.queues import (
    ends_with_batches_out,
    keeps_ended_waits,
    serialized_records_wait,
)
from simulation.releases import serves
from simulation.reports import TopicTotals, reports_differ
from simulation.transactions.waiting import broken_in_transactions
from simulation.waiting import (
    LONGEST_THROTTLE_S,
    STEPS,
    ExtraTurns,
    Numbers,
    Steps,
    asked_in_vain,
    asks_before_the_pause_ends,
    broken_while_waiting,
    buffers_with_two_owners,
    gathers_although_waiting,
    keeps_refused_brokers,
    lingers_although_awaited,
    links_are_old,
    more_records_than_allowed,
    numbers_on_wire,
    waits_although_closed,
    waits_although_decided,
)
from simulation.workload import LARGEST_BURST

if TYPE_CHECKING:
    from uuid import UUID

    from aioproducer.config import ProducerConfig
    from aioproducer.core.metadata.live_topic import LiveTopic
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.testing.world.producer import SimProducer
    from simulation.scenario import Scenario

_MOST_REPORTED = 3
_FIRST_WITH_TOPIC_IDS = 10
"""Of Metadata."""
_LONG_JUMP_S = 0.25
_CHECKED_EACH = 10
_JITTER = 1.2
_ROUND_TRIPS = 50
"""Of a backlog: small batches, one after the other, memory for two."""
_ROUND_TRIPS_EACH = 4
"""What a record takes that others wait for: a connection, its handshake and the request."""
_LONGEST_PAUSE_S = 5.0
"""Between two lookups of a coordinator."""
_LONGEST_DIAL_S = 8.0
"""And the pause before it."""
_LONG_BACKOFF_MS = 100
"""Longer than all turns of a loop at one instant."""
_MOST_ATTEMPTS, _ATTEMPTS_PER_S = 20, 12
"""Of a batch: the first pauses are short, and a new leader with each attempt shortens them."""


_Rule = Callable[["ProducerEngine", float], Iterator[str]]
"""Yields what is broken at an idle moment."""


class _Leadership(NamedTuple):
    """A partition, of one of the topics that have had the name."""

    topic: str
    topic_id: UUID
    partition: int


class LivenessWatch:
    """Checks producers whenever their loop has nothing to do but to wait.

    Attributes:
        violations: What broke the rule, the first few.
    """

    def __init__(
        self,
        now: Callable[[], float],
        cluster: SimCluster,
        *,
        takes_turns: bool = False,
        only_brokers_ran: Callable[[], bool] = lambda: False,
    ) -> None:
        self.violations: list[str] = []
        self._now = now
        self._cluster = cluster
        self._producers: list[SimProducer] = []
        self._epochs: dict[SimProducer, dict[_Leadership, tuple[int, LiveTopic | None]]] = {}
        self._numbers: dict[SimProducer, dict[tuple[tuple[int, ...], int], Numbers]] = {}
        self._steps: dict[SimProducer, Sequence[Steps]] = {}
        self._requests: dict[SimProducer, RequestCounts] = {}
        self._leaders = Leaders()
        self._epochs_without_ids: dict[SimProducer, EpochsWithoutIds] = {}
        self._failed: dict[SimProducer, tuple[int, int]] = {}
        self._jumps = 0
        self._has_changed = True
        self._takes_turns = takes_turns
        self._only_brokers_ran = only_brokers_ran
        self._extra_turns: list[ExtraTurns] = []

    def add(self, producer: SimProducer) -> None:
        """One more producer to check."""
        self._producers.append(producer)
        self._steps[producer] = [each() for each in _STEPS]
        self._requests[producer] = RequestCounts()
        self._epochs_without_ids[producer] = EpochsWithoutIds()

    def check(self, jump_s: float) -> None:
        """The clock is about to move: everything pending must have something that ends its wait.

        What is stranded stays so: it is found at the next long jump, or one of some short ones.
        While only brokers run, no producer changes: at short jumps only time can break a rule.
        """
        self._has_changed |= not self._only_brokers_ran()
        if self._extra_turns:
            broken = [text for each in self._extra_turns for text in each.broken()]
            self.violations += [f"at {self._now():.3f}: {text}" for text in broken]
            self._extra_turns = []
            return
        self._jumps += 1
        is_long = jump_s >= _LONG_JUMP_S or self._jumps % _CHECKED_EACH == 0
        now, is_due = self._now(), is_long or self._has_changed
        for producer in self._producers:
            if producer.was_started:
                broken = (
                    self._broken_by(producer, now, is_long)
                    if is_due
                    else _broken_by_time(producer.engine, now)
                )
                if broken and len(self.violations) < _MOST_REPORTED:
                    self.violations += [f"at {now:.3f}: {text}" for text in broken]
        self._has_changed &= not is_due

    def _broken_by(self, producer: SimProducer, now: float, is_long: bool) -> list[str]:
        engine = producer.engine
        broken = list(self._asked_again_at_once(producer))
        for rule in _WHILE_STARTED:
            broken += rule(engine, now)
        if not _is_running(engine):
            return broken
        for each in self._steps[producer]:
            broken += each.check(engine, now)
        for rule in _AT_EACH_MOMENT:
            broken += rule(engine, now)
        broken += self._epochs_without_ids[producer].check(engine, self._cluster)
        if is_long:
            for rule in _NOW_AND_THEN:
                broken += rule(engine, now)
            broken += self._requests[producer].check(engine, now)
            broken += self._older_leaders(producer)
            broken += leaders_of_another_cluster(engine, self._cluster)
            broken += self._leaders.check(engine, self._cluster)
            broken += self._renumbered(producer)
            broken += self._acknowledged_by_a_deleted_log(producer)
            if self._takes_turns and ExtraTurns.may_begin(engine):
                self._extra_turns.append(ExtraTurns(engine))
        return broken

    def _asked_again_at_once(self, producer: SimProducer) -> Iterator[str]:
        """A request for metadata or a producer id at once after one that has just failed."""
        metadata, identity = producer.engine.metadata, producer.engine.driver.sender.producer_id
        before = self._failed.get(producer, (0, 0))
        self._failed[producer] = failed = metadata._failures, identity.failures
        if failed == before or producer.config.retry_backoff_ms < _LONG_BACKOFF_MS:
            return
        for what, then, count, at in zip(
            ("metadata", "a producer id"),
            before,
            failed,
            (metadata._allowed_at, identity._retry_at),
            strict=True,
        ):
            if count > then and at <= self._now():
                yield f"{what} may be asked for at once after a failure"

    def _older_leaders(self, producer: SimProducer) -> Iterator[str]:
        """Leader epochs that go back while a topic in use keeps its id, maybe missing for a while.

        Nor does it lose partitions.

        A topic that expires and is used again begins with any epoch. An epoch that the topic has
        not reached is that of a deleted one, as one from a response by name may be.
        """
        metadata = producer.engine.metadata
        in_use, topics = metadata._topics, metadata.cluster.topics.values()
        hinted = {name for name, live in in_use.items() if live.before_hint}
        now = {
            _Leadership(topic.name, topic.topic_id, each.partition): (
                each.leader_epoch,
                in_use.get(topic.name),
            )
            for topic in topics
            for each in topic.partitions
            if topic.topic_id != ZERO_ID and topic.name not in hinted
        }
        before = {
            where: (epoch, live)
            for where, (epoch, live) in self._epochs.get(producer, {}).items()
            if live is in_use.get(where.topic)
        }
        self._epochs[producer] = before | now
        for where, (epoch, live) in before.items():
            epoch_now, _ = now.get(where, (epoch, live))
            topic = metadata.cluster.topics.get(where.topic)
            is_there = topic is not None and topic.topic_id == where.topic_id
            if topic is not None and is_there and where.partition >= len(topic.partitions):
                yield f"metadata have lost {where}, and have its topic"
            partition = self._cluster.partition(where.topic, where.partition)
            if epoch_now < epoch and (partition is None or epoch <= partition.leader_epoch):
                yield f"epoch {epoch} of {where} is {epoch_now} again"

    def _acknowledged_by_a_deleted_log(self, producer: SimProducer) -> Iterator[str]:
        """Partitions of a transaction that may get several batches, and have none of the producer.

        A log without its state would accept the second one after the first was refused. Not where
        a leader has lost that state, or where metadata may have had no id of the deleted topic: no
        client can notice that before.
        """
        engine, versions = producer.engine, self._cluster.settings.api_versions
        sequencer, metadata = engine.accumulator.sequencer, engine.metadata
        has_ids = serves(versions, ApiKey.METADATA, _FIRST_WITH_TOPIC_IDS)
        if not (isinstance(sequencer, TransactionalSequencer) and has_ids):
            return
        for where, partition in sequencer._partitions.items():
            identity = partition.identity
            if partition.newest or partition.log_is_new or not partition.was_acknowledged:
                continue
            if where in self._cluster.producers_lost_at:
                continue
            topic, described = self._cluster.topics.get(where.topic), metadata.topic(where.topic)
            if topic is None or described is None or topic.topic_id != described.topic_id:
                continue
            found = topic.partition(where.partition)
            if found is None or identity is None:
                continue
            if found.producers.epoch_of(identity.producer_id) is None:
                yield f"{where} has acknowledged nothing to {identity}"

    def _renumbered(self, producer: SimProducer) -> Iterator[str]:
        """Batches whose sequences change while a request with them has no response."""
        before = self._numbers.get(producer, {})
        now = self._numbers[producer] = numbers_on_wire(producer.engine)
        for key, numbers in now.items():
            if before.get(key, numbers) != numbers:
                yield f"{before[key]} on the wire became {numbers}"


def _is_running(engine: ProducerEngine) -> bool:
    return engine.failure is None and not engine.closing


def _broken_by_time(engine: ProducerEngine, now: float) -> list[str]:
    """Return which rules for each idle moment are broken of those that time alone can break."""
    return [text for rule in _OF_TIME for text in rule(engine, now)] if _is_running(engine) else []


def is_step_of_brokers(callback: Any) -> bool:
    """Return whether a callback changes no producer: a step of a broker, or bytes reach one."""
    step = getattr(callback, "__func__", None)
    if step is Pipe._pump:
        return callback.__self__._direction is Direction.TO_BROKER
    return step in _STEPS_OF_BROKERS


def timers_of(engine: ProducerEngine) -> Turns:
    """Return the loop time of each task's next turn, unless it is woken before."""
    tasks = engine.sender_task, engine.metadata_task, engine.transactions
    return Turns(*(-inf if task is None else task.sleeping_until for task in tasks))


def _broken_rules(engine: ProducerEngine, now: float) -> Iterator[str]:
    return broken_rules(engine.driver, now, engine.client, timers_of(engine))


def _without_timer(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Tasks that sleep until some time, and have no timer on the loop that wakes them by then."""
    for task in (engine.sender_task, engine.metadata_task, engine.transactions):
        wakeup = None if task is None else task._wakeup
        if wakeup is None or not wakeup.is_asleep or wakeup.until == inf:
            continue
        timer = wakeup._timer
        if timer is None or timer.cancelled() or not now <= timer.when() <= wakeup.until:
            yield f"{type(task).__name__} sleeps until {wakeup.until:.3f}, no timer"


def _not_asked_for(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Topics that are not requested again, and have records without a leader, or such errors."""
    metadata, fetch = engine.metadata, engine.metadata._fetch
    if metadata._wanted:
        return
    asked = {*metadata._pending, *(() if fetch is None else fetch.topics)}
    for queue in engine.accumulator.readiness.leaderless:
        if queue.topic_partition.topic not in asked:
            yield f"{queue.topic_partition} has no leader, and none is asked for"
    for name, live in metadata._topics.items():
        errors = map(error_for_code, live.partition_errors.values())
        has_errors = live.error is None and any(each.refreshes_metadata for each in errors)
        if has_errors and name not in asked:
            yield f"{name} was described with errors, and is not asked for again"


def _coordinator_not_asked_for(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Calls that wait for a coordinator of which metadata have no address, and that stay as old.

    Not those that have just begun after an idle time: the error is of the lookup before it.
    """
    transactions, metadata = engine.transactions, engine.metadata
    if transactions is None or metadata.is_awaited:
        return
    session, error = transactions._coordinator_session, transactions.manager.coordinator_error
    is_unlisted = error is not None and "not among the brokers" in error.message
    if is_unlisted and session._in_flight is None and transactions.manager.is_busy:
        age = now - metadata.refreshed_at
        if age > _LONGEST_PAUSE_S and now - session._retry_at <= _LONGEST_PAUSE_S:
            yield f"a coordinator is not among the brokers of {age:.1f} s ago"


def _successor_not_asked_for(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Records that wait for a broker that cannot be reached, while metadata stay as old."""
    metadata, age = engine.metadata, now - engine.metadata.refreshed_at
    if metadata.is_awaited or age <= _LONGEST_DIAL_S:
        return
    for node_id in engine.accumulator.readiness.nodes():
        failure = engine.client.connection_failures(node_id)
        if failure is not None:
            yield f"a leader of {age:.1f} s ago cannot be reached: {failure}"


def _oversleeps_expiry(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The sender wakes when the first batch expires, at the latest."""
    timeout, until = engine.accumulator.settings.delivery_timeout, engine.sender_task.sleeping_until
    first = min((each.created_at for each in engine.accumulator.incomplete()), default=inf)
    if until > first + timeout + LATE_S:
        yield f"the sender sleeps until {until:.3f}, a batch is of {first:.3f}"


def _repeated_too_often(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches that are sent again without a pause (`retry_backoff_ms`)."""
    for batch in engine.accumulator.incomplete():
        if batch.attempts > _MOST_ATTEMPTS + (now - batch.created_at) * _ATTEMPTS_PER_S:
            yield f"{batch.attempts} attempts since {batch.created_at:.3f}"


def _not_asked_after_failure(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches whose last request ended without a response, after which no metadata are wanted."""
    if engine.metadata.is_awaited:
        return
    for batch in engine.accumulator.incomplete():
        error = batch.last_error
        if batch.pins or not isinstance(error, NodeDisconnectedError):
            continue
        is_lost = batch.possibly_persisted and "left this partition out" not in error.message
        if is_lost and engine.metadata.refreshed_at < batch.last_attempt_at:
            yield f"no metadata are wanted after {error}"


def _unreachable_coordinator_kept(engine: ProducerEngine, now: float) -> Iterator[str]:
    """A coordinator that is not looked up again, although it backs off or metadata lack it.

    It backs off after a failed connection.
    """
    transactions, client = engine.transactions, engine.client
    if transactions is None or not transactions.manager.is_busy:
        return
    session, manager = transactions._coordinator_session, transactions.manager
    error = manager.coordinator_error
    if session._in_flight is not None or session.wanted is None:  # none is due before it is idle
        return
    wanted = {CoordinatorKey(CoordinatorKind.TRANSACTION, manager.transactional_id)}
    if session.wanted is Rpc.COMMIT_OFFSETS:
        first = manager.contents._offsets[:1]
        wanted = {CoordinatorKey(CoordinatorKind.GROUP, each.group.group_id) for each in first}
    found = {session._coordinators[key] for key in wanted & session._coordinators.keys()}
    for node_id in found - engine.metadata.cluster.nodes.keys():
        if session.due_at(now) <= now:
            yield f"coordinator {node_id} is kept, which is not among the brokers"
    if error is None or isinstance(error, BrokerError):
        return
    if "left some partitions out" in error.message:  # an answer came, so the pause is for that
        return
    for node_id in found:
        failure = client.connection_failures(node_id)
        if failure is not None and now < client.ready_at(node_id, now) < inf:
            yield f"coordinator {node_id} is kept, which cannot be reached: {failure}"


def _parts_are_wrong(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Parts of a batch that are larger than one, or expire later than their records, or earlier.

    Records that waited for metadata share a part if they are of about the same age.
    """
    for batch in engine.accumulator.pinned:
        for part in batch.parts:
            younger_s = part.created_at - batch.created_at
            if not -LONGEST_SPAN_S - LATE_S <= younger_s <= 0:
                yield (
                    f"a part of {part.topic_partition} is {younger_s:.3f} s younger "
                    "than its records"
                )
            size = part.uncompressed_size
            if part.count > 1 and size > engine.config.batch_size:
                yield f"a part of {part.topic_partition} has {size} bytes"


_STEPS_OF_BROKERS = frozenset(
    {Session._when_running, SimCluster._check_lag, SimCluster._fetch, SimWorld._wake}
)
_STEPS = (
    *STEPS,
    Acknowledgements,
    Choices,
    EarlyAges,
    Gaps,
    Failures,
    Doubts,
    RefusedIds,
    TopicTotals,
)
_WHILE_STARTED: tuple[_Rule, ...] = (
    asked_in_vain,
    asks_before_the_pause_ends,
    keeps_refused_brokers,
    lingers_although_awaited,
    waits_although_decided,
    waits_although_closed,
    serialized_records_wait,
    keeps_ended_waits,
)
_OF_TIME: tuple[_Rule, ...] = (dialed_too_long, not_asked, not_dialed)
_AT_EACH_MOMENT: tuple[_Rule, ...] = (
    *_OF_TIME,
    _oversleeps_expiry,
    _not_asked_for,
    links_are_old,
    buffers_with_two_owners,
    gathers_although_waiting,
    more_records_than_allowed,
    bulk_calls_are_paced,
    early_although_decided,
    ends_with_batches_out,
)
_NOW_AND_THEN: tuple[_Rule, ...] = (
    _broken_rules,
    _without_timer,
    _coordinator_not_asked_for,
    _successor_not_asked_for,
    _repeated_too_often,
    _not_asked_after_failure,
    _unreachable_coordinator_kept,
    _parts_are_wrong,
    broken_in_transactions,
    broken_while_waiting,
    derived_state_differs,
    inconsistent,
    reports_differ,
)
"""Rules for a running producer; what breaks one of these stays broken until the next long wait."""


class RecoveryBound(NamedTuple):
    """The time after the healing until all pending work is done, by what it may wait for."""

    dials: float
    requests: float
    backoffs: float
    cluster: float
    backlog: float
    refusals: float

    @property
    def seconds(self) -> float:
        """All of it, one after the other."""
        return sum(self)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value:.1f}" for name, value in self._asdict().items())
        return f"{self.seconds:.1f} s ({parts})"


def _turns(config: ProducerConfig, scenario: Scenario) -> float:
    """Return how often `buffer_max_records` is used up until all waiting tasks had their turn."""
    at_once = config.buffer_max_records
    return 0 if at_once is None else scenario.tasks * LARGEST_BURST / at_once


def _requests(config: ProducerConfig, scenario: Scenario) -> float:
    """Return how many requests one after the other take all records that tasks have pending."""
    most = config.batch_max_records
    if most is None:
        return 0
    at_once = most * config.max_in_flight_requests_per_connection
    return scenario.tasks * LARGEST_BURST / at_once


def _refusals(config: ProducerConfig, scenario: Scenario) -> float:
    """Connections that brokers may close meanwhile: all they can say to acks=0."""
    may_refuse = any("max.message.bytes" in spec.configs for spec in scenario.topics.values())
    return _turns(config, scenario) if config.acks_value == 0 and may_refuse else 0


def _repeats(config: ProducerConfig, scenario: Scenario, replication: float) -> float:
    """Return what single records take if a connection's requests time out before all are answered.

    A broker answers them one after the other, each when it is replicated; the last are sent again.
    """
    all_answered = config.max_in_flight_requests_per_connection * replication
    if all_answered < config.request_timeout_ms / 1000:
        return 0
    return 2 * scenario.tasks * LARGEST_BURST * replication


def recovery_bound(config: ProducerConfig, scenario: Scenario) -> RecoveryBound:
    """The bound for a producer with these options in this scenario.

    At worst a dial into silence has just begun, its broker backs off then, and connection,
    metadata, leader, producer id and batch each need one request after one that gets no answer.
    """
    request = config.request_timeout_ms / 1000
    setup = config.socket_connection_setup_timeout_max_ms / 1000
    reconnect = config.reconnect_backoff_max_ms / 1000
    retry = config.retry_backoff_max_ms / 1000
    round_trips = max(
        _ROUND_TRIPS, _ROUND_TRIPS_EACH * _turns(config, scenario), _requests(config, scenario)
    )
    plan = scenario.transactions
    replication = scenario.timing.fetch_lag if config.acks_value < 0 else 0
    return RecoveryBound(
        dials=_JITTER * (setup + reconnect),
        requests=4 * request + LONGEST_THROTTLE_S,
        backoffs=_JITTER * 3 * retry + config.linger_ms / 1000,
        cluster=scenario.timing.session_timeout
        + scenario.timing.longest_lag
        + (0 if plan is None else (plan.load_ms + 10 * plan.marker_delay_ms) / 1000),
        backlog=max(
            round_trips * (2 * scenario.base_latency_s + replication),
            _repeats(config, scenario, replication),
        ),
        refusals=_refusals(config, scenario) * _JITTER * reconnect,
    )
