"""Records that find nothing else under way: their requests are written in `send()`, without a turn.

Owns: when a record may go out alone, what is put off until somebody looks, the reading of its usual
answer. Must not know: how a batch is accounted for, what becomes of a request that fails.

An ordinary batch is queued, found due, drained and encoded for its node, together with what else is
due there: some 130 calls, which a lone record pays alone, and all of them between `send()` and the
write. Where nothing else can be due the outcome is known beforehand. So the request is written, and
nothing is noted of it: mostly its answer is the next thing that happens. Then whoever awaits the
record goes on, the record is accounted for behind his back, and everything is prepared for another.

    nothing --a record, nothing under way--> ready --it is written--> in the air --> answered
    answered --followed up--> ready

Another one may follow while some are in the air, unless it is part of a burst, which gathers.
Whoever asks the accumulator or the connection for anything that depends on them (`before_look`,
`Connection.watch`) is looking, and gets to see what he would have seen always:

    ready: what was prepared is given up               in the air: batch and request are noted
    answered: the batch is let go and counted

Invariants
- Noted, it is as the sender would have left it: the same batch, held, numbered and in flight. So
  nobody can tell, and whatever goes wrong goes the usual way.
- While it is ready or in the air, nobody has looked: nothing is under way that is not of this kind,
  no batch waits, the identity and the sequences are those it was made with.
- In the air they are in the order in which they were written, which is that of their sequences and,
  on each connection, of their answers.
- What is kept of a partition is believed for the metadata and the connection it was learned with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.errors import KafkaError, SerializationError
from aioproducer.net.in_flight import InFlightRequest
from aioproducer.records import request_alone
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for
from aioproducer.runtime.delivery import usual_outcome
from aioproducer.runtime.flight import Flight, Way
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.produce import USUAL_END, ProduceForm
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.core.metadata import Metadata
    from aioproducer.core.outgoing import OutgoingRecord
    from aioproducer.core.sender import Sender
    from aioproducer.net.client import NetworkClient
    from aioproducer.net.connection import Connection
    from aioproducer.runtime.alarm import Alarm


_COPIED_BYTES = 4096
"""A record up to this size is copied into its request: one piece is written sooner than three."""

OnAnswer = Callable[[int, Sequence[ProducerBatch], Message | None, KafkaError | None], None]


class LoneRecords:
    """Sends records that are alone.

    Args:
        acks: as `timeout`, of every request; an answer must be due.
        timeout: seconds a broker may take.
        on_answer: called with node, batches and what a request's `on_end` is told.
        on_failure: called with node, batches and why no request could be made of them.
        on_interrupt: called with what is no `Exception`: whose batch it was is nobody's any more.

    Attributes:
        ready: what the next record goes out with, while none is in the air; None when somebody has
            looked since the last one.
        answered: what has got its answer, that nobody has followed up.
        version: of the metadata for which records may go out like that, None at first.
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
        self._air: list[Flight] = []
        self.ready: Flight | None = None
        self.answered: list[Flight] = []
        self._loop_time = loop_time
        self._before_answer = before_answer
        self._resume = resume
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._on_interrupt = on_interrupt
        self.version: int | None = None
        self.on_ready: Callable[[ProducerBatch], None] = lambda batch: None
        self._ways: dict[tuple[str, int], Way] = {}

    def learn(self, node_id: int, batch: ProducerBatch, version: int) -> None:
        """A batch went out alone, the usual way: the next record may follow it."""
        if self.version != self._metadata.version:
            self.version = self._metadata.version
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
            self._ways[place] = Way(
                node_id, link, link.versions, version, place, topic_id, epoch, form
            )

    def batches(self) -> list[ProducerBatch]:
        """Return the batches of this kind that an exception may leave without an end."""
        for flight in self._air:
            flight.batch.on_wire = True
        flights = [*self._air, *self.answered]
        if self.ready is not None:
            flights.append(self.ready)
        return [flight.batch for flight in flights]

    @property
    def is_under_way(self) -> bool:
        """Whether something is ready or in the air, and nothing else is under way."""
        return self.ready is not None or bool(self._air)

    def try_send(self, record: OutgoingRecord, partition: int, now: float) -> ProducerBatch | None:
        """Writes the record's request; None if it has to queue.

        To be asked when the accumulator is `quiet`, or this `is_under_way`.

        Raises:
            SerializationError: key, value or headers are nothing that can be written.
        """
        if self.version != self._metadata.version or not self.alarm.is_asleep:
            return None
        topic, flight = record.meta.name, self.ready
        if (
            flight is None
            or flight.way.place != (topic, partition)
            or flight.batch.size < record.size
        ):
            if self._air and self.alarm.is_burst:
                self.alarm.ring()  # what follows gathers, however long that takes
                return None
            self._give_up_ready()
            self._follow_up_all()
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
        try:
            flight.batch.created_at = now = self._loop_time()
            self._air.append(flight)
            self.ready = None
            builder, form = flight.builder, flight.way.form
            try:
                if builder.size <= _COPIED_BYTES:
                    flight.frame = (
                        request_alone(
                            builder, flight.front, form.back, form.is_flexible, *flight.numbers
                        ),
                    )
                else:
                    flight.frame = form.filled(flight.correlation_id, flight.encode().buffers)
            except Exception as error:
                self._on_unwritten(flight, error)
            else:
                flight.connection.write(flight.frame)
                if now + self._delivery_timeout < self.alarm.until:
                    self.alarm.advance(now + self._delivery_timeout)
                flight.connection.postpone(now + self._timeout)
            self.alarm.on_acted()
            self._metadata.add_topic(flight.way.place.topic, now)
        except BaseException as interrupt:
            self._on_interrupt(interrupt)
            raise

    def in_flight(self, connection: Connection) -> int:
        """See `Unnoted`."""
        air = self._air
        return len([flight for flight in air if flight.connection is connection]) if air else 0

    def is_answered_by(self, connection: Connection, data: bytes) -> bool:
        """Whether that was the usual answer, and all; who awaits the record may go on then."""
        for flight in self._air:
            if flight.connection is connection:
                break
        else:
            return False
        outcome = usual_outcome(data, flight.usual_answer, USUAL_END)
        if outcome is None:
            return False
        try:
            flight.batch.on_wire = True
            self.answered.append(flight)  # before it leaves the other list: one has it always
            self._air.remove(flight)
            flight.received = len(data)
            flight.answered_at = self._loop_time()
            if self._air:
                self.alarm.on_acted()
            self._before_answer()
            flight.batch.complete(outcome)
            self._resume()
        except BaseException as interrupt:
            self._on_interrupt(interrupt)
            raise
        return True

    def follow_up(self) -> bool:
        """Leaves acknowledged records as the sender would have left them; who awaited them went on.

        True if there is nothing to do then but to wait for the next one, or for an answer.
        """
        if not self.answered:
            return bool(self._air)
        last = self.answered[-1]
        self._follow_up_all()
        way, now = last.way, last.answered_at
        if self.version != self._metadata.version:
            return False
        if self._air:
            return True
        if not self._accumulator.quiet or way.link.steady_connection is not last.connection:
            return False
        # Larger memory is made for a record, not kept for one that may never come.
        if last.batch.size > self._usual_size:
            return False
        try:
            ready = self._prepare(way.place, self._usual_size, now)
        except KafkaError:
            return False  # the producer is being closed
        if ready is None:
            return False
        self.on_ready(ready.batch)
        return True

    def take_note(self) -> None:
        """Somebody is about to look: leaves everything as the sender would have left it."""
        self._give_up_ready()
        self._follow_up_all()
        air = self._air
        try:
            self._air = []
            self._accumulator.watch(None)
            for flight in air:
                flight.connection.watch(None)
            while air:
                flight = air[0]
                if not flight.batch.holds:  # else an exception came after it was noted
                    self._note(flight)
                self._track(flight)
                air.pop(0)
        except BaseException as interrupt:
            if air:
                self._air = air
                self._accumulator.watch(self.take_note)
            self._on_interrupt(interrupt)
            raise

    # -- private ---------------------------------------------------------------------------------

    def _prepare(self, place: tuple[str, int], size: int, now: float) -> Flight | None:
        """Makes everything `ready` for a record of this partition, if it may go out now."""
        way = self._ways.get(place)
        if way is None or way.link.versions is not way.versions:
            return None
        connection = way.link.ready_connection(now)
        if connection is None:
            return None
        air = self._air
        behind = len([flight for flight in air if flight.way.place == place]) if air else 0
        numbers = self._accumulator.sequencer.numbers_of_next(way.place, now, behind)
        if numbers is None:
            return None
        batch = self._accumulator.begin_alone(way.place, size, now)
        if batch is None or batch.builder is None:
            return None
        self._accumulator.watch(self.take_note)
        connection.watch(self)
        self.ready = Flight(way, connection, numbers, batch, batch.builder)
        return self.ready

    def _give_up_ready(self) -> None:
        ready, self.ready = self.ready, None
        if ready is not None:
            self._accumulator.give_up(ready.batch)
            self._forget(ready.connection)

    def _follow_up_all(self) -> None:
        while self.answered:
            flight = self.answered.pop(0)
            batch, answered_at = flight.batch, flight.answered_at
            batch.topic_id = flight.way.topic_id
            self._forget(flight.connection)
            flight.connection.forget(flight.frame, batch.created_at, flight.received, answered_at)
            self._sender.on_acknowledged_alone(
                flight.way.node_id, batch, flight.numbers, answered_at
            )

    def _forget(self, connection: Connection) -> None:
        """One less is unnoted that was on this connection."""
        if not self._air and not self.answered:
            self._accumulator.watch(None)
        if not self.in_flight(connection):
            connection.watch(None)

    def _note(self, flight: Flight) -> None:
        """A record was written: its batch is in flight."""
        way, batch = flight.way, flight.batch
        self._accumulator.take_note(batch, flight.encoded or flight.encode(), way.leader_epoch)
        batch.topic_id = way.topic_id
        self._accumulator.sequencer.on_sent(batch, flight.numbers)

    def _track(self, flight: Flight) -> None:
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

    def _on_unwritten(self, flight: Flight, failure: Exception) -> None:
        """No request could be made of the record: nothing was given to the transport."""
        self._air.remove(flight)
        self.take_note()  # of those before it
        flight.connection.watch(None)
        self._note(flight)
        self._on_failure(flight.way.node_id, [flight.batch], failure)
