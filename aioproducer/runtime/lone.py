"""A record that finds nothing under way: its request is written in its `send()`, without a turn.

Owns: what the requests of one partition have in common, when a record may go out with it. Must not
know: how a batch is made and accounted for, what becomes of the request.

An ordinary batch is queued, found due, drained and encoded for its node, together with what else is
due there: some 130 calls, which a lone record pays alone, and all of them between `send()` and the
write. Where nothing else can be due the outcome is known beforehand.

Invariants
- It is left as the sender would have left it: the same batch, held, numbered and in flight, its
  answer with the same callback. So nobody can tell, and whatever goes wrong goes the usual way.
- What is kept of a partition is believed for the metadata and the connection it was learned with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.net.versions import BrokerVersions
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for
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
    from aioproducer.runtime.alarm import Alarm
    from aioproducer.runtime.encoder import BatchEncoder


class _Way(NamedTuple):
    node_id: int
    versions: BrokerVersions
    version: int
    topic_id: UUID
    form: ProduceForm


class LoneRecords:
    """Sends records that are alone.

    Args:
        encoder: it must not compress, which may take a thread.
        acks: as `timeout`, of every request; an answer must be due.
        timeout: seconds a broker may take.
        on_answer: called with node, batches and the future of the answer.
        on_failure: called with node, batches and what has kept the request from being written.
        on_interrupt: called with what is no `Exception`: whose batch it was is nobody's any more.
    """

    def __init__(
        self,
        sender: Sender,
        client: NetworkClient,
        metadata: Metadata,
        encoder: BatchEncoder,
        alarm: Alarm,
        *,
        client_id: str | None,
        acks: int,
        timeout: float,
        on_answer: Callable[[int, Sequence[ProducerBatch], asyncio.Future[Message | None]], None],
        on_failure: Callable[[int, Sequence[ProducerBatch], BaseException], None],
        on_interrupt: Callable[[BaseException], None],
    ) -> None:
        self._sender = sender
        self._accumulator = sender.accumulator
        self._client = client
        self._metadata = metadata
        self._encoder = encoder
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
            form = ProduceForm(
                version,
                self._client_id,
                acks=self._acks,
                timeout_ms=round(self._timeout * 1000),
                topic=place.topic,
                topic_id=batch.topic_id,
                partition=place.partition,
            )
            self._ways[place] = _Way(node_id, link.versions, version, batch.topic_id, form)

    def try_send(
        self, record: OutgoingRecord, partition: int, now: float, *, buffer: bytearray, size: int
    ) -> ProducerBatch | None:
        """Writes the record's request; None, and the buffer is the caller's, if it has to queue.

        Raises:
            TypeError, ValueError: as the accumulator's `append_in_new_batch`.
        """
        accumulator = self._accumulator
        if self._cluster is not self._metadata.cluster or not accumulator.quiet:
            return None
        way = self._ways.get((record.meta.name, partition))
        if way is None or not self._alarm.is_asleep:
            return None
        node_id = way.node_id
        link = self._client.link(node_id)
        if link is None or link.versions is not way.versions or not link.is_ready(now):
            return None
        connection = link.connection
        if connection is None:
            return None
        batch = accumulator.hand_out_alone(record, partition, now, buffer=buffer, size=size)
        if batch is None:
            return None
        batch.topic_id = way.topic_id
        batches = [batch]
        try:
            self._write(way, connection, batches, now)
        except Exception as error:
            self._on_failure(node_id, batches, error)
            return batch
        except BaseException as error:
            self._on_interrupt(error)
            raise
        self._sender.on_sent_alone(node_id, batches, now)
        self._alarm.advance(accumulator.next_expiry_at)
        return batch

    def _write(
        self, way: _Way, connection: Connection, batches: Sequence[ProducerBatch], now: float
    ) -> None:
        (batch,) = batches
        encoded = self._encoder.encode_plain(batch)
        correlation_id = connection.next_correlation_id()
        connection.send(
            way.form.filled(correlation_id, encoded.buffers),
            correlation_id=correlation_id,
            request_type=ProduceRequest,
            version=way.version,
            deadline=now + self._timeout,
            on_end=partial(self._on_answer, way.node_id, batches),
        )
