"""Direct sends: the request of a single record is written in its `send()`, without a turn.

An ordinary batch is queued, found due, drained and encoded for its node together with others. When
no other batch waits, the result of these steps is known, and `DirectSends.send` does them in one
call. The batch gets its sequence number and is counted and tracked before a byte is written, as
every batch. Only two things differ: the request is filled into a template, and its expected
response is recognised without being decoded. Any other response, or none, is handled as usual.

The spare is an empty batch for the next record, open in the fast path although no queue has it. If
its first record may not be sent directly, it is queued as any new batch. Its memory counts as free.
With linger there is no spare, and only a record that is awaited by the one task that sends is sent
directly: see `core/batching/adaptive_linger.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.errors import KafkaError
from aioproducer.net.in_flight import InFlightRequest
from aioproducer.net.versions import BrokerVersions
from aioproducer.records import single_record_request
from aioproducer.records.batch import encode_single_record
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for
from aioproducer.runtime.delivery import decode_plain_acknowledgement
from aioproducer.runtime.tasks.wakeup import WakeupTimer
from aioproducer.types import TopicPartition
from aioproducer.wire.messages.produce import ProduceRequest
from aioproducer.wire.produce import ACKNOWLEDGEMENT_SUFFIX, ProduceRequestTemplate
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.core.sending.sender import Sender
    from aioproducer.net.connection import Connection
    from aioproducer.net.link import BrokerLink
    from aioproducer.records.protocol import BatchBuilder
    from aioproducer.wire.primitives import Buffer


_COPIED_BYTES = 4096
"""A record up to this size is copied into its request: one piece is written sooner than three."""

OnEnd = Callable[[int, Sequence[ProducerBatch], Message | None, KafkaError | None], None]


class Route(NamedTuple):
    """Common parts of the requests for one partition, while metadata and connection are valid."""

    node_id: int
    link: BrokerLink
    versions: BrokerVersions
    version: int
    topic_id: UUID
    leader_epoch: int
    template: ProduceRequestTemplate


class DirectSends:
    """Sends batches of one record without a turn of the sender task.

    Args:
        may_leave: whether a record may leave now, see `SenderTask`; wakes that if not.
        wakeup: of the sender task, whose next turn is at the expiry of a sent batch at the latest.
        before_answer: called before an answer is handled.
        on_end: called with node, batches, and the end of a request that is not the expected one.
        on_failure: called with node, batches and why no request could be made of them.
        on_interrupt: called with an exception in the middle of an answer, and the batches.

    Attributes:
        acknowledged: the partition of the last acknowledged record, until `pop_acknowledged`.
    """

    def __init__(
        self,
        sender: Sender,
        metadata: Metadata,
        *,
        client_id: str | None,
        acks: int,
        timeout: float,
        loop_time: Callable[[], float],
        wakeup: WakeupTimer,
        may_leave: Callable[[], bool],
        before_answer: Callable[[], None],
        on_end: OnEnd,
        on_failure: Callable[[int, Sequence[ProducerBatch], BaseException], None],
        on_interrupt: Callable[[BaseException, Sequence[ProducerBatch]], None],
    ) -> None:
        self._sender = sender
        self._accumulator = sender.accumulator
        self._pool = sender.accumulator.pool
        self._metadata = metadata
        self._client_id = client_id
        self._acks = acks
        self._timeout = timeout
        settings = self._accumulator.settings
        self._delivery_timeout = settings.delivery_timeout
        self._spare_size = settings.first_size(0)
        self._loop_time = loop_time
        self._wakeup = wakeup
        self._may_leave = may_leave
        self._before_answer = before_answer
        self._on_end = on_end
        self._on_failure = on_failure
        self._on_interrupt = on_interrupt
        self._version: int | None = None
        self._routes: dict[TopicPartition, Route] = {}
        self._spare: ProducerBatch | None = None
        self.acknowledged: TopicPartition | None = None

    # -- routes ----------------------------------------------------------------------------------

    def learn(self, node_id: int, link: BrokerLink, batch: ProducerBatch, version: int) -> None:
        """Store how the sender task has sent a batch, for direct sends to the same partition."""
        if self._version != self._metadata.version:
            self._version = self._metadata.version
            self._routes.clear()
        place = batch.topic_partition
        if (
            link.versions is None
            or self._metadata.leader_of(place) != node_id
            or magic_for(version) != MAGIC
        ):
            return
        known = self._routes.get(place)
        if known is None or known.versions is not link.versions:
            template = ProduceRequestTemplate(
                version,
                self._client_id,
                acks=self._acks,
                timeout_ms=round(self._timeout * 1000),
                topic=place.topic,
                topic_id=batch.topic_id,
                partition=place.partition,
            )
            epoch = self._metadata.leader_epoch(*place)
            self._routes[place] = Route(
                node_id, link, link.versions, version, batch.topic_id, epoch, template
            )

    # -- the spare -------------------------------------------------------------------------------

    def spare_for(self, place: TopicPartition) -> ProducerBatch | None:
        """Return an empty batch for the next record of a partition; None without memory.

        There is one spare: that of another partition is dropped.
        """
        spare = self._spare
        if spare is not None:
            if spare.topic_partition == place and not spare.count:
                return spare
            self.drop_spare()
        size = self._spare_size
        buffer = self._pool.expose(self.drop_spare) if size == self._pool.poolable else None
        if buffer is None:
            return None
        self._spare = spare = self._accumulator.begin_spare(place, buffer, size)
        return spare

    def claim_spare(self) -> ProducerBatch:
        """Return the spare, which has got its record and is in use from now on."""
        spare, self._spare = self._spare, None
        if spare is None:
            raise RuntimeError("a record was appended to a spare batch that was given up")
        self._pool.keep_exposed()
        return spare

    def drop_spare(self) -> None:
        """Give up the spare: no record is appended to it any more."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.take_buffer()
        self._pool.return_exposed()

    def pop_acknowledged(self) -> TopicPartition | None:
        """Return the partition of the last record acknowledged since the last call, if any."""
        place, self.acknowledged = self.acknowledged, None
        return place

    # -- sending ---------------------------------------------------------------------------------

    def send(self, batch: ProducerBatch, now: float) -> bool:
        """Write the request of a new batch with one record; False if it has to be queued."""
        route, builder = self._routes.get(batch.topic_partition), batch.builder
        if (
            route is None
            or builder is None
            or builder.count != 1  # an exception came after the spare had got its first
            or self._version != self._metadata.version
            or route.link.versions is not route.versions
            or not self._may_leave()
        ):
            return False
        connection = route.link.ready_connection(now)
        if connection is None or not self._accumulator.try_hand_out(batch, now, route.leader_epoch):
            return False
        batch.topic_id = route.topic_id
        try:
            request = self._request(route, connection, batch, builder, now)
            batch.on_wire = True
            connection.begin(request)
        except Exception as error:
            self._on_failure(route.node_id, [batch], error)
        else:
            self._wakeup.advance(now + self._delivery_timeout)
            self._wakeup.on_acted()
            self._sender.on_dispatched_directly(route.node_id, batch)
        return True

    def _request(
        self,
        route: Route,
        connection: Connection,
        batch: ProducerBatch,
        builder: BatchBuilder,
        now: float,
    ) -> InFlightRequest:
        template, correlation_id = route.template, connection.next_correlation_id()
        expected = template.acknowledgement_prefix(correlation_id)
        numbers = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        frame: Sequence[Buffer]
        if builder.size <= _COPIED_BYTES:
            prefix = template.prefix(correlation_id)
            frame = (
                single_record_request(
                    builder, prefix, template.suffix, template.is_flexible, *numbers
                ),
            )
        else:
            batch.encoded = encode_single_record(builder, *numbers)
            frame = template.render(correlation_id, batch.encoded.buffers)
        return InFlightRequest(
            ProduceRequest,
            route.version,
            correlation_id,
            frame,
            now + self._timeout,
            partial(self._on_answer, route.node_id, batch),
            recognise=partial(decode_plain_acknowledgement, expected, ACKNOWLEDGEMENT_SUFFIX),
        )

    def _on_answer(
        self,
        node_id: int,
        batch: ProducerBatch,
        answer: Message | BatchOutcome | None,
        failure: KafkaError | None,
    ) -> None:
        try:
            if not isinstance(answer, BatchOutcome):
                self._on_end(node_id, [batch], answer, failure)
                return
            self._wakeup.on_acted()
            self._before_answer()
            self._sender.on_acknowledged(batch, answer, self._loop_time())
            self.acknowledged = batch.topic_partition
        except BaseException as error:
            self._on_interrupt(error, [batch])
            raise
