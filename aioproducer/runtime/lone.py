"""A record that finds nothing under way: its request is written in its `send()`, without a turn.

Owns: what the requests of one partition have in common, when a record may go out with it, the
reading of its usual answer. Must not know: how a batch is accounted for, what becomes of a request
that fails.

An ordinary batch is queued, found due, drained and encoded for its node, together with what else is
due there: some 130 calls, which a lone record pays alone, and all of them between `send()` and the
write. Where nothing else can be due the outcome is known beforehand, so the request is written
first and taken note of while the broker is at work.

Invariants
- It is left as the sender would have left it: the same batch, held, numbered and in flight. So
  nobody can tell, and whatever goes wrong goes the usual way.
- Nothing runs between the write and the note.
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
from aioproducer.records import RecordBatchBuilder
from aioproducer.records.batch import encode_alone
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.produce import ProduceForm
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.core.cluster import ClusterSnapshot
    from aioproducer.core.metadata import Metadata
    from aioproducer.core.outgoing import OutgoingRecord
    from aioproducer.core.sender import Sender
    from aioproducer.net.client import NetworkClient
    from aioproducer.net.connection import Connection
    from aioproducer.net.link import BrokerLink
    from aioproducer.runtime.alarm import Alarm
    from aioproducer.wire.primitives import Buffer


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


class LoneRecords:
    """Sends records that are alone.

    Args:
        acks: as `timeout`, of every request; an answer must be due.
        timeout: seconds a broker may take.
        on_answer: called with node, batches and what a request's `on_end` is told.
        on_failure: called with node, batches and what has kept the request from being written.
        on_interrupt: called with what is no `Exception`: whose batch it was is nobody's any more.
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
        on_answer: OnAnswer,
        on_failure: Callable[[int, Sequence[ProducerBatch], BaseException], None],
        on_interrupt: Callable[[BaseException], None],
    ) -> None:
        self._sender = sender
        self._accumulator = sender.accumulator
        self._client = client
        self._metadata = metadata
        self._alarm = alarm
        self._client_id = client_id
        self._acks = acks
        self._timeout = timeout
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._on_interrupt = on_interrupt
        self._cluster: ClusterSnapshot | None = None
        self._ways: dict[tuple[str, int], _Way] = {}

    def learn(self, node_id: int, batch: ProducerBatch, version: int) -> None:
        """A batch went out alone, the usual way: the next record may follow it."""
        if self._cluster is not self._metadata.cluster:
            self._cluster = self._metadata.cluster
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

    def try_send(
        self, record: OutgoingRecord, partition: int, size: int, now: float
    ) -> ProducerBatch | None:
        """Writes the record's request; None if it has to queue.

        To be asked when the accumulator is `quiet`.

        Args:
            size: bytes of memory for its batch.

        Raises:
            SerializationError: key, value or headers are nothing that can be written.
        """
        way = self._ways.get((record.meta.name, partition))
        if way is None or self._cluster is not self._metadata.cluster or not self._alarm.is_asleep:
            return None
        link = way.link
        connection = link.ready_connection(now) if link.versions is way.versions else None
        if connection is None:
            return None
        numbers = self._accumulator.sequencer.numbers_of_next(way.place)
        if numbers is None:
            return None
        pool = self._accumulator.pool
        buffer = pool.try_allocate(size)
        if buffer is None:
            return None
        timestamp_ms = record.timestamp_ms
        try:
            builder = RecordBatchBuilder(buffer)
            if builder.try_append(timestamp_ms, record.key, record.value, record.headers) < 0:
                raise ValueError(f"a buffer of {size} bytes does not hold the record it is for")
        except (TypeError, ValueError) as error:
            pool.deallocate(buffer, size)
            raise SerializationError(str(error), topic=record.meta.name) from error
        encoded = encode_alone(builder.body(), timestamp_ms, numbers)
        try:
            frame: Sequence[Buffer] = ()
            correlation_id, failure = connection.next_correlation_id(), None
            try:
                frame = way.form.filled(correlation_id, (encoded.header, encoded.body))
                connection.write(frame)
            except Exception as error:
                failure = error
            batch = self._accumulator.take_note(
                way.place, builder, encoded, way.leader_epoch, now, buffer=buffer, size=size
            )
            batch.topic_id = way.topic_id
            self._accumulator.sequencer.on_sent(batch, numbers)
            self._follow(way, connection, batch, correlation_id, frame, now, failure)
        except BaseException as interrupt:
            self._on_interrupt(interrupt)
            raise
        return batch

    def _follow(
        self,
        way: _Way,
        connection: Connection,
        batch: ProducerBatch,
        correlation_id: int,
        frame: Sequence[Buffer],
        now: float,
        failure: Exception | None,
    ) -> None:
        """What follows a request that was written, or could not be."""
        if isinstance(failure, OSError | RuntimeError):
            # Not sooner: it is told at once to others, who may send.
            failure = connection.broken_by(failure)
        if failure is not None:
            self._on_failure(way.node_id, [batch], failure)
            return
        request = InFlightRequest(
            ProduceRequest,
            way.version,
            correlation_id,
            frame,
            now + self._timeout,
            partial(self._on_answer, way.node_id, [batch]),
            glance=way.form.glance,
        )
        connection.track(request)
        self._sender.on_sent_alone(way.node_id, batch, now)
        self._alarm.advance(now + self._accumulator.settings.delivery_timeout)
