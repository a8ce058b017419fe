"""The unmodified core with a driver, connections and brokers, one event at a time.

`World.events()` names what may happen next, `World.apply(event)` lets it happen. The driver does
what `runtime.tasks.sender`, `batch_appender` and `memory` of `runtime.send` do, without asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.core.batching.accumulator import AccumulatorSettings, RecordAccumulator
from aioproducer.core.batching.batch import BatchOutcome, OutgoingRecord, ProducerBatch
from aioproducer.core.batching.buffer_pool import BufferPool, MemoryRequest
from aioproducer.core.batching.partitioners import NodeLatencies
from aioproducer.core.driver import Driver, Turns
from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.metadata.requests import MetadataRequests
from aioproducer.core.sending.actions import (
    Connect,
    Dispatch,
    NoBrokerReady,
    RequestIdentity,
    RequestMetadata,
)
from aioproducer.core.sending.idempotence import (
    REMEMBERED_S,
    ExpiredProducer,
    LostRecords,
    ProducerIdentity,
    Sequencer,
)
from aioproducer.core.sending.sender import Sender, SenderSettings
from aioproducer.errors import (
    DeliveryTimeoutError,
    KafkaError,
    NodeDisconnectedError,
    ProducerClosedError,
    RecordsPurgedError,
)
from aioproducer.metrics.totals import ProducerStats
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.types import Persistence, TopicPartition
from aioproducer.wire.acknowledgement import Acknowledgement
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from exploration.broker import (
    LAST_EPOCH,
    LAST_SEQUENCE,
    NOT_LEADER,
    REMEMBERED,
    UNKNOWN_TOPIC_ID,
    Known,
    Log,
)
from exploration.records import Encoded, encode
from exploration.state import share

Event = tuple[str, ...] | tuple[str, int]

TOPIC = "t"
START = 1024.0
DELIVERY_TIMEOUT_S = 32.0
UNLIMITED = 1 << 30
RECONNECT_S = 0.25
PAUSE_S = 2.0
LONGEST_WAIT_S = 4.0
"""No backoff and no linger takes that long."""
QUEUED, IN_FLIGHT = 0, 1
UNKNOWN_TOPIC = 3
LEADER_NOT_AVAILABLE = 5
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
MESSAGE_TOO_LARGE = 10
INVALID_RECORD = 87

BACKOFF = ExponentialBackoff(0.25, 0.5, jitter=0.0)
STATS = ProducerStats()
LATENCIES = NodeLatencies(0)
NO_RNG: Any = None
"""Without jitter nothing is drawn."""


class ViolationError(AssertionError):
    """Something is not as it must be."""


class Config(NamedTuple):
    """The size and the faults of an exploration.

    Attributes:
        sends: the partition of each record, in the order in which they are sent.
        faults: how many there may be, of these `kinds`.
        batch: how many records a batch takes.
        batches: how many batches the memory is for.
        window: requests in flight per connection.
        together: how many full batches a request takes; 0 for any number.
        in_flight: batches in flight per partition.
        remembered: how many batches of a producer a log recognises when they come again.
        known: whether connections, metadata and producer id are there from the beginning.
        worn: whether almost all sequences, and all epochs, have been used at the beginning.
        hints: whether a broker that does not lead names the leader (KIP-951).
        direct: whether single records go out without a turn.
        bulk: whether all records are of one call, which sends a batch when it is full or the call
            waits or ends.
        slow: whether requests are prepared in the background.
        ordered: whether a partition has one batch in flight (no idempotence).
        repeats: whether a call that has timed out is repeated.
        retries: how often a batch may be sent again.
        lossless: whether every record is to be acknowledged, whatever the faults.
        by_name: whether Produce requests have the topic's name and no id (before version 13).
        script: what an application does with transactions; digits are partitions it sends to.
        v2: whether transactions follow KIP-890.
        renews: whether brokers give the next epoch on request (KIP-360) before they are upgraded.
        at_once: events before which nothing else happens, once they are possible.
    """

    name: str
    sends: tuple[int, ...]
    faults: int
    kinds: frozenset[str]
    nodes: int = 1
    batch: int = 1
    batches: int = 8
    window: int = 2
    together: int = 0
    in_flight: int = 2
    remembered: int = REMEMBERED
    linger: float = 0.0
    known: bool = True
    worn: bool = False
    hints: bool = False
    direct: bool = False
    bulk: bool = False
    slow: bool = False
    idempotent: bool = True
    ordered: bool = False
    repeats: bool = False
    retries: int = UNLIMITED
    lossless: bool = False
    by_name: bool = False
    script: tuple[str, ...] = ()
    v2: bool = False
    renews: bool = True
    at_once: frozenset[str] = frozenset({"turn", "metadata", "dialed", "identity"})

    @property
    def partitions(self) -> int:
        return max(self.sends) + 1


class Request(NamedTuple):
    """A Produce request: what the client awaits, and what is on the wire."""

    batches: tuple[ProducerBatch, ...]
    frames: tuple[tuple[int, int, Encoded], ...]
    """Partition, incarnation of the topic, batch."""
    direct: bool = False


Answer = tuple[int, int, int, int]
"""Partition, error code, base offset, and the index of a record to blame or -1."""


class Link:
    """The connection to one node, as both ends see it."""

    def __init__(self) -> None:
        self.state = "idle"  # or "dialing", "ready"
        self.retry_at = -inf
        self.error: KafkaError | None = None
        self.requests: list[Request] = []
        """On their way to the node."""
        self.answers: list[tuple[Request, tuple[Answer, ...]]] = []
        """On their way back."""
        self.late: list[Request] = []
        """Of connections that are gone; the node may still carry them out, in this order."""
        self.preparing: tuple[ProducerBatch, ...] = ()

    @property
    def in_flight(self) -> int:
        return len(self.requests) + len(self.answers)


class Net:
    """The core's view of the connections (`support.liveness_rule.Connections`)."""

    def __init__(self, nodes: int, window: int) -> None:
        self.window = window
        self.links = {node: Link() for node in range(nodes)}
        self.asking = -1
        """The node that is asked for a producer id."""
        self.describing = -1
        """The node that is asked for metadata."""
        self.rebootstrap_required: KafkaError | None = None

    def is_ready(self, node_id: int, now: float) -> bool:
        link = self.links[node_id]
        return link.state == "ready" and link.in_flight < self.window

    def can_ask(self, node_id: int, now: float) -> bool:
        return self.links[node_id].state == "ready"

    def ready_at(self, node_id: int, now: float) -> float:
        link = self.links[node_id]
        if link.state == "idle":
            return max(now, link.retry_at)
        return now if self.is_ready(node_id, now) else inf

    def connection_failures(self, node_id: int) -> KafkaError | None:
        return self.links[node_id].error

    def least_loaded_node(self, now: float) -> int | None:
        ready = [node for node, link in self.links.items() if link.state == "ready"]
        dialed = [node for node, link in self.links.items() if link.state == "dialing"]
        idle = [
            node
            for node, link in self.links.items()
            if link.state == "idle" and link.retry_at <= now
        ]
        return next(iter([*ready, *dialed, *idle]), None)

    def next_chance_at(self, now: float) -> float:
        moments = (self.ready_at(node, now) for node in self.links)
        return min((at for at in moments if at > now), default=inf)

    def in_flight(self, node_id: int) -> int:
        return self.links[node_id].in_flight

    def any_connected(self) -> bool:
        return any(link.state == "ready" for link in self.links.values())

    def connect(self, node_id: int, now: float) -> None:
        link = self.links[node_id]
        if link.state == "idle" and link.retry_at <= now:
            link.state = "dialing"

    def link(self, node_id: int) -> object:
        return (node_id in self.links) or None

    def is_dialing(self, node_id: int) -> bool:
        return self.links[node_id].state == "dialing"


class World:
    """One state. Everything it has is part of a snapshot, except for what is shared."""

    def __init__(self, config: Config) -> None:
        self.config: Config = share(config)  # type: ignore[assignment]
        self.now = START
        self.faults = 0
        self.is_closing = False
        self.is_dead = False
        """Whether the producer has come to its end before the application's calls."""
        self.timed_out = False
        """Whether a delivery timeout has ended: other batches may be about to expire as well."""
        self.has_expired_producer = False
        """Whether a log has lost what it had of the producer."""
        # What the brokers have.
        self.incarnation = 0
        self.dead: frozenset[int] = frozenset()
        """Nodes that are gone for good."""
        self.logs = self._new_logs()
        self.written: frozenset[int] = frozenset()
        self.next_producer_id = 7
        # What the application has done.
        self.to_send = [(n, p) for n, p in enumerate(config.sends) if not config.script]
        self.accepted: dict[int, tuple[int, ...]] = dict.fromkeys(range(config.partitions), ())
        self.line: list[tuple[int, int]] = []
        self.gathered: list[ProducerBatch] = []
        """Batches that a bulk call keeps open."""
        self.request: MemoryRequest | None = None
        self.places: dict[int, tuple[ProducerBatch, int]] = {}
        self.outcomes: dict[int, str] = {}
        self.tries: dict[int, int] = {}
        """How often each record was put on the wire, if retries are limited."""
        self.batches: list[ProducerBatch] = []
        # The driver.
        self.is_woken = True
        self.until = -inf
        self.routes: dict[int, tuple[int, int, UUID]] = {}
        self.routes_version = -1
        self.metadata_woken = True
        self.metadata_until = -inf
        self._make_core(config)
        self.metadata.add_topic(TOPIC, self.now)
        if config.known:
            self._connect_all()
        self.run_metadata()

    def _make_core(self, config: Config) -> None:
        self.net = Net(config.nodes, config.window)
        self.metadata = Metadata(
            max_age_s=inf,
            max_idle_s=inf,
            backoff=BACKOFF,
            allow_auto_create=True,
            rng=NO_RNG,
        )
        self.metadata.on_event = self.on_metadata_event
        size = HEADER_SIZE + config.batch
        self.pool = BufferPool(config.batches * size, size, HEADER_SIZE)
        self.sequencer = self._make_sequencer()
        limit = config.together * size or 1 << 20
        settings = AccumulatorSettings(
            size, config.linger, DELIVERY_TIMEOUT_S, limit, config.ordered
        )
        self.accumulator = RecordAccumulator(settings, self.pool, self.metadata, self.sequencer)
        self.sender = Sender(
            self.accumulator,
            self.metadata,
            self.sequencer,
            SenderSettings(config.retries, BACKOFF, DELIVERY_TIMEOUT_S),
            rng=NO_RNG,
            stats=STATS,
            latencies=LATENCIES,
            on_data_loss=self.on_data_loss,
            on_producer_expired=self.on_producer_expired,
            transactions=self._transactions(),
        )
        self.driver = Driver(self.sender, MetadataRequests(self.metadata, None))
        for shared in (settings, self.sender._settings, STATS, LATENCIES, BACKOFF):
            share(shared)

    def _make_sequencer(self) -> Sequencer:
        return Sequencer(self.config.in_flight, idempotent=self.config.idempotent)

    def _transactions(self) -> Any:
        return None

    def _new_logs(self) -> dict[int, Log]:
        self.incarnation += 1
        nodes = self.config.nodes
        remembered = self.config.remembered
        return {p: Log(p % nodes, remembered) for p in range(self.config.partitions)}

    def _connect_all(self) -> None:
        self.metadata.start_request(self.now)
        self._take_metadata()
        for link in self.net.links.values():
            link.state = "ready"
        if self.config.idempotent and not self.config.script:
            epoch = LAST_EPOCH if self.config.worn else 0
            self.sender.on_identity(ProducerIdentity(self.next_producer_id, epoch))
        if self.config.worn:
            self._use_up_sequences()
        for partition, log in self.logs.items():
            known = self.metadata.leader_epoch(TOPIC, partition)
            self.routes[partition] = (log.leader, known, self._id_in_requests(self.topic_id))
        self.routes_version = self.metadata.version

    def _use_up_sequences(self) -> None:
        """Client and brokers have written so many records that one sequence is left."""
        sequencer = self.sequencer
        assert sequencer.is_idempotent
        assert sequencer.identity is not None
        producer_id, epoch = sequencer.identity
        for partition, log in self.logs.items():
            known = sequencer._partition(TopicPartition(TOPIC, partition))
            known.identity, known.next_sequence = sequencer.identity, LAST_SEQUENCE
            known.acknowledged_at, known.acknowledged_epoch = self.now, log.leader_epoch
            before = LAST_SEQUENCE - 1
            log.producers[producer_id] = Known(epoch, ((before, before, -1),))

    @property
    def topic_id(self) -> UUID:
        return _topic_id(self.incarnation)

    def _id_in_requests(self, topic_id: UUID) -> UUID:
        return ZERO_ID if self.config.by_name else topic_id

    @property
    def _name_in_requests(self) -> str:
        return TOPIC if self.config.by_name else ""

    # -- what may happen -------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """Return the possible next steps without a fault, in a fair scheduler's order."""
        events: list[Event] = []
        if self.is_woken:
            events.append(("turn",))
        if self.request is not None and self.request.buffer is not None:
            events.append(("resume",))
        links = self.net.links
        events += [("prepared", node) for node, link in links.items() if link.preparing]
        events += [
            ("undialed" if node in self.dead else "dialed", node)
            for node, link in links.items()
            if link.state == "dialing"
        ]
        if self.net.asking >= 0:
            events.append(("identity",))
        if self.net.describing >= 0:
            events.append(("metadata",))
        events += [("answer", node) for node, link in links.items() if link.answers]
        events += [("execute", node) for node, link in links.items() if link.requests]
        events += [
            ("elect", p)
            for p, log in self.logs.items()
            if log.leader < 0 or log.leader in self.dead
        ]
        if self.gathered and (self.line or not self.to_send):
            events.append(("end_gathering",))
        if self.to_send and self.may_send:
            events.append(("send",))
        if self._may_tick:
            events.append(("tick",))
        return events

    @property
    def _may_tick(self) -> bool:
        """Whether a timer comes before all requests are over, unless it is left from before."""
        if self.is_woken or not self.next_timer < self.next_expiry:
            return False
        return self.next_timer - self.now < LONGEST_WAIT_S or self.next_expiry == inf

    def side_events(self) -> list[Event]:
        """Return steps that are possible at any time and are no fault, but need not happen."""
        return [("late", node) for node, link in self.net.links.items() if link.late]

    @property
    def may_send(self) -> bool:
        return self.metadata.topic(TOPIC) is not None

    def fault_events(self) -> Iterator[Event]:
        """The faults that are possible now."""
        kinds = self.config.kinds
        for node, link in self.net.links.items():
            if link.state == "ready" and "close" in kinds:
                yield "close", node
            if "die" in kinds and not self.dead:
                yield "die", node
            if link.state == "dialing" and "unreachable" in kinds:
                yield "unreachable", node
            if link.preparing and "unprepared" in kinds:
                yield "unprepared", node
            for kind in ("refuse", "after", "large", "blame", "omit"):
                if link.requests and kind in kinds:
                    if kind in {"large", "blame"} and link.requests[0].frames[0][2].count < 2:
                        continue
                    yield kind, node
        for partition, log in self.logs.items():
            if "leaderless" in kinds and log.leader >= 0:
                yield "leaderless", partition
            if "move" in kinds and log.leader >= 0 and self.config.nodes > 1:
                yield "move", partition
            if "lose_producer" in kinds and log.producers and self._may_lose_producer(partition):
                yield "lose_producer", partition
        if self.net.describing >= 0 and "metadata_failure" in kinds:
            yield ("metadata_failure",)
        if "vanish" in kinds and self.net.any_connected():
            yield ("vanish",)
        if self.net.asking >= 0 and "identity_failure" in kinds:
            yield ("identity_failure",)
        if "recreate" in kinds:
            yield ("recreate",)
        if "give_up" in kinds and self.line:
            yield ("give_up",)
        if "finish" in kinds and not self.is_closing:
            yield ("finish",)
        if "cut" in kinds:
            yield ("cut",)
        if "purge" in kinds and self.places:
            yield from (("purge", IN_FLIGHT), ("purge", QUEUED))
        yield from self._timer_faults(kinds)

    def _timer_faults(self, kinds: frozenset[str]) -> Iterator[Event]:
        if self.is_woken:
            return
        if "expire" in kinds and self.next_expiry < inf:
            yield ("expire",)
        if "pause" in kinds and self.to_send and self.next_expiry == inf:
            yield ("pause",)

    def _may_lose_producer(self, partition: int) -> bool:
        """Brokers drop the state of acknowledged batches; else duplicates could not be avoided."""
        log = self.logs[partition]
        if self.config.lossless and self.now - log.appended_at <= REMEMBERED_S:
            return False
        acknowledged = all(self.outcomes.get(each) == "ok" for each in log.ids)
        return acknowledged and not any(link.late for link in self.net.links.values())

    @property
    def next_timer(self) -> float:
        """Return the time when the next task wakes by itself."""
        return min(self.until, self.metadata_until)

    @property
    def next_expiry(self) -> float:
        return self.accumulator.next_expiry_at

    @property
    def is_over(self) -> bool:
        """Whether everything that was sent has its outcome and nothing is under way."""
        if self.is_dead:
            return True
        links = self.net.links.values()
        return (
            not self.to_send
            and len(self.outcomes) == len(self.config.sends)
            and not any(link.in_flight or link.preparing for link in links)
        )

    # -- events ----------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Let an event happen."""
        handler = getattr(self, f"on_{event[0]}")
        handler(*event[1:])
        if not self.is_dead:
            self.run_metadata()

    def run_metadata(self) -> None:
        """The metadata task has its turns at once."""
        while self.metadata_woken or self.metadata_until <= self.now:
            self.metadata_woken = False
            for action in self.driver.metadata.poll(self.now, self.net):
                match action:
                    case RequestMetadata(node):
                        self.metadata.start_request(self.now)
                        self.net.describing = node
                    case NoBrokerReady(int(node)):
                        self.net.connect(node, self.now)
            self.metadata_until = self.driver.metadata.next_deadline(self.now, self.net)

    def on_event(self) -> None:
        """Something has happened: the tasks' next turns are when the driver says."""
        turns = self.driver.after_event(self.now, self.net)
        self.turn_at(turns.sender)
        if turns.metadata <= self.now:
            self.metadata_woken = True
        self.metadata_until = min(self.metadata_until, turns.metadata)

    @property
    def timers(self) -> Turns:
        """Until when the tasks sleep."""
        return Turns(self.until, self.metadata_until)

    def on_metadata_event(self) -> None:
        self.metadata_woken = True

    def on_send(self) -> None:
        number, partition = self.to_send.pop(0)
        if self.line:
            self.line.append((number, partition))
            return
        record = self._record(number, partition)
        batch = None if self.accumulator.is_idle else self.accumulator.try_append(record, partition)
        if batch is not None:
            self._placed(number, partition, batch)
            self._after_append()
            return
        size = self.accumulator.settings.first_size(record.size)
        buffer = self.pool.try_allocate(size)
        if buffer is None:
            self.line.append((number, partition))
            self._queue_for_memory(size)
        else:
            self._open(number, partition, buffer, size)

    def on_resume(self) -> None:
        """The first call in the line has got its memory."""
        request, self.request = self.request, None
        assert request is not None
        buffer = request.buffer
        assert buffer is not None
        number, partition = self.line.pop(0)
        record = self._record(number, partition)
        batch = self.accumulator.try_append(record, partition)
        if batch is None:
            self._open(number, partition, buffer, request.size)
        else:
            self.pool.deallocate(buffer, request.size)
            self._placed(number, partition, batch)
            self._after_append()
        self._next_in_line()

    def on_give_up(self) -> None:
        """The first call in the line times out; it is repeated, as far as that is explored."""
        request, self.request = self.request, None
        number, partition = self.line.pop(0)
        if request is not None:
            self.pool.cancel(request)
        if self.config.repeats:
            self.to_send.append((number, partition))
        else:
            self.outcomes[number] = "not accepted"
        self._next_in_line()

    def _next_in_line(self) -> None:
        while self.line and self.request is None:
            number, partition = self.line[0]
            record = self._record(number, partition)
            batch = self.accumulator.try_append(record, partition)
            if batch is not None:
                self.line.pop(0)
                self._placed(number, partition, batch)
                self._after_append()
                continue
            size = self.accumulator.settings.first_size(record.size)
            buffer = self.pool.try_allocate(size)
            if buffer is None:
                self._queue_for_memory(size)
            else:
                self.line.pop(0)
                self._open(number, partition, buffer, size)

    def on_finish(self) -> None:
        """The application closes the producer, which delivers what it has accepted."""
        self.faults += 1
        self._refuse_records()
        self.accumulator.closing = True
        self.accumulator.readiness.expedite()
        self.wake()

    def on_cut(self) -> None:
        """The application closes the producer at once, or the bound of its call has come."""
        self.faults += 1
        self._refuse_records()
        self.is_dead = True
        self.sender.abort(ProducerClosedError("the producer was closed"))
        self.end_transactions()
        for node, link in self.net.links.items():
            if link.preparing:
                self._give_up_preparing(node)
            if link.state == "ready":
                self._lose_requests(node)
        if not self.accumulator.is_idle or self.pool.available != self.pool.total:
            raise ViolationError("batches or memory are left over after the close")
        if self.places:
            raise ViolationError(f"records {sorted(self.places)} have no outcome after the close")

    def on_purge(self, kind: int) -> None:
        """The application gives up the records that are queued, or those that are in flight."""
        self.faults += 1
        error = RecordsPurgedError("the record was purged")
        self.sender.abort(error, queued=kind == QUEUED, in_flight=kind == IN_FLIGHT)
        self.on_event()

    def end_transactions(self) -> None:
        """End the calls about transactions: the producer is closed."""

    def _refuse_records(self) -> None:
        self.is_closing = True
        request, self.request = self.request, None
        if request is not None and request.buffer is not None:
            self.pool.cancel(request)
        self.pool.close(ProducerClosedError("the producer is being closed"))
        for number, _ in [*self.line, *self.to_send]:
            self.outcomes[number] = "not accepted"
        self.line, self.to_send = [], []

    def on_end_gathering(self) -> None:
        """The bulk call waits or has ended: its batches are due."""
        batches, self.gathered = self.gathered, []
        self.accumulator.end_gathering(batches)
        self.wake()

    def _queue_for_memory(self, size: int) -> None:
        self.request = self.pool.enqueue(size, self.on_done)
        self.accumulator.readiness.expedite()
        self.wake()

    def on_done(self, request: MemoryRequest) -> None:
        """The task that waits for memory resumes later."""

    def _record(self, number: int, partition: int) -> OutgoingRecord:
        meta = self.metadata.topic(TOPIC)
        assert meta is not None
        value = bytes((number,))
        return OutgoingRecord(meta, partition, 0, None, value, (), HEADER_SIZE + 1)

    def _open(self, number: int, partition: int, buffer: bytearray, size: int) -> None:
        record = self._record(number, partition)
        batch = self.accumulator.begin_batch(record, partition, self.now, buffer=buffer, size=size)
        self.batches.append(batch)
        self._placed(number, partition, batch)
        if self.config.direct and self._send_directly(partition, batch):
            return
        if self.config.bulk and not batch.full:
            batch.gathering = True
            self.gathered.append(batch)
        self.accumulator.enqueue(batch, self.now)
        self.advance(self.now + DELIVERY_TIMEOUT_S)
        self._after_append()

    def _placed(self, number: int, partition: int, batch: ProducerBatch) -> None:
        self.places[number] = batch, batch.count - 1
        self.accepted[partition] = (*self.accepted[partition], number)
        batch.add_listener(number, self.on_outcome)

    def _after_append(self) -> None:
        if self.accumulator.readiness.next_at >= self.until:
            return
        if self.config.linger or self.config.bulk or not self._may_leave:
            self.wake()
        else:
            self._turn()

    @property
    def _may_leave(self) -> bool:
        accumulator = self.accumulator
        is_asleep = not self.is_woken
        return is_asleep and (not accumulator.pinned or accumulator.has_only_single_records)

    def _send_directly(self, partition: int, batch: ProducerBatch) -> bool:
        route = self.routes.get(partition)
        if route is None or self.routes_version != self.metadata.version or batch.count != 1:
            return False
        if not self._may_leave:
            self.wake()
            return False
        node, leader_epoch, topic_id = route
        if not self.net.is_ready(node, self.now):
            return False
        if not self.accumulator.try_hand_out(batch, self.now, leader_epoch):
            return False
        batch.topic_id = topic_id
        encode(batch)
        batch.on_wire = True
        self._put_on_wire(node, [batch], direct=True)
        self.advance(self.now + DELIVERY_TIMEOUT_S)
        self.sender.on_dispatched(node, (batch,))
        return True

    # -- the sender's task -----------------------------------------------------------------------

    def wake(self) -> None:
        self.is_woken = True

    def advance(self, until: float) -> None:
        self.until = min(self.until, until)

    def turn_at(self, at: float) -> None:
        if at <= self.now:
            self.wake()
        else:
            self.advance(at)

    def on_turn(self) -> None:
        self.is_woken = False
        self._turn()

    def _turn(self) -> None:
        self.until = -inf
        self._act()
        if self.sender.fatal_error is not None:
            raise ViolationError(f"fatal error: {self.sender.fatal_error!r}")
        self.after_turn()
        deadline = self.sender.next_deadline(self.now, self.net)
        if deadline > self.now:
            self.until = deadline
        else:
            self.until = inf
            self.wake()

    def after_turn(self) -> None:
        """The transactions' task may have something to do."""

    def _act(self) -> None:
        for action in self.sender.poll(self.now, self.net):
            match action:
                case Connect(node):
                    self.net.connect(node, self.now)
                case Dispatch(node, batches) if self.config.slow:
                    self.net.links[node].preparing = tuple(batches)
                case Dispatch(node, batches):
                    self._dispatch(node, batches)
                case RequestIdentity(node):
                    self.sender.producer_id.on_sent()
                    self.net.asking = node

    def _dispatch(self, node: int, batches: list[ProducerBatch]) -> None:
        size = sum(batch.wire_size for batch in batches)
        if len(batches) > 1 and size > self.accumulator.settings.max_request_size:
            raise ViolationError(f"a request of {len(batches)} batches has {size} bytes")
        if self.net.links[node].state != "ready":
            error = NodeDisconnectedError("the connection is gone")
            self.sender.on_not_dispatched(node, batches, error, self.now)
            self.wake()
            return
        for batch in batches:
            if batch.builder is not None:
                encode(batch)
        live = self.sender.without_done(node, batches)
        if not live:
            return
        for batch in live:
            batch.topic_id = self._id_in_requests(self.metadata.cluster.topics[TOPIC].topic_id)
        self.sender.on_dispatching(live)
        self._put_on_wire(node, live)
        self.sender.on_dispatched(node, live)
        if self.config.direct and len(live) == 1 and live[0].count == 1:
            self._learn_route(node, live[0])

    def _put_on_wire(
        self, node: int, batches: list[ProducerBatch], *, direct: bool = False
    ) -> None:
        frames = []
        for batch in batches:
            encoded: Any = batch.encoded
            frames.append((batch.topic_partition.partition, batch.topic_id.int, encoded))
            self._count_tries(encoded)
        self.net.links[node].requests.append(Request(tuple(batches), tuple(frames), direct))

    def _count_tries(self, batch: Encoded) -> None:
        retries = self.config.retries
        if retries == UNLIMITED:
            return
        for number in batch.ids:
            self.tries[number] = tries = self.tries.get(number, 0) + 1
            if tries > retries + 1:
                raise ViolationError(f"record {number} is sent {tries} times, with {retries=}")

    def _learn_route(self, node: int, batch: ProducerBatch) -> None:
        if self.routes_version != self.metadata.version:
            self.routes_version = self.metadata.version
            self.routes.clear()
        place = batch.topic_partition
        if self.metadata.leader_of(place) == node and place.partition not in self.routes:
            epoch = self.metadata.leader_epoch(*place)
            self.routes[place.partition] = node, epoch, batch.topic_id

    def on_prepared(self, node: int) -> None:
        link = self.net.links[node]
        batches, link.preparing = list(link.preparing), ()
        live = self.sender.without_outdated(node, batches, self.now)
        if live:
            self._dispatch(node, live)
        self.wake()

    def on_unprepared(self, node: int) -> None:
        """The request cannot be made this time."""
        self.faults += 1
        self._give_up_preparing(node)

    def _give_up_preparing(self, node: int) -> None:
        link = self.net.links[node]
        batches, link.preparing = list(link.preparing), ()
        error = NodeDisconnectedError("the connection is gone")
        self.sender.on_not_dispatched(node, batches, error, self.now)
        self.wake()

    # -- connections -----------------------------------------------------------------------------

    def on_dialed(self, node: int) -> None:
        link = self.net.links[node]
        link.state, link.error = "ready", None
        self.on_event()

    def on_unreachable(self, node: int) -> None:
        self.faults += 1
        self._disconnect(self.net.links[node])
        self.on_event()

    def _disconnect(self, link: Link) -> None:
        link.state, link.retry_at = "idle", self.now + RECONNECT_S
        link.error = NodeDisconnectedError("disconnected")

    def on_undialed(self, node: int) -> None:
        """A node that is gone does not answer."""
        self._disconnect(self.net.links[node])
        self.on_event()

    def on_die(self, node: int) -> None:
        """A node is gone; another one leads its partitions as soon as there was an election."""
        self.on_close(node)
        self.dead |= {node}
        self.net.links[node].late.clear()

    def on_close(self, node: int) -> None:
        """The connection is closed; what is on its way may arrive yet."""
        self.faults += 1
        self._lose_requests(node)
        if self.net.asking == node:
            self.on_identity_failure(is_fault=False)
        if self.net.describing == node:
            self.on_metadata_failure(is_fault=False)
        self.on_event()

    def _lose_requests(self, node: int) -> None:
        link = self.net.links[node]
        ended = [request for request, _ in link.answers] + link.requests
        # It is in the buffers of machines in between; the client's memory is not read any more.
        link.late += [Request((), _copied(request.frames)) for request in link.requests]
        link.answers, link.requests = [], []
        self._disconnect(link)
        for partition in [p for p, route in self.routes.items() if route[0] == node]:
            del self.routes[partition]
        for request in ended:
            self.sender.on_failure(
                node, request.batches, NodeDisconnectedError("disconnected"), self.now
            )
            self.on_event()

    def on_identity(self) -> None:
        self.net.asking = -1
        self.next_producer_id += 1
        self.sender.on_identity(ProducerIdentity(self.next_producer_id, 0))
        self.wake()

    def on_identity_failure(self, *, is_fault: bool = True) -> None:
        self.faults += is_fault
        self.net.asking = -1
        error = NodeDisconnectedError("no answer")
        self.sender.on_identity_failure(error, self.now)
        self.wake()

    # -- metadata --------------------------------------------------------------------------------

    def on_vanish(self) -> None:
        """A refresh is due, and the broker that is asked does not have the topic yet."""
        self.faults += 1
        if self.net.describing < 0:
            self.metadata.request_update()
            self.metadata.start_request(self.now)
        self.on_metadata(is_known=False)

    def on_metadata(self, *, is_known: bool = True) -> None:
        self.net.describing = -1
        self._take_metadata(is_known=is_known)
        if self.metadata.last_answer_is_full:
            self.accumulator.drop_expired_topics()
        self.accumulator.on_metadata_update(self.now)
        self.metadata_woken = True
        self.on_event()

    def _take_metadata(self, *, is_known: bool = True) -> None:
        leaders = {log.leader for log in self.logs.values()}
        nodes = [n for n in range(self.config.nodes) if n not in self.dead or n in leaders]
        topic = MetadataResponseTopic(
            error_code=0 if is_known else UNKNOWN_TOPIC,
            name=TOPIC,
            topic_id=self.topic_id,
            partitions=[
                MetadataResponsePartition(
                    error_code=0 if log.leader >= 0 else LEADER_NOT_AVAILABLE,
                    partition_index=partition,
                    leader_id=log.leader,
                    leader_epoch=log.leader_epoch,
                )
                for partition, log in self.logs.items()
            ],
        )
        brokers = [MetadataResponseBroker(node, "127.0.0.1", 9000 + node, None) for node in nodes]
        response = MetadataResponse(
            brokers=brokers, cluster_id="cluster", controller_id=0, topics=[topic]
        )
        self.metadata.on_response(response, self.now)
        self.driver.metadata.on_answer()

    def on_metadata_failure(self, *, is_fault: bool = True) -> None:
        self.faults += is_fault
        self.net.describing = -1
        self.metadata.on_failure(NodeDisconnectedError("no answer"), self.now)
        self.metadata_woken = True

    # -- brokers ---------------------------------------------------------------------------------

    def on_execute(self, node: int) -> None:
        self._execute(node)

    def on_refuse(self, node: int) -> None:
        """The first partition of the request is refused before anything is appended."""
        self._execute(node, before=NOT_ENOUGH_REPLICAS)

    def on_after(self, node: int) -> None:
        self._execute(node, after=NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def on_large(self, node: int) -> None:
        self._execute(node, before=MESSAGE_TOO_LARGE)

    def on_blame(self, node: int) -> None:
        self._execute(node, before=INVALID_RECORD)

    def on_omit(self, node: int) -> None:
        """The answer leaves out the first partition, which was written."""
        self._execute(node, after=-1)

    def on_late(self, node: int) -> None:
        """Carry out a request that came over a connection that is gone."""
        request = self.net.links[node].late.pop(0)
        for frame in request.frames:
            self._append(node, *frame)

    def _execute(self, node: int, *, before: int = 0, after: int = 0) -> None:
        self.faults += bool(before or after)
        link = self.net.links[node]
        request = link.requests.pop(0)
        answers = []
        for index, frame in enumerate(request.frames):
            partition = frame[0]
            if before and not index:
                answers.append((partition, before, -1, 0 if before == INVALID_RECORD else -1))
                continue
            code, offset = self._append(node, *frame)
            if after and not index:
                if after > 0:
                    answers.append((partition, code or after, -1, -1))
                continue
            answers.append((partition, code, offset, -1))
        link.answers.append((request, tuple(answers)))

    def _append(self, node: int, partition: int, incarnation: int, batch: Encoded) -> Any:
        if batch.epoch > LAST_EPOCH:
            raise ViolationError(f"epoch {batch.epoch} does not fit into a request")
        if not self.config.by_name and incarnation != self.topic_id.int:
            return UNKNOWN_TOPIC_ID, -1
        log = self.logs[partition]
        if log.leader != node:
            return NOT_LEADER, -1
        code, offset = log.append(batch)
        if not code:
            log.appended_at = self.now
            self.written |= set(batch.ids)
        elif not self.faults:
            raise ViolationError(f"error code {code} is answered although nothing has gone wrong")
        return code, offset

    def on_answer(self, node: int) -> None:
        link = self.net.links[node]
        request, answers = link.answers.pop(0)
        batches = request.batches
        is_usual = len(answers) == len(batches) and not any(answer[1] for answer in answers)
        if is_usual and request.direct:
            self.sender.on_acknowledged(batches[0], (answers[0][2], -1, 0), self.now)
            if not self.sender.waits_for_capacity(self.now):
                return
        elif is_usual:
            places = {partition: (offset, -1, 0) for partition, _, offset, _ in answers}
            answer = Acknowledgement(self._name_in_requests, batches[0].topic_id, places, 0)
            self.sender.on_response(node, batches, answer, self.now)
        else:
            response = self._response(batches[0].topic_id, answers)
            self.sender.on_response(node, batches, response, self.now)
        self.on_event()

    def _response(self, topic_id: UUID, answers: tuple[Answer, ...]) -> ProduceResponse:
        partitions = []
        for index, code, offset, blamed in answers:
            leader, log = LeaderIdAndEpoch(-1, -1), self.logs[index]
            if code == NOT_LEADER and self.config.hints:
                leader = LeaderIdAndEpoch(log.leader, log.leader_epoch)
            errors = [BatchIndexAndErrorMessage(blamed, None)] if blamed >= 0 else []
            partitions.append(
                PartitionProduceResponse(
                    index=index,
                    error_code=code,
                    base_offset=offset,
                    record_errors=errors,
                    current_leader=leader,
                    log_start_offset=log.start,
                )
            )
        topic = TopicProduceResponse(self._name_in_requests, topic_id, partitions)
        return ProduceResponse(responses=[topic])

    def on_move(self, partition: int) -> None:
        self.faults += 1
        log = self.logs[partition]
        log.leader = (log.leader + 1) % self.config.nodes
        log.leader_epoch += 1

    def on_leaderless(self, partition: int) -> None:
        self.faults += 1
        log = self.logs[partition]
        log.leader, log.leader_epoch = -1, log.leader_epoch + 1

    def on_elect(self, partition: int) -> None:
        """A partition without a leader gets one."""
        log = self.logs[partition]
        alive = [node for node in range(self.config.nodes) if node not in self.dead]
        log.leader, log.leader_epoch = alive[-1], log.leader_epoch + 1

    def on_lose_producer(self, partition: int) -> None:
        self.faults += 1
        self.has_expired_producer = True
        self.logs[partition].lose_producer()

    def on_recreate(self) -> None:
        self.faults += 1
        # The new topic gets batches that the producer sends to the deleted one.
        self.has_expired_producer |= self.config.by_name
        self.logs = self._new_logs()

    # -- time ------------------------------------------------------------------------------------

    def on_tick(self) -> None:
        """Time passes until a task wakes by itself."""
        self.now = max(self.next_timer, self.now)
        self._on_time()

    def on_expire(self) -> None:
        """Time passes until a delivery timeout ends."""
        self.faults += 1
        self.timed_out = True
        self.now = max(self.next_expiry, self.now)
        self._on_time()

    def on_pause(self) -> None:
        """The application sends nothing for a while."""
        self.faults += 1
        self.now += PAUSE_S

    def _on_time(self) -> None:
        if self.until <= self.now:
            self.until = inf
            self.wake()

    # -- outcomes --------------------------------------------------------------------------------

    def on_outcome(self, key: object) -> None:
        number: Any = key
        if number in self.outcomes:
            raise ViolationError(f"record {number} has two outcomes")
        batch, index = self.places.pop(number)
        found = batch.outcome_of(index)
        if found is None:
            raise ViolationError(f"the outcome of record {number} is not known when it is reported")
        outcome, place = found
        error = batch.record_error(index)
        if error is None:
            self.outcomes[number] = "ok"
            self._check_place(number, batch, outcome, place)
            return
        if isinstance(error, DeliveryTimeoutError) and not self.timed_out:
            raise ViolationError(f"record {number} expires although nothing keeps it: {error}")
        if self.config.retries < UNLIMITED and error.retriable:
            self._check_retries(number, batch, error)
        persisted = error.persistence is not Persistence.NOT_PERSISTED
        self.outcomes[number] = "maybe" if persisted else "no"
        if persisted and batch.last_error is None and not batch.on_wire:
            raise ViolationError(f"record {number} was never sent, and may be written: {error}")
        if persisted and "its records are not written" in (error.advice or ""):
            raise ViolationError(f"record {number} may be written, and its error says no: {error}")
        if self.config.lossless:
            raise ViolationError(
                f"record {number} fails although it could have been written: {error}"
            )

    def _check_retries(self, number: int, batch: ProducerBatch, error: KafkaError) -> None:
        """A record fails for want of retries only after all of them, or when its time is over."""
        tries, retries = self.tries.get(number, 0), self.config.retries
        is_over = self.now - batch.created_at >= DELIVERY_TIMEOUT_S
        if tries <= retries and not is_over and not self.is_closing:
            raise ViolationError(
                f"record {number} fails after {tries} attempts, with {retries=}: {error}"
            )

    def _check_place(
        self, number: int, batch: ProducerBatch, outcome: BatchOutcome, place: int
    ) -> None:
        if number not in self.written:
            raise ViolationError(f"record {number} is acknowledged and was never written")
        if outcome.base_offset is None or batch.topic_id != self.topic_id:
            return
        log = self.logs[batch.topic_partition.partition]
        offset = outcome.base_offset + place
        if offset >= log.start and log.at(offset) != number:
            raise ViolationError(f"record {number} is not at the offset {offset} that was reported")

    def on_data_loss(self, lost: LostRecords) -> None:
        if self.config.by_name and self.incarnation > 1:
            return  # the acknowledged records were deleted
        raise ViolationError(f"a loss is reported: {lost}")

    def on_producer_expired(self, expired: ExpiredProducer) -> None:
        if not self.has_expired_producer:
            raise ViolationError(f"no broker has dropped the producer's state: {expired}")


def _copied(frames: tuple[tuple[int, int, Encoded], ...]) -> tuple[tuple[int, int, Encoded], ...]:
    return tuple(
        (partition, incarnation, replace(batch, memory=bytearray(batch.ids)))
        for partition, incarnation, batch in frames
    )


_TOPIC_IDS: dict[int, UUID] = {}


def _topic_id(incarnation: int) -> UUID:
    known = _TOPIC_IDS.get(incarnation)
    if known is None:
        known = _TOPIC_IDS[incarnation] = UUID(int=100 + incarnation)
        share(known)
    return known
