"""Rules for batches, sessions and dials that hold whenever a producer waits.

Owns: what must be true of one producer at an idle moment besides the rule of `core.driver`. Not
here: when it is checked, see `simulation.liveness`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.core.sending.actions import RECHECK_S
from aioproducer.core.transactions.contents import TransactionContents
from aioproducer.core.transactions.operations import OperationKind
from aioproducer.core.transactions.rules import Rpc
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    BrokerError,
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    RebootstrapRequiredError,
    UnknownTopicOrPartitionError,
)
from aioproducer.net.client import NodeNotReady
from aioproducer.net.connection import IdleConnectionError
from aioproducer.runtime.bulk.run import _Tracked
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest
from simulation.consistency import LoginCounts, WaitCounts
from simulation.links import (
    Dials,
    earlier_dials_count,
    older_features_count,
    unsupported_versions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.batching.buffer_pool import MemoryRequest
    from aioproducer.core.metadata.metadata import MetadataFetch
    from aioproducer.core.transactions.requests import CoordinatorKey, TransactionalRequest
    from aioproducer.errors import KafkaError
    from aioproducer.net.connection import Connection, InFlightRequest
    from aioproducer.net.link import BrokerLink
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.types import Node, TopicMetadata, TopicPartition

_LATE_S = 0.1
"""How late a step may be."""
_MOST_REPEATED = 3
LONGEST_THROTTLE_S = 3.0
_ATTEMPTS_WITHOUT_PAUSE, _PAUSE_S = 3, 0.1
"""After so many attempts even a new leader gets the batch only after a pause."""


_JITTER = 1.2
"""Of a backoff."""
_TURNS_S = 0.03
"""What turns of a slow loop take between a response and the next idle moment."""
_CONCURRENT_S = 0.02
"""The first pause while the transaction before is being ended (KIP-890)."""
_TOPIC_IDS_SINCE = 13
"""The first version of Produce that names topics by their ids."""
_NUMBERS = Struct(">qhi")
"""Producer id, epoch and sequence in a batch."""
_FRAMING = 200
"""Bytes of a request, and of each batch in it, besides the records: names, ids, headers."""


class Steps(Protocol):
    """A check of what has happened since the last idle moment."""

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield what broke a rule."""


class MetadataSteps:
    """The metadata responses of one producer; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._version = 0
        self._changed_at = 0.0
        self._allowed_at = 0.0
        self._topics: Mapping[str, TopicMetadata] = {}
        self._nodes: Mapping[int, Node] = {}
        self._fetch: MetadataFetch | None = None
        self._was_wanted = False
        self._refreshed_at = -inf

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield which consequences the last response should have had, and has not."""
        metadata = engine.metadata
        fetch, self._fetch = self._fetch, metadata._fetch
        has_failed = metadata._failures > 0 and metadata._fetch is None
        if fetch is not None and has_failed and not metadata.is_awaited:
            names = [each for each in fetch.topics if each in metadata._topics]
            if not fetch.partial:
                yield "a request for all topics has failed, and is not repeated"
            elif not metadata._pending.keys() >= {*names}:
                yield f"a request for {names} has failed, and is not repeated"
        yield from self._partial_for_full(engine)
        if metadata.version == self._version:
            yield from self._sent_by_old_metadata(engine)
            return
        self._changed_at = now
        cluster = metadata.cluster
        before, nodes, topics = self._topics, self._nodes, dict(cluster.topics)
        is_response = metadata._allowed_at != self._allowed_at and not metadata._failures
        is_next = metadata.version == self._version + 1
        self._version, self._allowed_at = metadata.version, metadata._allowed_at
        self._topics, self._nodes = topics, cluster.nodes
        if not is_response or not is_next:
            return  # a leader hint, or several changes at once
        longest_s = _JITTER * engine.config.retry_backoff_ms / 1000
        if (topics != before or nodes != cluster.nodes) and metadata._allowed_at > now + longest_s:
            pause = metadata._allowed_at - now
            yield f"the metadata have changed, and the next request waits for {pause:.3f} s"
        moved = [
            name
            for name, topic in topics.items()
            if name in before and topic.has_moved_since(before[name])
        ]
        if moved and not metadata.last_answer_is_full and not metadata.is_awaited:
            yield f"leaders of {moved} have moved, and only these are described again"

    def _partial_for_full(self, engine: ProducerEngine) -> Iterator[str]:
        """Yield requests or responses about some topics that count as those about all."""
        metadata = engine.metadata
        was_wanted, self._was_wanted = self._was_wanted, metadata._wanted
        before, self._refreshed_at = self._refreshed_at, metadata.refreshed_at
        # Request and response may both come between two checks.
        if was_wanted and not metadata.is_awaited and metadata.refreshed_at <= before:
            yield "all topics were to be described again, and are not any more"
        fetch = metadata._fetch
        if was_wanted and fetch is not None and fetch.partial and not metadata._wanted:
            yield "all topics were to be described again, and only some are requested"
        if metadata.refreshed_at > before and not metadata.last_answer_is_full:
            yield "a response about some topics counts as one about all"

    def _sent_by_old_metadata(self, engine: ProducerEngine) -> Iterator[str]:
        """Yield batches that are sent to the leader of an epoch that metadata name no more."""
        for batch in engine.accumulator.pinned:
            where = batch.topic_partition
            epoch = engine.metadata.leader_epoch(*where)
            if batch.last_attempt_at > self._changed_at and batch.leader_epoch < epoch:
                yield f"a batch of {where} is sent to the leader of an epoch before {epoch}"


class SentBatches:
    """The batches on the wire of one producer; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._on_wire: dict[tuple[int, ...], int] = {}
        """Their producer ids by their ordinals."""
        self._described_at = 0.0

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield the batches that came back, and what should follow from it and does not.

        Without a response a batch may be written. After some errors the topic's metadata are
        requested again, unless a response about them came in the same moment. A producer id that a
        broker has refused is not used any more.
        """
        before, accumulator, metadata = self._on_wire, engine.accumulator, engine.metadata
        self._on_wire = {
            each.ordinal: each.producer_id for each in accumulator.pinned if each.on_wire
        }
        is_described = metadata._allowed_at != self._described_at
        self._described_at = metadata._allowed_at
        identity = accumulator.sequencer.identity
        for batch in accumulator.incomplete() if before.keys() - self._on_wire.keys() else ():
            error, where = batch.last_error, batch.topic_partition
            if error is None or batch.ordinal not in before or batch.ordinal in self._on_wire:
                continue
            if "the broker left the cluster" in error.message:
                yield f"a request with a batch of {where} is given up, since {error}"
            is_wanted = is_described or metadata.is_awaited or where.topic in metadata._pending
            if not isinstance(error, BrokerError):
                if not batch.possibly_persisted:
                    yield f"a batch of {where} counts as not written after {error}"
            elif error.refreshes_metadata and not is_wanted:
                yield f"no metadata of {where} are wanted after {error}"
            elif isinstance(error, InvalidProducerIdMappingError) and engine.transactions is None:
                refused = before[batch.ordinal]
                if identity is not None and identity.producer_id == refused:
                    yield f"producer id {refused} is kept after {error}"


class Repeats:
    """The pauses before batches are sent again; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._on_wire: dict[tuple[int, ...], tuple[int, int, UUID | None]] = {}
        """Their attempts, leader epochs and topic ids by their ordinals."""

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield batches that wait for longer or less than their attempts explain (KIP-580).

        A new leader may get a batch sooner, also one that was known before the topic was created
        anew.
        """
        before, accumulator, metadata = self._on_wire, engine.accumulator, engine.metadata
        ids = metadata._topic_ids
        self._on_wire = {
            each.ordinal: (each.attempts, each.leader_epoch, ids.get(each.topic_partition.topic))
            for each in accumulator.pinned
            if each.on_wire
        }
        first_s = engine.config.retry_backoff_ms / 1000
        longest_s = engine.config.retry_backoff_max_ms / 1000
        for batch in accumulator.incomplete() if before else ():
            attempts, epoch, topic_id = before.get(batch.ordinal, (batch.attempts, 0, None))
            if batch.ordinal not in before or (batch.pins and batch.attempts == attempts):
                continue
            where, pause_s = batch.topic_partition, 0.0 if batch.pins else batch.retry_at - now
            usual_s = min(first_s * 2.0 ** (attempts - 1), longest_s)
            has_moved = max(batch.leader_epoch, metadata.leader_epoch(*where)) > epoch
            is_anew = ids.get(where.topic) != topic_id
            least_s = usual_s * (2 - _JITTER) - _TURNS_S
            if is_anew or isinstance(batch.last_error, ConcurrentTransactionsError):
                least_s = -inf
            elif has_moved:
                is_early = attempts <= _ATTEMPTS_WITHOUT_PAUSE
                least_s = -inf if is_early else min(least_s, _PAUSE_S - _TURNS_S)
            if not least_s <= pause_s <= usual_s * _JITTER + _LATE_S:
                yield f"a batch of {where} waits {pause_s:.3f} s after attempt {attempts}"


class CoordinatorSteps:
    """The coordinators that a producer has found; `check` it at each idle moment."""

    def __init__(self) -> None:
        self._found: frozenset[CoordinatorKey] = frozenset()

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield coordinators that have to be found again although no request to one has failed."""
        if engine.transactions is None:
            return
        session, manager = engine.transactions._coordinator_session, engine.transactions.manager
        before, self._found = self._found, frozenset(session._coordinators)
        if before - self._found and manager.coordinator_error is None:
            names = sorted(key.name for key in before - self._found)
            yield f"the coordinators of {names} are dropped, and no request has failed"


class RepeatedEnds:
    """The requests that end a transaction or renew its epoch; `check` it at each idle moment."""

    def __init__(self) -> None:
        self._last: TransactionalRequest | None = None
        self._numbers: tuple[object, ...] = ()
        self._count = 0

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield requests that are sent again and again although they were successful."""
        if engine.transactions is None:
            return
        session, manager = engine.transactions._coordinator_session, engine.transactions.manager
        request = session._in_flight
        if request is None or request is self._last:
            return
        numbers = request.rpc, manager.number, manager.identity
        is_again = numbers == self._numbers and not session.failures
        self._last, self._numbers = request, numbers
        self._count = self._count + 1 if is_again else 0
        if self._count == _MOST_REPEATED and request.rpc in (Rpc.END, Rpc.INIT_PRODUCER_ID):
            yield f"{request.rpc.value} is sent {self._count} times after a success"


class NewTopics:
    """The state that a producer keeps of topics created anew; `check` it at each idle moment."""

    def __init__(self) -> None:
        self._ids: dict[str, UUID] = {}
        self._offsets: dict[TopicPartition, object] = {}
        self._sequences: dict[TopicPartition, object] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield partitions with an offset, or with sequences to go on with, of a deleted topic."""
        ids, offsets = engine.metadata._topic_ids, engine.driver.sender._offsets._last
        sequences: dict[TopicPartition, object] = {
            where: each.identity
            for where, each in engine.accumulator.sequencer._partitions.items()
            if each.identity and not (each.log_is_new or each.log_may_be_new)
        }
        if ids != self._ids:
            anew = {name for name in ids if self._ids.get(name, ids[name]) != ids[name]}
            for what, kept, before in (
                ("offset", offsets, self._offsets),
                ("sequence", sequences, self._sequences),
            ):
                for where in before.keys() & kept.keys():
                    if where.topic in anew and kept[where] is before[where]:
                        yield f"{where} keeps the last {what} of a deleted topic"
            self._ids = dict(ids)
        self._offsets, self._sequences = dict(offsets), sequences


class NewLogs:
    """Partitions whose topic was created anew while their batches may be in either log.

    Requests name the topic by its name then. `check` it whenever the loop is idle.
    """

    def __init__(self) -> None:
        self._acknowledged_at: dict[TopicPartition, float] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield where several batches may be in flight since the deleted log acknowledged one."""
        for where, partition in engine.accumulator.sequencer._partitions.items():
            before = self._acknowledged_at.get(where, -inf)
            if not partition.log_may_be_new:
                self._acknowledged_at[where] = partition.acknowledged_at
            elif -inf < partition.acknowledged_at == before:
                yield f"{where} was acknowledged by a deleted log, and that counts for the new one"


class ExtraTurns:
    """Turns of a producer's tasks at an idle moment, in which there is nothing to do.

    What such a turn does could have been done before: a wake-up was lost, or a timer is too late.
    Not where turns take time, in which something may become due. A session is renewed by the turn
    after a response, before which nothing else could be sent.
    """

    @staticmethod
    def may_begin(engine: ProducerEngine) -> bool:
        """Return whether a turn more makes no difference to adaptive linger, which learns in it."""
        manager = None if engine.transactions is None else engine.transactions.manager
        is_abandoned = manager is not None and manager.abandoned_with is not None
        return is_abandoned or not engine.accumulator.readiness._lingering

    def __init__(self, engine: ProducerEngine) -> None:
        tasks = (engine.sender_task, engine.metadata_task, engine.transactions)
        self._tasks = [each for each in tasks if each is not None and each._wakeup.is_asleep]
        self._engine = engine
        self._timers = [each.sleeping_until for each in self._tasks]
        self._requests = _requests_of(engine)
        self._batches = {batch.ordinal for batch in engine.accumulator.incomplete()}
        for each in self._tasks:
            each.wake()

    def broken(self) -> Iterator[str]:
        """Yield what the turns have done."""
        requests, batches = _requests_of(self._engine), self._engine.accumulator.incomplete()
        for kind, node_id, _ in sorted(requests - self._requests):
            yield f"{kind} to node {node_id} is sent by a turn that nothing caused"
        if self._batches - {batch.ordinal for batch in batches}:
            yield "batches end by a turn that nothing caused"
        for task, until in zip(self._tasks, self._timers, strict=True):
            if task.sleeping_until < until:
                sooner, name = task.sleeping_until, type(task).__name__
                yield f"{name} sleeps until {until:.3f}, and after another turn until {sooner:.3f}"


def _requests_of(engine: ProducerEngine) -> set[tuple[str, int, float]]:
    """Return the requests in flight: kind, node, and when they were sent."""
    return {
        (request.kind.__name__, link.node.id, request.sent_at)
        for link, request in requests_in_flight(engine)
        if request.kind is not SaslHandshakeRequest
    }


class MemoryLine:
    """The call that is the first to wait for memory; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._first: MemoryRequest | None = None
        self._appended = 0

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield records that were appended while the call was waiting."""
        first, appended = self._first, self._appended
        self._first = engine.pool._queue[0] if engine.pool._queue else None
        self._appended = engine.appender.fast_path.appended
        if self._first is first is not None and self._appended > appended:
            yield f"{self._appended - appended} records overtake a call that waits for memory"


class Throttling:
    """The throttle times of brokers; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._until: dict[BrokerLink, float] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield brokers that get no request for longer than they have asked for."""
        for link in engine.client._links():
            connection, asked = link._connection, self._until.get(link, -inf)
            transport: Any = None if connection is None else connection._transport
            if transport is not None and transport.quiet_until > asked:
                asked = self._until[link] = transport.quiet_until
            if link.throttled_until > max(asked, now) + _LATE_S:
                yield f"node {link.node.id} is throttled until {link.throttled_until:.3f}"


class IdleConnections:
    """The connections without a request in flight; `check` it whenever the loop is idle."""

    def __init__(self) -> None:
        self._used_at: dict[Connection, float] = {}

    def check(self, engine: ProducerEngine, now: float) -> Iterator[str]:
        """Yield connections that were closed as idle before `connections_max_idle_ms`."""
        least_s = engine.config.connections_max_idle_ms / 1000 - _TURNS_S
        for connection, used_at in self._used_at.items():
            if isinstance(connection.error, IdleConnectionError) and now - used_at < least_s:
                yield f"the connection to node {connection.node_id} was used at {used_at:.3f}"
        connections = [link._connection for link in engine.client._links()]
        self._used_at = {each: each._last_used for each in connections if each and each.is_open}


def asks_before_the_pause_ends(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield requests that were sent before the pause after a failure had ended."""
    metadata, identity = engine.metadata, engine.driver.sender.producer_id
    asked = []
    if identity.in_flight:
        asked.append(("an id", identity._retry_at))
    if metadata._fetch is not None and metadata._failures:
        asked.append(("metadata", metadata._allowed_at))
    if engine.transactions is not None:
        session = engine.transactions._coordinator_session
        if session._in_flight is not None:
            asked.append(("a coordinator", session._retry_at))
    for what, until in asked:
        if until > now:
            yield f"{what} is asked for {until - now:.3f} s before the pause ends"


def waits_although_decided(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield topics whose calls wait for metadata although a longer wait would change nothing."""
    metadata = engine.metadata
    for topic, waiters in engine.metadata_task.waits._waiting.items():
        known, failure = metadata.version > 0, None
        partitions = 0
        if topic is not None:
            described, failure = metadata.topic(topic), metadata.topic_failure(topic)
            known = described is not None
            partitions = 0 if described is None else len(described.partitions)
        for each in waiters:
            is_there = known and (topic is None or (each.partition or 0) < partitions)
            fatal = None if each.ignores_errors else metadata.fatal_error
            if not each.future.done() and (is_there or failure or fatal):
                yield f"a call waits for metadata of {topic}, and {failure or fatal or 'has them'}"


def waits_although_closed(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield what calls wait for although the producer takes no records any more."""
    if engine.closing or engine.failure is not None:
        for topic in engine.metadata_task.waits._waiting:
            yield f"a call waits for metadata of {topic}, and no record is taken"
        if engine.pool.queued:
            yield f"{engine.pool.queued} calls wait for memory, and no record is taken"


def lingers_although_awaited(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield partitions that linger while a call waits for their records or for memory."""
    accumulator, lingering = engine.accumulator, engine.accumulator.readiness._lingering
    if not lingering or engine.failure is not None:
        return
    is_closing = engine.closing and not engine._drain_is_cut
    waits = is_closing or accumulator._flushes > 0 or engine.pool.queued > 0
    if engine.transactions is not None:
        operations = engine.transactions.manager._operations
        waits |= any(kind in operations for kind in (OperationKind.COMMIT, OperationKind.PREPARE))
    found = [each for each in lingering if waits or any(map(_is_awaited, each.batches))]
    if found:
        yield f"{[str(each.topic_partition) for each in found]} linger"


def _is_awaited(batch: ProducerBatch) -> bool:
    """Return whether a flush waits for the batch, or a bulk call that has no more records."""
    return any(
        key.run._all_done is not None
        if isinstance(key, _Tracked)
        else getattr(listener, "__qualname__", "").startswith("Flushing.")
        for key, listener in batch.listeners.items()
    )


def gathers_although_waiting(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield batches that a bulk call keeps open although it waits; nothing else makes them due."""
    for batch in engine.accumulator.incomplete():
        if batch.gathering and not (batch.full or batch.attempts):
            yield f"a batch of {batch.topic_partition} is kept open"


def more_records_than_allowed(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield how many records are buffered beyond `buffer_max_records`.

    A whole batch of more records is accepted alone.
    """
    excess, most = engine.appender.fast_path.appended - engine.pool.ceiling, 0
    if (limit := engine.config.buffer_max_records) is not None:
        batches = {*engine.accumulator.incomplete(), *engine.accumulator.pinned}
        most = max((each.count - limit for each in batches if each.indivisible), default=0)
    if excess > max(most, 0):
        yield f"{excess} records more than allowed are buffered"


def buffers_with_two_owners(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield buffers of the pool that two batches have, or a batch and the free list.

    The spare batch has one that is free.
    """
    accumulator, pool = engine.accumulator, engine.pool
    batches = {*accumulator.incomplete(), *accumulator.pinned}
    used = [batch.buffer for batch in batches if batch.size and batch.buffer is not None]
    owners = [*map(id, used), *map(id, pool._free)]
    shared = len(owners) - len({*owners})
    if shared:
        yield f"{shared} buffers have another owner, too"
    spare = engine.appender.batch_appender._spare
    if spare is not None and all(spare.buffer is not each for each in pool._free):
        yield "the buffer of the spare batch is not free"


def links_are_old(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield the links if they are not to the brokers that metadata or a leader hint have named."""
    links = {node_id: link.node[:3] for node_id, link in engine.client._brokers.items()}
    nodes = {node_id: node[:3] for node_id, node in engine.metadata.cluster.nodes.items()}
    if links != nodes and engine.metadata_task._reported_nodes is not None:  # None: it starts over
        yield f"the brokers are {nodes}, and there are links to {links}"


def asked_in_vain(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield the requests that failed since the chosen node took none."""
    errors = [engine.metadata._last_failure, engine.driver.sender.producer_id.last_error]
    if engine.transactions is not None:
        errors.append(engine.transactions.manager.coordinator_error)
    for error in errors:
        if isinstance(error, NodeNotReady):
            yield f"a node is chosen, and {error}"


def keeps_refused_brokers(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield brokers that are kept although one has asked for a rebootstrap (KIP-1102)."""
    error, brokers = engine.metadata._last_failure, engine.client._brokers
    is_obeyed = engine.config.metadata_recovery_strategy == "rebootstrap"
    if isinstance(error, RebootstrapRequiredError) and is_obeyed and brokers:
        yield f"{len(brokers)} brokers are kept after {error}"


class Numbers(NamedTuple):
    """The numbers with which a batch is sent."""

    producer_id: int
    epoch: int
    sequence: int


def numbers_on_wire(engine: ProducerEngine) -> dict[tuple[tuple[int, ...], int], Numbers]:
    """Return the numbers of the batches of requests without a response, by their attempt."""
    return {
        (batch.ordinal, batch.attempts): Numbers(
            batch.producer_id, batch.producer_epoch, batch.base_sequence
        )
        for batch in engine.accumulator.pinned
        if batch.on_wire
    }


def broken_while_waiting(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield what a waiting producer does not do although it could, or has done too early."""
    for rule in _RULES:
        for text in rule(engine, now):
            yield f"{text}"


def _sleeps_although_woken(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Tasks that sleep although they were woken after their last turn began."""
    for task in (engine.sender_task, engine.metadata_task, engine.transactions):
        wakeup = None if task is None else task._wakeup
        if wakeup is not None and wakeup._woken and wakeup.is_asleep:
            yield f"{type(task).__name__} was woken, and sleeps"


def _several_before_the_first(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches in flight together under an epoch, or at a new leader, that has acknowledged none.

    A broker without state of the producer would accept the second after refusing the first.
    """
    sequencer = engine.accumulator.sequencer
    if engine.transactions is not None or not sequencer.is_idempotent:
        return
    for where, partition in sequencer._partitions.items():
        known = partition.acknowledged_epoch
        on_wire = [batch for batch in partition.in_flight if batch.on_wire]
        ahead = [batch for batch in on_wire if not partition.newest or batch.leader_epoch > known]
        if len(ahead) > 1 and not partition.log_is_new:
            yield f"{len(ahead)} batches of {where} are the first of their epoch"


def _waits_though_leader_changed(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches that wait for the end of their backoff although their leader has changed."""
    for batch in engine.accumulator.incomplete():
        if batch.pins or not 0 < batch.attempts <= _ATTEMPTS_WITHOUT_PAUSE:
            continue
        epoch = engine.metadata.leader_epoch(*batch.topic_partition)
        if epoch > batch.leader_epoch and batch.retry_at > now:
            yield f"a batch of {batch.topic_partition} waits for {batch.retry_at - now:.3f} s more"


def _renewed_late(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Sessions that are renewed only after their end, when brokers close the connection.

    From the time of the renewal on no other request is sent before it.
    """
    for link in engine.client._links():
        session = link._session
        if link.versions is None or session is None or session.lifetime_s is None:
            continue
        if link._renew_at > link.ready_since + session.lifetime_s:
            yield f"the session with node {link.node.id} is renewed after its end"
    for link, request in requests_in_flight(engine):
        if link._renew_at < request.sent_at and not link.is_dialing:
            yield f"the session with node {link.node.id} was to be renewed at {link._renew_at:.3f}"


def _sleeps_past_a_node(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The sender wakes when a backoff or throttle time of a node with ready partitions ends.

    And when a producer id may be requested again.
    """
    sender, until = engine.driver.sender, engine.sender_task.sleeping_until
    preparing = sender._preparing
    if sender._wants_identity:
        at = sender.producer_id.due_at(now, engine.client)
        if until > max(at, now) + _LATE_S:
            yield f"the sender sleeps until {until:.3f}, a producer id is wanted at {at:.3f}"
    for node_id in engine.accumulator.readiness.nodes():
        at = engine.client.ready_at(node_id, now)
        if node_id not in preparing and until > max(at, now) + _LATE_S:
            yield f"the sender sleeps until {until:.3f}, node {node_id} is ready at {at:.3f}"


def _placed_elsewhere(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Partitions that wait for a broker that metadata do not name as their leader any more."""
    readiness = engine.accumulator.readiness
    for node_id, queues in readiness._ready.items():
        for queue in queues:
            leader = readiness.leader_of(queue.topic_partition)
            if leader != node_id:
                yield f"{queue.topic_partition} waits for node {node_id}, its leader is {leader}"


def _not_asked_after_refusal(engine: ProducerEngine, now: float) -> Iterator[str]:
    """A coordinator that does not have a topic yet, after which no metadata are wanted."""
    transactions, metadata = engine.transactions, engine.metadata
    if transactions is None or metadata.is_awaited:
        return
    error = transactions.manager.coordinator_error
    retry_at = transactions._coordinator_session._retry_at
    refused_since = retry_at - engine.config.retry_backoff_max_ms / 1000
    is_backing_off = isinstance(error, UnknownTopicOrPartitionError) and now < retry_at
    if is_backing_off and metadata.refreshed_at < refused_since - _LATE_S:
        yield f"no metadata are wanted after {error}"


def _waits_though_overtaken(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches that are not written although a later one is; another leader might accept them."""
    for where, partition in engine.accumulator.sequencer._partitions.items():
        for batch in partition.in_flight:
            is_unwritten = not batch.possibly_persisted and not batch.pins
            if is_unwritten and batch.ordinal < partition.newest:
                yield f"a batch of {where} waits, and a later one is written"


def _without_records(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches that have no record and are to be sent."""
    for batch in engine.accumulator.incomplete():
        if not batch.count:
            yield f"a batch of {batch.topic_partition} has no record"


def requests_in_flight(engine: ProducerEngine) -> Iterator[tuple[BrokerLink, InFlightRequest]]:
    """The requests on open connections, with their links."""
    for link in engine.client._links():
        connection = link._connection
        if connection is not None and connection.is_open:
            for request in (*connection._awaiting, *connection._unflushed):
                yield link, request


def batches_of(request: InFlightRequest) -> Sequence[ProducerBatch]:
    """Return the batches of a Produce request."""
    batches: Sequence[ProducerBatch] = getattr(request.on_end, "args", ((), ()))[1]
    return batches


def _differs_from_its_request(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches that have another topic id or other numbers than in their request.

    The response would be about another batch.
    """
    for _, request in requests_in_flight(engine):
        if request.kind is not ProduceRequest:
            continue
        content = b"".join(request.buffers)
        for batch in batches_of(request):
            numbers = batch.producer_id, batch.producer_epoch, batch.base_sequence
            is_by_id = batch.topic_id.int != 0 and batch.topic_id.bytes in content
            if is_by_id != (request.version >= _TOPIC_IDS_SINCE):
                yield f"a batch of {batch.topic_partition} went to topic id {batch.topic_id}"
            if batch.has_sequence and _NUMBERS.pack(*numbers) not in content:
                yield f"a batch of {batch.topic_partition} was not sent with {numbers}"


def _awaited_too_long(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Requests past their deadline, and those that may not take just `request_timeout_ms`.

    Their connection had to be closed. Each throttle time of a broker extends the deadlines of the
    requests that it has not answered.
    """
    timeout_s = engine.config.request_timeout_ms / 1000
    for link, request in requests_in_flight(engine):
        is_extended = request.sent_at <= link.throttled_until
        since = now if is_extended else request.sent_at
        longest_s = 2 * (timeout_s + LONGEST_THROTTLE_S) if is_extended else timeout_s + _LATE_S
        least_s = timeout_s if request.kind is ProduceRequest else 0.0
        earliest = max(now - _LATE_S, request.sent_at + least_s - _TURNS_S)
        if not earliest <= request.deadline <= since + longest_s:
            name, after_s = request.kind.__name__, request.deadline - request.sent_at
            yield f"{name} of {request.sent_at:.3f} has its deadline {after_s:.3f} s later"


def _new_topic_waits(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Topics that were in no request yet, while metadata could be requested (Java does at once)."""
    metadata, client = engine.metadata, engine.client
    if metadata._fetch is not None or metadata._failures:
        return
    new = [name for name, live in metadata._topics.items() if not live.asked]
    node_id = client.least_loaded_node(now)
    if new and node_id is not None and client.can_ask(node_id, now):
        yield f"{new} could be asked for"


def _placed_without_batches(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Partitions without batches that cause dials and requests for metadata."""
    readiness = engine.accumulator.readiness
    placed = [queue for queues in readiness._ready.values() for queue in queues]
    for queue in (*placed, *readiness.leaderless):
        if not queue.batches:
            yield f"{queue.topic_partition} has no batch, and waits for its leader"


def _waits_for_free_memory(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Calls that wait for memory or for places of records, and could have them."""
    pool = engine.pool
    head = pool._queue[0] if pool._queue else None
    if head is not None and head.ceiling <= pool.ceiling:
        missing = head.size - head.granted
        if missing <= pool.available:
            yield f"a call waits for {missing} bytes, {pool.available} are free"


def _split_in_doubt(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Batches without sequences that may be written, and whose records are sent again in parts."""
    for batch in engine.accumulator.pinned:
        if batch.parts and batch.possibly_persisted and not batch.has_sequence:
            yield f"a batch of {batch.topic_partition} may be written, and is split"


def _beyond_limits(engine: ProducerEngine, now: float) -> Iterator[str]:
    """More requests, records or bytes at a time than the options allow.

    Whole batches may have more records, and a batch of one record may be larger than a request.
    """
    config, accumulator = engine.config, engine.accumulator
    in_flight: Counter[int] = Counter()
    for link, request in requests_in_flight(engine):
        if request.kind is not ProduceRequest:
            continue
        in_flight[link.node.id] += 1
        batches = batches_of(request)
        size = sum(map(len, request.buffers)) - _FRAMING * (1 + len(batches))
        if len(batches) > 1 and size > config.max_request_size:
            yield f"a request of {len(batches)} batches has {size} bytes"
    for node_id, count in in_flight.items():
        if count > config.max_in_flight_requests_per_connection:
            yield f"{count} requests are in flight to node {node_id}"
    incomplete = list(accumulator.incomplete())
    if not any(batch.indivisible for batch in incomplete):
        records = sum(batch.count for batch in incomplete)
        if records > (config.buffer_max_records or inf):
            yield f"{records} records are buffered"
    size = sum(batch.size for batch in {*incomplete, *accumulator.pinned})
    if size > config.buffer_memory:
        yield f"batches have {size} bytes of memory"
    for topic, sticky in engine.appender.batch_appender._sticky_partitioners._partitioners.items():
        if sticky.room <= 0:
            yield f"partition {sticky.current} of {topic} is kept for too many bytes"


def _kept_without_use(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Connections without a request in flight: to brokers that have left, or idle for too long."""
    max_idle_s = engine.config.connections_max_idle_ms / 1000
    for link in (*engine.client._links(), *engine.client._retired):
        connection = link._connection
        if connection is None or not connection.is_open or connection.in_flight:
            continue
        idle_s = now - connection._last_used
        if link in engine.client._retired:
            yield f"the connection to node {link.node.id} is kept, which has left"
        elif 0 < max_idle_s < idle_s - _LATE_S and not link.is_dialing:
            yield f"the connection to node {link.node.id} is idle for {idle_s:.3f} s"


def _written_too_early(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Requests without a response (acks=0) that count as written before they have left."""
    for link in engine.client._links():
        connection = link._connection
        if connection is not None and connection.is_open and not connection.in_flight:
            left = connection._transport.get_write_buffer_size()
            if left:
                yield f"{left} bytes to node {link.node.id} count as written, and have not left"


def _topic_not_in_use(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Topics that have got a batch, and for whose metadata that is no use (KIP-526).

    Records before the first metadata are accepted before they have a batch.
    """
    metadata, max_idle_s = engine.metadata, engine.config.metadata_max_idle_ms / 1000
    for batch in engine.accumulator.incomplete():
        if batch.topic_partition.partition == NO_PARTITION or not batch.size:
            continue
        live = metadata._topics.get(batch.topic_partition.topic)
        used_at = now - max_idle_s if live is None else live.used_at
        if used_at < batch.created_at:
            yield f"{batch.topic_partition} has a batch since, and was used at {used_at:.3f}"


def _waits_out_of_use(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Topics that calls or early records wait for, and that no request for metadata names."""
    early = engine.appender.early
    waited = {*engine.metadata_task.waits._waiting, *(() if early is None else early.topics)}
    for topic in waited - engine.metadata.topics_in_use - {None}:
        yield f"metadata of {topic} are waited for, and it is not in use"


def _not_asked_after_last_connection(engine: ProducerEngine, now: float) -> Iterator[str]:
    """No metadata are wanted although the last connection was lost (`health` shows the brokers)."""
    links, metadata = engine.client._links(), engine.metadata
    if metadata.is_awaited or any(each.versions or each.is_dialing for each in links):
        return
    lost_at = max((each.lost_at for each in links), default=-inf)
    ready_at = max((each.ready_since for each in links), default=-inf)
    if lost_at > max(ready_at, metadata.refreshed_at):
        yield f"the last connection was lost at {lost_at:.3f}, and no metadata are wanted"


def _pauses_too_long(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Pauses before requests that are longer than the failures since the last success explain."""
    requests, transactions = engine.driver.sender.producer_id, engine.transactions
    metadata = engine.metadata
    first_s = engine.config.retry_backoff_ms / 1000
    longest_s = engine.config.retry_backoff_max_ms / 1000
    pauses: list[tuple[str, KafkaError | None, int, float, float]] = [
        ("a producer id", requests.last_error, requests.failures, requests._retry_at, first_s),
        ("metadata", metadata._last_failure, metadata._failures, metadata._allowed_at, first_s),
    ]
    if transactions is not None:
        session, error = transactions._coordinator_session, transactions.manager.coordinator_error
        is_ending = isinstance(error, ConcurrentTransactionsError)
        shortest_s = min(first_s, _CONCURRENT_S) if is_ending else first_s
        pauses.append(("the coordinator", error, session.failures, session._retry_at, shortest_s))
    for what, error, failures, retry_at, initial_s in pauses:
        pause_s = retry_at - now
        if failures and error is None:
            yield f"{what} has been received, and {failures} failures count"
        most_s = _JITTER * min(longest_s, initial_s * 2.0 ** (failures - 1))
        if error is not None and pause_s > most_s + _LATE_S:
            yield f"{what} is asked for in {pause_s:.3f} s, after {failures} failures"


def _refreshed_late(engine: ProducerEngine, now: float) -> Iterator[str]:
    """The metadata task wakes when the metadata are too old, and then at least every second."""
    metadata, until = engine.metadata, engine.metadata_task.sleeping_until
    age_s = engine.config.metadata_max_age_ms / 1000
    at = max(metadata.refreshed_at + age_s, metadata._allowed_at, now)
    if metadata._fetch is None and until > at + RECHECK_S + _LATE_S:
        yield f"metadata are too old at {at:.3f}, and their task sleeps until {until:.3f}"


def _waits_for_what_has_come(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Calls that wait for a topic or partition that metadata have, or for what has its outcome."""
    metadata = engine.metadata
    for topic, waiters in engine.metadata_task.waits._waiting.items():
        known = None if topic is None else metadata.topic(topic)
        for waiter in waiters:
            if topic is None and metadata.version:
                yield "a call waits for the first metadata, which have come"
            elif known is not None and (waiter.partition or 0) < len(known.partitions):
                yield f"a call waits for {topic}-{waiter.partition}, which metadata have"
    if engine.transactions is not None:
        operation = engine.transactions.manager._operations.unreceived
        if operation is not None and operation.done and operation._listeners:
            yield f"{operation.kind.value}() waits, and has its outcome"


def _absent_and_not_wanted(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Topics in use that no response has described, as after one of another cluster."""
    metadata = engine.metadata
    if metadata.is_awaited:
        return
    for name, live in metadata._topics.items():
        is_absent = live.error is None and metadata.topic(name) is None
        if is_absent and name not in metadata._pending:
            yield f"{name} is in use and not described, and is not asked for"


def _planned_late(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Partitions whose first batch is due at another time than that they are planned for."""
    accumulator = engine.accumulator
    for where in {batch.topic_partition: None for batch in accumulator.incomplete()}:
        queue = accumulator.queue(*where)
        if queue is None or queue.muted or queue.placed is not None or not queue.batches:
            continue
        head = queue.batches[0]
        at = _due_at(head, accumulator.settings.linger)
        # Without a plan it waits for an earlier batch, but not during a backoff.
        is_planned = queue.ready_at < inf or (head.attempts and now < at)
        is_early = queue.ready_at < at and not accumulator.expedited
        if is_early or (is_planned and at < queue.ready_at):
            yield f"{where} is ready at {at:.3f}, and planned for {queue.ready_at:.3f}"


def _derived_state_is_old(engine: ProducerEngine, now: float) -> Iterator[str]:
    """State that can be computed from other state, and is not equal to that."""
    cluster = engine.metadata.cluster
    for topic in cluster.topics.values():
        available = [each.partition for each in topic.partitions if each.leader in cluster.nodes]
        if [*topic.available] != available:
            yield f"{available} of {topic.name} have leaders, and {topic.available} count"
    manager = None if engine.transactions is None else engine.transactions.manager
    if manager is not None and manager.state is TransactionState.READY:
        kept, new = manager.contents, TransactionContents(manager.transactional_id)
        new.v2 = kept.v2
        different = [name for name, value in vars(new).items() if vars(kept)[name] != value]
        if different:
            yield f"{different} of the last transaction are kept"


def _never_lingers(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Linger that stays off after the flush, commit or prepare that has ended it."""
    accumulator, transactions = engine.accumulator, engine.transactions
    is_busy = transactions is not None and transactions.manager.is_busy
    if accumulator._flushes and accumulator.is_idle and not is_busy:
        yield "no batch lingers, and no call waits for any"


def _due_at(head: ProducerBatch, linger_s: float) -> float:
    """Return when the first batch of a partition is due: after its backoff, or its linger."""
    if head.attempts:
        return head.retry_at
    if head.full or head.urgent:
        return head.created_at
    return inf if head.gathering else head.created_at + linger_s


_RULES = (
    _differs_from_its_request,
    _derived_state_is_old,
    _never_lingers,
    _sleeps_although_woken,
    _several_before_the_first,
    _waits_though_leader_changed,
    _renewed_late,
    _sleeps_past_a_node,
    _placed_elsewhere,
    _not_asked_after_refusal,
    _waits_though_overtaken,
    _without_records,
    _awaited_too_long,
    _new_topic_waits,
    _placed_without_batches,
    _waits_for_free_memory,
    _split_in_doubt,
    _not_asked_after_last_connection,
    _pauses_too_long,
    earlier_dials_count,
    unsupported_versions,
    older_features_count,
    _planned_late,
    _absent_and_not_wanted,
    _refreshed_late,
    _waits_for_what_has_come,
    _beyond_limits,
    _kept_without_use,
    _written_too_early,
    _topic_not_in_use,
    _waits_out_of_use,
)

STEPS: Sequence[type[Steps]] = (
    MetadataSteps,
    SentBatches,
    Repeats,
    CoordinatorSteps,
    RepeatedEnds,
    NewTopics,
    NewLogs,
    MemoryLine,
    Throttling,
    IdleConnections,
    Dials,
    LoginCounts,
    WaitCounts,
)
