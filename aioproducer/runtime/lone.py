"""A record that finds nothing under way: its request is written in its `send()`, without a turn.

Owns: what the requests of one partition have in common, when a record may go out with it, what is
put off until somebody looks, the reading of its usual answer. Must not know: how a batch is
accounted for, what becomes of a request that fails.

An ordinary batch is queued, found due, drained and encoded for its node, together with what else is
due there: some 130 calls, which a lone record pays alone, and all of them between `send()` and the
write. Where nothing else can be due the outcome is known beforehand. So the request is written, and
nothing is noted of it: mostly its answer is the next thing that happens. Then whoever awaits the
record goes on, the record is accounted for behind his back, and everything is prepared for another.

    nothing --a record, nothing under way--> ready --it is written--> in the air --> answered
    answered --followed up--> ready

Whoever asks the accumulator or the connection for anything that depends on it (`before_look`,
`Connection.watch`) is looking, and gets to see what he would have seen always:

    ready: what was prepared is given up               in the air: batch and request are noted
    answered: the batch is let go and counted

Invariants
- Noted, it is as the sender would have left it: the same batch, held, numbered and in flight. So
  nobody can tell, and whatever goes wrong goes the usual way.
- While it is ready or in the air, nobody has looked: nothing else is under way, no batch waits, the
  identity and the sequences are those it was made with.
- What is kept of a partition is believed for the metadata and the connection it was learned with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.errors import KafkaError, SerializationError
from aioproducer.net.in_flight import InFlightRequest
from aioproducer.net.versions import BrokerVersions
from aioproducer.records import request_alone
from aioproducer.records.batch import EncodedBatch, encode_alone
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for
from aioproducer.runtime.delivery import usual_outcome
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.produce import USUAL_END, ProduceForm
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.core.cluster import ClusterSnapshot
    from aioproducer.core.metadata import Metadata
    from aioproducer.core.outgoing import OutgoingRecord
    from aioproducer.core.sender import Sender
    from aioproducer.net.client import NetworkClient
    from aioproducer.net.connection import Connection
    from aioproducer.net.link import BrokerLink
    from aioproducer.records.protocol import BatchBuilder
    from aioproducer.runtime.alarm import Alarm
    from aioproducer.wire.primitives import Buffer


_COPIED_BYTES = 4096
"""A record up to this size is copied into its request: one piece is written sooner than three."""

OnAnswer = Callable[[int, Sequence[ProducerBatch], Message | None, KafkaError | None], None]


class _Way(NamedTuple):
    node_id: int
    link: BrokerLink
    versions: BrokerVersions
    version: int
    place: TopicPartition
    topic_id: UUID
    leader_epoch: int
    form: ProduceForm


class _Flight:
    """One record's way to its broker and back; made before there is a record, where that can be."""

    __slots__ = (
        "answered_at",
        "batch",
        "builder",
        "connection",
        "correlation_id",
        "encoded",
        "frame",
        "front",
        "numbers",
        "received",
        "usual_answer",
        "way",
    )

    def __init__(
        self,
        way: _Way,
        connection: Connection,
        numbers: tuple[int, int, int],
        batch: ProducerBatch,
        builder: BatchBuilder,
    ) -> None:
        self.way: _Way = way
        self.connection: Connection = connection
        self.numbers: tuple[int, int, int] = numbers
        self.batch: ProducerBatch = batch
        self.builder: BatchBuilder = builder
        self.correlation_id: int = connection.next_correlation_id()
        self.usual_answer: bytes = way.form.usual_answer(self.correlation_id)
        self.front: bytes = way.form.front(self.correlation_id)
        self.encoded: EncodedBatch | None = None
        self.frame: Sequence[Buffer] = ()
        self.answered_at: float | None = None
        self.received: int = 0
        """Bytes of the answer."""

    def encode(self) -> EncodedBatch:
        """The batch as the sender would have it, in pieces."""
        self.encoded = encode_alone(self.builder, *self.numbers)
        return self.encoded


class LoneRecords:
    """Sends records that are alone.

    Args:
        acks: as `timeout`, of every request; an answer must be due.
        timeout: seconds a broker may take.
        on_answer: called with node, batches and what a request's `on_end` is told.
        on_failure: called with node, batches and what has kept the request from being written.
        on_interrupt: called with what is no `Exception`: whose batch it was is nobody's any more.

    Attributes:
        ready: what the next record goes out with; None when somebody has looked since the last one.
        answered: whether there was an answer that nobody has followed up.
        cluster: the metadata for which records may go out like that.
        alarm: the sender's; none goes out while that is awake.
        on_ready: told of a batch: its builder may get one record, if `launch` follows at once.
    """

    def __init__(
        self,
        sender: Sender,
        client: NetworkClient,
        metadata: Metadata,
        alarm: Alarm,
        *,
        client_id: str | None,
        acks: int,
        timeout: float,
        loop_time: Callable[[], float],
        before_answer: Callable[[], None],
        resume: Callable[[], None],
        on_answer: OnAnswer,
        on_failure: Callable[[int, Sequence[ProducerBatch], BaseException], None],
        on_interrupt: Callable[[BaseException], None],
    ) -> None:
        self._sender = sender
        self._accumulator = sender.accumulator
        self._client = client
        self._metadata = metadata
        self.alarm: Alarm = alarm
        self._client_id = client_id
        self._acks = acks
        self._timeout = timeout
        self._delivery_timeout = self._accumulator.settings.delivery_timeout
        self._usual_size = self._accumulator.settings.first_size(0)
        self._flight: _Flight | None = None
        self.ready: _Flight | None = None
        self.answered: bool = False
        self._loop_time = loop_time
        self._before_answer = before_answer
        self._resume = resume
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._on_interrupt = on_interrupt
        self.cluster: ClusterSnapshot | None = None
        self.on_ready: Callable[[ProducerBatch], None] = lambda batch: None
        self._ways: dict[tuple[str, int], _Way] = {}

    def learn(self, node_id: int, batch: ProducerBatch, version: int) -> None:
        """A batch went out alone, the usual way: the next record may follow it."""
        if self.cluster is not self._metadata.cluster:
            self.cluster = self._metadata.cluster
            self._ways.clear()
        place, link = batch.topic_partition, self._client.link(node_id)
        if link is None or link.versions is None or self._metadata.leader_of(place) != node_id:
            return
        if magic_for(version) != MAGIC:
            return
        known = self._ways.get(place)
        if known is None or known.versions is not link.versions:
            topic_id = batch.topic_id
            form = ProduceForm(
                version,
                self._client_id,
                acks=self._acks,
                timeout_ms=round(self._timeout * 1000),
                topic=place.topic,
                topic_id=topic_id,
                partition=place.partition,
            )
            epoch = self._metadata.leader_epoch(*place)
            self._ways[place] = _Way(
                node_id, link, link.versions, version, place, topic_id, epoch, form
            )

    def try_send(self, record: OutgoingRecord, partition: int, now: float) -> ProducerBatch | None:
        """Writes the record's request; None if it has to queue.

        To be asked when the accumulator is `quiet`, or this is `ready`.

        Raises:
            SerializationError: key, value or headers are nothing that can be written.
        """
        if self.cluster is not self._metadata.cluster or not self.alarm.is_asleep:
            return None
        topic, flight = record.meta.name, self.ready
        if (
            flight is None
            or flight.way.place != (topic, partition)
            or flight.batch.size < record.size
        ):
            self._accumulator.settle()
            size = self._accumulator.settings.first_size(record.size)
            flight = self._prepare((topic, partition), size, now)
            if flight is None:
                return None
        parts = (record.timestamp_ms, record.key, record.value, record.headers)
        try:
            if flight.builder.try_append(*parts) < 0:
                held = flight.batch.size
                raise ValueError(f"a buffer of {held} bytes does not hold the record it is for")
        except (TypeError, ValueError) as error:
            self._accumulator.settle()
            raise SerializationError(str(error), topic=topic) from error
        self.launch()
        return flight.batch

    def launch(self) -> None:
        """What was `ready` has got its record: writes the request."""
        flight = self.ready
        if flight is None:
            raise RuntimeError("nothing was ready for a record")
        flight.batch.created_at = now = self._loop_time()
        self.ready, self._flight = None, flight
        try:
            failure, builder, form = None, flight.builder, flight.way.form
            try:
                if builder.size <= _COPIED_BYTES:
                    frame: Sequence[Buffer] = (
                        request_alone(
                            builder, flight.front, form.back, form.is_flexible, *flight.numbers
                        ),
                    )
                else:
                    frame = form.filled(flight.correlation_id, flight.encode().buffers)
                flight.frame = frame
                flight.connection.write(frame)
            except Exception as error:
                failure = error
            self._metadata.add_topic(flight.way.place.topic, now)
            if failure is None:
                if now + self._delivery_timeout < self.alarm.until:
                    self.alarm.advance(now + self._delivery_timeout)
                flight.connection.postpone(now + self._timeout)
            else:
                self._on_failed(self._note(), failure)
        except BaseException as interrupt:
            self._on_interrupt(interrupt)
            raise

    def is_answered_by(self, data: bytes) -> bool:
        """Whether that was the usual answer, and all; who awaits the record may go on then."""
        flight = self._flight
        if flight is None:
            return False
        outcome = usual_outcome(data, flight.usual_answer, USUAL_END)
        if outcome is None:
            return False
        self.answered = True
        flight.received = len(data)
        flight.answered_at = self._loop_time()
        self._before_answer()
        flight.batch.complete(outcome)
        self._resume()
        return True

    def follow_up(self) -> bool:
        """Leaves an acknowledged record as the sender would have left it; who awaited it went on.

        True if there is nothing to do then but to wait for the next one, or for its answer.
        """
        self.answered = False
        flight = self._flight
        if flight is None or flight.answered_at is None:
            return flight is not None
        self._acknowledge(flight, flight.answered_at)
        way = flight.way
        if self.cluster is not self._metadata.cluster or not self._accumulator.quiet:
            return False
        if way.link.steady_connection is not flight.connection:
            return False
        # Larger memory is made for a record, not kept for one that may never come.
        if flight.batch.size > self._usual_size:
            return False
        try:
            ready = self._prepare(way.place, self._usual_size, flight.answered_at)
        except KafkaError:
            return False  # the producer is being closed
        if ready is None:
            return False
        self.on_ready(ready.batch)
        return True

    def take_note(self) -> None:
        """Somebody is about to look: leaves everything as the sender would have left it."""
        flight, ready = self._flight, self.ready
        if ready is not None:
            self.ready = None
            ready.connection.watch(None)
            self._accumulator.give_up(ready.batch)
        elif flight is not None and flight.answered_at is not None:
            self._acknowledge(flight, flight.answered_at)
        elif flight is not None:
            try:
                self._track(self._note())
            except BaseException as interrupt:
                self._on_interrupt(interrupt)
                raise

    # -- private ---------------------------------------------------------------------------------

    def _prepare(self, place: tuple[str, int], size: int, now: float) -> _Flight | None:
        """Makes everything `ready` for a record of this partition, if it may go out now."""
        way = self._ways.get(place)
        if way is None or way.link.versions is not way.versions:
            return None
        connection = way.link.ready_connection(now)
        if connection is None:
            return None
        numbers = self._accumulator.sequencer.numbers_of_next(way.place)
        if numbers is None:
            return None
        batch = self._accumulator.begin_alone(way.place, size, now, note=self.take_note)
        if batch is None or batch.builder is None:
            return None
        connection.watch(self)
        self.ready = _Flight(way, connection, numbers, batch, batch.builder)
        return self.ready

    def _acknowledge(self, flight: _Flight, answered_at: float) -> None:
        self._flight = None
        node_id, batch = flight.way.node_id, flight.batch
        flight.connection.forget(flight.frame, batch.created_at, flight.received, answered_at)
        self._sender.on_acknowledged_alone(node_id, batch, flight.numbers, answered_at)

    def _note(self) -> _Flight:
        """Notes a record that was written: its batch is in flight."""
        flight, self._flight = self._flight, None
        if flight is None:
            raise RuntimeError("no record is in the air")
        way, batch = flight.way, flight.batch
        flight.connection.watch(None)
        self._accumulator.take_note(batch, flight.encoded or flight.encode(), way.leader_epoch)
        batch.topic_id = way.topic_id
        self._accumulator.sequencer.on_sent(batch, flight.numbers)
        return flight

    def _track(self, flight: _Flight) -> None:
        """Has the connection wait for the answer."""
        way, batch = flight.way, flight.batch
        request = InFlightRequest(
            ProduceRequest,
            way.version,
            flight.correlation_id,
            flight.frame,
            batch.created_at + self._timeout,
            partial(self._on_answer, way.node_id, [batch]),
        )
        flight.connection.track(request, sent_at=batch.created_at)
        self._sender.on_sent_alone(way.node_id, batch)

    def _on_failed(self, flight: _Flight, failure: Exception) -> None:
        """The request could not be written."""
        if isinstance(failure, OSError | RuntimeError):
            # Not sooner: it is told at once to others, who may send.
            failure = flight.connection.broken_by(failure)
        self._on_failure(flight.way.node_id, [flight.batch], failure)
