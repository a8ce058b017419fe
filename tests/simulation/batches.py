"""State of batches, memory and sequences that follows from other state, computed anew.

Owns: what the accumulator, its pool, the sequencer and the sender keep about batches, compared with
the batches and requests themselves. Not here: what batches wait for, see `simulation.waiting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.core.batching.buffer_pool import NO_CEILING
from aioproducer.core.batching.partitioners import partition_load
from aioproducer.core.sending.produce_rules import ProduceAction, action_for
from aioproducer.core.sending.reasons import Obstacle
from aioproducer.errors import AuthorizationError, BrokerError
from aioproducer.testing.broker.producers import sequence_after
from aioproducer.types import Persistence
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest
from aioproducer.wire.messages.produce import ProduceRequest
from simulation.waiting import batches_of

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.batching.readiness import PartitionQueue
    from aioproducer.metrics.totals import FailedBatch
    from aioproducer.net.connection import InFlightRequest
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.runtime.send.early import _EarlyBatch
    from aioproducer.types import TopicPartition


LATE_S = 0.1
"""How late a timer may be."""
LONGEST_SPAN_S = 1.0
"""Between the first and the last record of a batch that waits for metadata."""


class Acknowledgements:
    """The last acknowledgement of each partition; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._checked_at = -inf
        self._newest: dict[TopicPartition, tuple[int, ...]] = {}
        self._epochs: dict[tuple[int, ...], int] = {}
        """The leader epochs of the batches on the wire by their ordinals."""

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield partitions that count as not acknowledged, or by another leader, after one.

        Only one batch at a time is sent to them.
        """
        before, epochs = self._newest, self._epochs
        for where, partition in engine.accumulator.sequencer._partitions.items():
            newest = partition.newest
            if partition.log_may_be_new or newest <= before.get(where, ()):
                continue
            if partition.acknowledged_at <= self._checked_at:
                yield f"{where} is acknowledged, and the last time was {partition.acknowledged_at}"
            if partition.acknowledged_epoch != epochs.get(newest, partition.acknowledged_epoch):
                yield f"{where} is acknowledged in epoch {epochs[newest]}, another one is kept"
        sequences = engine.accumulator.sequencer._partitions.items()
        self._newest = {where: partition.newest for where, partition in sequences}
        pinned = engine.accumulator.pinned
        self._epochs = {each.ordinal: each.leader_epoch for each in pinned if each.on_wire}
        self._checked_at = now


class Gaps:
    """Partitions with a batch that is not written, or in doubt; `check` them when idle."""

    def __init__(self) -> None:
        self._before: dict[TopicPartition, tuple[object, object, set[tuple[int, ...]]]] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield those that get a new batch before they restart: brokers would refuse it.

        A batch with another identity was sent after a restart, before the topic or cluster changed
        again.
        """
        before, self._before = self._before, {}
        for where, partition in engine.accumulator.sequencer._partitions.items():
            if partition.is_whole:
                continue
            gap = partition.unwritten_from, partition.unknown_gap
            batches = [each for each in partition.in_flight if not each.ordinal[1:]]
            known = {each.ordinal for each in batches}
            same, identity, known_before = before.get(where, (None, None, known))
            self._before[where] = gap, partition.identity, known
            new = {
                each.ordinal
                for each in batches
                if each.ordinal not in known_before
                and (each.producer_id, each.producer_epoch) == identity
            }
            if same == gap and new:
                yield f"{where} gets batches {new} after a gap {gap}"


class Failures:
    """The batches with sequences that have failed; `check` them whenever the loop is idle."""

    def __init__(self) -> None:
        self._before: dict[TopicPartition, tuple[object, set[tuple[int, ...]]]] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield those that leave no gap: the next batch would get, or follow, their sequences."""
        before, self._before = self._before, {}
        for where, partition in engine.accumulator.sequencer._partitions.items():
            in_flight = {each.ordinal for each in partition.in_flight}
            self._before[where] = partition.identity, in_flight
            identity, known = before.get(where, (None, set()))
            is_broken = partition.log_is_new or partition.unwritten_from is not None
            if is_broken or identity != partition.identity:
                continue
            parents = {ordinal[:-1] for ordinal in in_flight}
            for ordinal in known - in_flight - parents:
                if max(partition.newest, partition.unknown_gap or ()) < ordinal:
                    yield f"batch {ordinal} of {where} has failed, and leaves no gap"


class RefusedIds:
    """The batches that wait for a producer id; `check` them whenever the loop is idle."""

    def __init__(self) -> None:
        self._before: tuple[int, set[tuple[int, ...]]] = (0, set())

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield those that still wait after a request for an id that was not authorized."""
        identity, (failures, waiting) = engine.driver.sender.producer_id, self._before
        queued = {each.ordinal for each in engine.accumulator.incomplete() if not each.pins}
        self._before = identity.failures, queued
        if identity.refused and identity.failures > failures:
            for ordinal in waiting & queued:
                yield f"batch {ordinal} waits on after {identity.last_error}"


class Doubts:
    """The batches that may be written; `check` them whenever the loop is idle."""

    def __init__(self) -> None:
        self._before: dict[tuple[TopicPartition, float], bool] = {}
        self._failed: list[FailedBatch] = []

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield those that fail as not persisted later: no later attempt proves that."""
        before, self._before = self._before, {}
        for batch in engine.accumulator.incomplete():
            key = batch.topic_partition, batch.created_at
            self._before[key] = self._before.get(key, True) and batch.possibly_persisted
        known, self._failed = self._failed, [*engine.stats.recent_failures]
        for failed in self._failed:
            may_be_written = before.get((failed.topic_partition, failed.created_at), False)
            is_denied = Persistence.NOT_PERSISTED.value in failed.error
            if may_be_written and is_denied and failed not in known:
                yield f"a batch of {failed.topic_partition} may be written: {failed.error}"


class EarlyAges:
    """The records that wait for metadata; `check` them whenever the loop is idle."""

    def __init__(self) -> None:
        self._counts: dict[_EarlyBatch, int] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield batches that got a record of much later, which would expire with the first one."""
        early, before = engine.appender.early, self._counts
        waiting = [] if early is None else [each for q in early._topics.values() for each in q]
        self._counts = {each: len(each.partitions) for each in waiting}
        for each, count in self._counts.items():
            age_s = now - each.batch.created_at
            if count > before.get(each, count) and age_s > LONGEST_SPAN_S + LATE_S:
                yield f"a record of {each.batch.topic_partition.topic} joins one of {age_s:.1f} s"


class Choices:
    """The partitions for records without a key; `check` them whenever the loop is idle."""

    def __init__(self) -> None:
        self._current: dict[str, int | None] = {}
        self._cluster: object = None
        self._due: dict[str, float] = {}
        self._due_then: dict[str, float] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield those chosen without a leader, or outside of the client's rack (KIP-1123).

        Calls that wait for memory choose by the metadata from before their wait, as in Java.
        Partitions of slow nodes are not chosen, be they in the rack. Weights from before the last
        metadata count, too: a topic's choices are checked once it has others.
        """
        config, cluster = engine.config, engine.metadata.cluster
        version = (engine.metadata.version, cluster.nodes)
        is_same = version == self._cluster
        self._cluster = None if engine.appender.fast_path.waiting else version
        before, partitioners = self._current, engine.appender.batch_appender._sticky_partitioners
        self._current = {name: each.current for name, each in partitioners._partitioners.items()}
        due, self._due = (
            self._due,
            {name: each.weights_due_at for name, each in partitioners._partitioners.items()},
        )
        if not is_same:
            self._due_then = self._due
        leaves_out_slow_nodes = config.partitioner_availability_timeout_ms > 0
        in_rack = config.partitioner_rack_aware and not leaves_out_slow_nodes
        rack = config.client_rack if in_rack else None
        for name, chosen in self._current.items() if is_same else ():
            topic = engine.metadata.topic(name)
            if topic is None or chosen is None or chosen == before.get(name, chosen):
                continue
            has_new_weights = due.get(name, -inf) > self._due_then.get(name, -inf)
            if config.partitioner_adaptive_partitioning_enable and not has_new_weights:
                continue
            near = [
                partition
                for partition in topic.available
                if rack and cluster.nodes[topic.partitions[partition].leader].rack == rack
            ]
            allowed = near or topic.available
            if allowed and chosen not in allowed:
                yield f"{name}-{chosen} is chosen, of {allowed}"


_FIRST_SIZE = 4096
"""Bytes that a batch begins with if it grows (KIP-1332)."""
_BOUND = 200
"""Bytes by which the memory for a record alone exceeds what it takes."""


def derived_state_differs(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield state that differs from the state that it is computed from."""
    for rule in _RULES:
        yield from rule(engine, now)


def _requests(engine: ProducerEngine) -> Iterator[InFlightRequest]:
    """Yield the requests in flight, also those to brokers that have left."""
    for link in (*engine.client._links(), *engine.client._retired):
        connection = link._connection
        if connection is not None and connection.is_open:
            yield from (*connection._awaiting, *connection._unflushed)


def _queues(engine: ProducerEngine) -> Iterator[PartitionQueue]:
    for partitions in engine.accumulator._queues.values():
        yield from partitions.values()


def _queues_differ(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Queues have the batches that no transport has, in their order; only the last has room."""
    expected: dict[TopicPartition, list[ProducerBatch]] = {}
    for batch in engine.accumulator.incomplete():
        if not batch.pins and batch.topic_partition.partition != NO_PARTITION:
            expected.setdefault(batch.topic_partition, []).append(batch)
    for queue in _queues(engine):
        batches = sorted(expected.pop(queue.topic_partition, ()), key=lambda each: each.ordinal)
        if [*queue.batches] != batches:
            found = [each.ordinal for each in queue.batches]
            yield f"{queue.topic_partition} has {found} queued, of {[b.ordinal for b in batches]}"
        if not all(each.full for each in batches[:-1]):
            yield f"{queue.topic_partition} has several batches with room"
    if expected:
        yield f"batches of {[*expected]} are in no queue"


def _readiness_differs(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Each partition is in one place: planned, with its leader, leaderless, or it waits."""
    readiness, sequencer = engine.accumulator.readiness, engine.accumulator.sequencer
    # Announcements of partitions make the others wait as well.
    may_wait = sequencer.identity is None or engine.transactions is not None
    heap = {(at, queue) for at, _, queue in readiness._heap}
    places = Counter(queue for queues in readiness._ready.values() for queue in queues)
    places.update([*readiness.leaderless])
    busy = {batch.topic_partition for batch in engine.accumulator.pinned}
    planned = [inf]
    for queue in _queues(engine):
        where, is_lingering = queue.topic_partition, queue in readiness._lingering
        is_idle = queue.muted or not queue.batches
        if places[queue] != (queue.placed is not None):
            yield f"{where} is placed {places[queue]} times, at {queue.placed}"
        if is_lingering and (is_idle or queue.placed is not None):
            yield f"{where} lingers, and has nothing to linger for"
        if is_lingering and queue.batches and readiness.ready_at(queue) != queue.ready_at:
            yield f"{where} lingers until {queue.ready_at:.3f}, not {readiness.ready_at(queue):.3f}"
        if is_idle and (queue.placed is not None or queue.ready_at < inf):
            yield f"{where} has nothing to send, and is placed or planned"
        if queue.muted and where not in busy:
            yield f"{where} is muted, and no batch is in flight"
        is_unplanned = queue.placed is None and not is_idle and queue.ready_at == inf
        if is_unplanned and not (
            queue.batches[0].gathering or (sequencer.is_idempotent and (may_wait or where in busy))
        ):
            yield f"{where} is not planned, and waits for nothing"
        if queue.ready_at < inf:
            planned.append(queue.ready_at)
            if (queue.ready_at, queue) not in heap:
                yield f"{where} is planned for {queue.ready_at:.3f}, and not in the heap"
    if len(readiness._heap) >= readiness._compact_at > 2 * max(len(planned), 32):
        yield f"the heap has {len(readiness._heap)} entries for {len(planned)} partitions"
    if readiness.next_at != min(planned):
        yield f"the next partition is due at {min(planned):.3f}, not {readiness.next_at:.3f}"


def _expiry_differs(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The next expiry is that of the oldest batch."""
    accumulator = engine.accumulator
    created_at = min((each.created_at for each in accumulator.incomplete()), default=inf)
    expected = created_at + accumulator.settings.delivery_timeout
    if accumulator.next_expiry_at != expected:
        yield f"the first batch expires at {expected:.3f}, not {accumulator.next_expiry_at:.3f}"


def _pins_differ(engine: ProducerEngine, now: float) -> Iterator[str]:
    """A batch is pinned once by its request and once by each of its parts without an outcome."""
    accumulator = engine.accumulator
    on_wire: Counter[ProducerBatch] = Counter()
    for request in _requests(engine):
        if request.kind is ProduceRequest:
            on_wire.update(batches_of(request))
    preparing = [each for _, batches in engine.sender_task._preparing.values() for each in batches]
    for batch in {*accumulator.incomplete(), *accumulator.pinned, *on_wire}:
        parts = sum(not part.done for part in batch.parts)
        pins = on_wire[batch] + preparing.count(batch) + parts
        if batch.pins != pins or (pins > 0) != (batch in accumulator.pinned):
            yield f"a batch of {batch.topic_partition} has {batch.pins} pins, not {pins}"
        if batch.done and parts:
            yield f"a batch of {batch.topic_partition} has its outcome, and its parts are sent"
        if batch.on_wire != (batch in on_wire):
            yield f"a batch of {batch.topic_partition} is on the wire: {batch.on_wire}"
        error = None if batch.outcome is None else batch.outcome.error
        if error is not None and batch.on_wire and not batch.possibly_persisted:
            yield f"a batch of {batch.topic_partition} fails as not written on the wire: {error}"
    in_flight = Counter(batch.topic_partition for batch in accumulator.pinned if not batch.parts)
    if accumulator.settings.guarantee_order:
        if max(in_flight.values(), default=0) > 1:
            yield f"several batches of a partition are in flight: {in_flight}"
        for batch in accumulator.pinned:
            queue = accumulator.queue(*batch.topic_partition)
            if queue is not None and queue.batches and queue.batches[0].ordinal < batch.ordinal:
                yield f"a batch of {batch.topic_partition} has overtaken one that is queued"
            if not batch.parts and (queue is None or not queue.muted):
                yield f"a batch of {batch.topic_partition} is in flight, another may follow it"
    nodes = {node_id for node_id, _ in engine.sender_task._preparing.values()}
    if nodes != engine.driver.sender._preparing:
        yield f"requests to {nodes} are prepared, not {engine.driver.sender._preparing}"


def _memory_differs(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The memory and places that are not free are those of batches and of calls that wait."""
    accumulator, pool = engine.accumulator, engine.pool
    batches = {*accumulator.incomplete(), *accumulator.pinned}
    used = sum(batch.size for batch in batches if batch.buffer is not None)
    used += sum(request.granted for request in pool._queue)
    # A check of the healed cluster takes all that is free.
    if pool.available and pool.total - pool.available != used:
        yield f"{pool.total - pool.available} bytes of memory are in use, batches have {used}"
    settings = accumulator.settings
    for batch in batches:
        size = batch.uncompressed_size
        largest = max(_FIRST_SIZE, 2 * (size + _BOUND)) if settings.grows else settings.batch_size
        if batch.size > max(min(settings.batch_size, largest), size + _BOUND) and batch.buffer:
            yield f"a batch of {size} bytes has {batch.size} bytes of memory"
    most = engine.config.buffer_max_records
    if most is not None and pool.ceiling != NO_CEILING:
        places = engine.appender.fast_path.appended - (pool.ceiling - most)
        records = sum(batch.count for batch in batches if batch.size and batch.buffer is not None)
        if places != records:
            yield f"{places} places of records are in use, batches have {records}"


def _sequences_differ(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The sequencer has the batches with sequences and without an outcome, in their order."""
    sequencer = engine.accumulator.sequencer
    expected: dict[TopicPartition, list[ProducerBatch]] = {}
    for batch in engine.accumulator.incomplete():
        if batch.has_sequence:
            expected.setdefault(batch.topic_partition, []).append(batch)
    for where, partition in sequencer._partitions.items():
        batches = sorted(expected.pop(where, ()), key=lambda each: each.ordinal)
        if batches != partition.in_flight:
            found = [each.ordinal for each in partition.in_flight]
            yield f"{where} has {found} in flight, of {[each.ordinal for each in batches]}"
        count = sum(len(each.ordinal) == 1 for each in batches)
        if count > sequencer._max_in_flight:
            yield f"{where} has {count} batches in flight, brokers know {sequencer._max_in_flight}"
        if not partition.is_whole or not batches or batches[0].ordinal < partition.newest:
            continue
        ends = [(each.base_sequence, each.count) for each in batches]
        for (first, count), after in pairwise([*ends, (partition.next_sequence, 0)]):
            if sequence_after(first, count) != after[0]:
                yield f"{where} has sequences {ends}, then {partition.next_sequence}"
    if expected:
        yield f"batches of {[*expected]} have sequences that are not kept"


def _identity_differs(engine: ProducerEngine, now: float) -> Iterator[str]:
    """A producer id that is being requested has a request; what is refused for good ends it."""
    requests = sum(each.kind is InitProducerIdRequest for each in _requests(engine))
    identity = engine.driver.sender.producer_id
    if engine.transactions is None and requests != identity.in_flight:
        yield f"{requests} requests for a producer id are in flight, and it says {not requests}"
    if identity._outdated and not identity.in_flight:
        yield "no request for a producer id is in flight, and its response is to be ignored"
    error = identity.last_error
    if identity.refused != isinstance(error, AuthorizationError):
        yield f"the producer id counts as refused ({identity.refused}), and the error is {error}"
    if error is not None and not (error.retriable or identity.refused):
        yield f"a producer id is still requested after {error}"


def _latencies_differ(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Latencies are measured, if they are limited, of nodes with a ready partition."""
    sender = engine.driver.sender
    waits, is_limited = sender._latencies._waits, sender._latencies._timeout > 0
    nodes = {*engine.accumulator.readiness.nodes()} - sender._preparing
    for node_id in nodes - waits.keys() if is_limited else waits:
        yield f"the latency of node {node_id} is measured: {not is_limited}"
    for node_id, (drained_at, ready_at) in waits.items():
        if not drained_at <= ready_at <= now:
            yield f"node {node_id} took data at {drained_at:.3f}, ready at {ready_at:.3f}"
    for link in engine.client._links() if is_limited else ():
        connection = link._connection
        for request in () if connection is None else connection._awaiting:
            if request.kind is ProduceRequest and link.node.id in engine.metadata.cluster.nodes:
                sent_at = max(batch.last_attempt_at for batch in batches_of(request))
                if waits.get(link.node.id, (-inf, 0.0))[0] < sent_at:
                    yield f"node {link.node.id} took data at {sent_at:.3f}, which does not count"


def _counts_other_partitions(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Records without a key leave out partitions of slow nodes that have data, no others."""
    sender, accumulator = engine.driver.sender, engine.accumulator
    waits, longest_s = sender._latencies._waits, sender._latencies._timeout
    slow = {node for node, (drained_at, at) in waits.items() if at - drained_at > longest_s}
    for name in engine.appender.batch_appender._sticky_partitioners._partitioners:
        topic, sizes = engine.metadata.topic(name), accumulator.queue_sizes(name)
        load = None if topic is None else partition_load(sizes, topic, sender._latencies)
        if topic is None or load is None:
            if topic is not None and len(sizes) >= len(topic.available):
                yield f"the queue lengths {sizes} of {name} do not count"
            continue
        leaders = {each: topic.partitions[each].leader for each in topic.available}
        expected = {each for each in leaders if leaders[each] not in slow or not sizes.get(each)}
        counted = load.partition_ids[: load.length]
        if expected != {*counted}:
            yield f"partitions {counted} of {name} may be chosen, not {expected}"


def _waits_for_another_thing(engine: ProducerEngine, now: float) -> Iterator[str]:
    """`Sender.wait_of` returns what is so; the errors of expired batches have it."""
    accumulator, sender = engine.accumulator, engine.driver.sender
    batches = {*accumulator.pinned, *accumulator.incomplete()}
    busy = Counter(each.topic_partition for each in batches if each.pins or each.has_sequence)
    for batch in accumulator.incomplete():
        where, wait = batch.topic_partition, sender.wait_of(batch)
        leader = accumulator.readiness.leader_of(where)
        is_busy = batch.pins > 0 or batch.has_sequence
        is_so = {
            Obstacle.RESPONSE: batch.on_wire,
            Obstacle.PREPARATION: batch.pins > 0 and not batch.on_wire,
            Obstacle.METADATA: where.partition == NO_PARTITION,
            Obstacle.LEADER: leader is None,
            Obstacle.CONNECTION: leader is not None,
            Obstacle.EARLIER_BATCH: busy[where] > is_busy,
            Obstacle.RETRY: batch.attempts > 0 and wait.error is not None,
            Obstacle.TURN: batch.attempts == 0,
            Obstacle.PRODUCER_ID: accumulator.sequencer.identity is None,
        }.get(wait.obstacle, True)
        if not is_so:
            yield f"a batch of {where} is {wait}, and it is not"


def _ends_linger_early(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Adaptive linger ends none while any record is not awaited."""
    readiness, batches = engine.accumulator.readiness, [*engine.accumulator.incomplete()]
    adaptive_linger = copy(readiness.adaptive_linger)
    may_end = adaptive_linger.should_flush(batches, len(readiness._lingering), lingered=True)
    if may_end and any(batch.watchers < batch.count for batch in batches):
        yield "a linger may end early, and not all records are awaited"


def _sent_again_in_parts(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches are split only after an error of their size or of some of their records."""
    for batch in engine.accumulator.incomplete():
        cause = getattr(batch.last_error, "__cause__", None)
        if not isinstance(cause, BrokerError) or "without naming" not in str(batch.last_error):
            continue
        if action_for(cause.code, idempotent=True) is not ProduceAction.SPLIT:
            yield f"a batch of {batch.topic_partition} was split after {cause}"


_RULES = (
    _sent_again_in_parts,
    _ends_linger_early,
    _queues_differ,
    _readiness_differs,
    _expiry_differs,
    _pins_differ,
    _memory_differs,
    _sequences_differ,
    _identity_differs,
    _latencies_differ,
    _counts_other_partitions,
    _waits_for_another_thing,
)
