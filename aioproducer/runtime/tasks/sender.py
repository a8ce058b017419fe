"""The sender task, which performs the actions that `core.sending` decides: start with `SenderTask`.

Invariants
- Responses are handled in the callback that reads them, not in tasks.
- A batch that is due while nothing is in flight is sent at once, without a turn of the task; later
  records are gathered until the task's turn, as with Nagle's algorithm (RFC 896). See `_may_leave`.
- While a loop of sends goes on without a pause, the task rests after its actions (`give_way`).
- When this task ends for any reason (close, cancellation by a framework, a bug), `on_end` runs, and
  every waiting call fails with the cause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from aioproducer._util.printable import repr_of
from aioproducer._util.tasks import start_later
from aioproducer.core.batching.batch import ProducerBatch
from aioproducer.core.batching.buffer_pool import NO_CEILING
from aioproducer.core.sending.actions import Connect, Dispatch, RequestIdentity
from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.sending.sender import Sender
from aioproducer.errors import (
    KafkaError,
    NodeDisconnectedError,
    ProducerFailedError,
    ProtocolError,
    UnsupportedVersionError,
)
from aioproducer.net.client import NetworkClient, PreparedRequest
from aioproducer.net.connection import Connection, InFlightRequest, outcome_of
from aioproducer.net.versions import BrokerVersions
from aioproducer.records import RecordBatchBuilder, single_record_request
from aioproducer.records.layout import MAGIC
from aioproducer.records.message_set import magic_for
from aioproducer.runtime.delivery import WakeUps
from aioproducer.runtime.legacy_brokers import without_producer_ids
from aioproducer.runtime.tasks.encoder import BatchEncoder
from aioproducer.runtime.tasks.turns import TurnTask
from aioproducer.types import TopicPartition
from aioproducer.wire.acknowledgement import Acknowledgement, Position, position_after
from aioproducer.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.wire.messages.produce import ProduceRequest, ProduceResponse
from aioproducer.wire.produce import (
    ProducePartition,
    ProduceRequestTemplate,
    ProduceTopic,
    encode_produce_request,
)
from aioproducer.wire.schema import Message

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.net.link import BrokerLink
    from aioproducer.wire.primitives import Buffer

_COPIED_BYTES = 4096
"""A record up to this size is copied into its request: one piece is written sooner than three."""
_NO_TOPIC_ID = UUID(int=0)
_SEQUENCES_SINCE = 3
_TOPIC_IDS_SINCE = 13
_TRANSACTIONS_V2_SINCE = 12
_ANSWERS = (tuple, Acknowledgement, ProduceResponse)
_NO_TRANSACTION_TIMEOUT = 2**31 - 1
_PRODUCER_ID = "producer id"
_NAGLE_WINDOW_S = 0.0001
"""Seconds that a few calls of `send()` take."""
_REST = 6.0
"""Rest per time that the actions took. To handle their responses takes as long as the actions; a
loop of sends needs the remainder to make more batches than have left."""
_LONGEST_REST_S = 1.0
"""The limit if something else took the time, such as a log handler or a suspended process."""


class Route(NamedTuple):
    """Common parts of the requests for one partition, while metadata and connection are valid."""

    node_id: int
    link: BrokerLink
    versions: BrokerVersions
    version: int
    topic_id: UUID
    leader_epoch: int
    template: ProduceRequestTemplate


class Activity:
    """The time of the last action or response: other records are likely to follow it soon.

    uvloop's time has a resolution of one millisecond: a monotonic clock replaces it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        is_fine = isinstance(loop, asyncio.BaseEventLoop)
        self.time: Callable[[], float] = loop.time if is_fine else time.monotonic
        self.last_at: float = -inf

    @property
    def is_recent(self) -> bool:
        """Whether the last action was less than 0.1 ms ago."""
        return self.time() - self.last_at < _NAGLE_WINDOW_S

    def on_acted(self) -> None:
        """Set `last_at` to the current time."""
        self.last_at = self.time()


class SenderTask(TurnTask):
    """Run a `Sender` on the producer's loop.

    `after_turn` is called when a turn may have ended batches, `on_event` when a request has ended
    without a response. After a response the caller calls `turn_at`, and `run_now` of `wake_ups`;
    without these, the loop resumes the awaiters.
    """

    def __init__(
        self,
        sender: Sender,
        client: NetworkClient,
        metadata: Metadata,
        encoder: BatchEncoder,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        after_turn: Callable[[], None],
        on_event: Callable[[], None],
        on_end: Callable[[KafkaError | None], None],
        transactions: TransactionManager | None,
        wake_ups: WakeUps | None,
    ) -> None:
        super().__init__("sender", loop, on_end)
        self._activity = Activity(loop)
        self._sender = sender
        self._client = client
        self._metadata = metadata
        self._encoder = encoder
        self._acks = config.acks_value
        self._encode_request = partial(
            encode_produce_request, acks=self._acks, timeout_ms=config.request_timeout_ms
        )
        self._request_timeout = config.request_timeout_ms / 1000
        self._after_turn = after_turn
        self._on_event = on_event
        self._refreshes_always = not config.metadata_max_age_ms
        self._wake_ups = wake_ups
        self._transactions = transactions
        self._gives_way = False
        self._rests_until = -inf
        self._interrupted: list[ProducerBatch] = []
        self._preparing: dict[asyncio.Task[None], tuple[int, list[ProducerBatch]]] = {}
        self._client_id = config.client_id
        accumulator = sender.accumulator
        self._sends_directly = (
            self._acks != 0
            and transactions is None
            and not self._refreshes_always
            and not config.partitioner_availability_timeout_ms
            and accumulator.settings.batch_records is None
            and accumulator.pool.ceiling == NO_CEILING
            and not encoder.compresses
        )
        self._routes: dict[TopicPartition, Route] = {}
        self._routes_version: int | None = None
        self.acknowledged: TopicPartition | None = None
        """The partition of the last acknowledged direct send, until the engine handles it."""

    def give_way(self) -> None:
        """Let a loop of sends, which pauses only to let other tasks run, go on before the task."""
        self._gives_way = True

    def try_send_immediately(self) -> bool:
        """Send due batches now if the task sleeps and nothing is in flight, else wake the task.

        Returns whether a batch was sent. Called while a record is appended, so that no `Exception`
        is raised.
        """
        if not self._may_leave():
            return False
        sender = self._sender
        pinned = len(sender.accumulator.pinned)
        try:
            now = self._loop.time()
            self._act(now)
            self._after_turn()
            deadline = sender.next_deadline(now, self._client)
        except BaseException as error:
            self.on_interrupt(error)
            if not isinstance(error, Exception):
                raise
            return False
        self.turn_at(now if sender.fatal_error is not None else deadline, now)
        return len(sender.accumulator.pinned) > pinned

    def fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail one batch that is in no queue and in no request."""
        self._sender.fail(batch, error)

    def _may_leave(self) -> bool:
        """Return whether a due batch may be sent without a turn of the task; else wake the task.

        It may while the task sleeps and either nothing is in flight, or only batches of one record
        are and no record was sent or acknowledged in the last 0.1 ms.
        """
        accumulator = self._sender.accumulator
        if self._wakeup.is_asleep and (
            not accumulator.pinned
            or (accumulator.has_only_single_records and not self._activity.is_recent)
        ):
            return True
        self.wake()
        return False

    def on_interrupt(self, error: BaseException, batches: Sequence[ProducerBatch] = ()) -> None:
        """End the task after an exception that has left the state inconsistent.

        The affected batches may be in no queue.
        """
        self._interrupted += batches
        self.end_by(error)

    def end_all(self, error: KafkaError) -> None:
        """Fail every batch without an outcome, in whatever state an exception has left it."""
        self._sender.end_all(error, self._interrupted)
        self._interrupted.clear()

    async def stop(self) -> None:
        """End the task and everything it started; safe to call again."""
        self._stopping = True
        self.wake()
        for task in [*self._preparing, *([self._task] if self._task else [])]:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._dispatch_prepared()
        self._wakeup.close()

    async def _turn(self) -> None:
        self._wakeup.begin_turn()
        if self.interrupt is not None:
            raise self.interrupt
        self._dispatch_prepared()
        gives_way, self._gives_way = self._gives_way, False
        rests = self._activity.time() < self._rests_until
        if gives_way and rests and not self._sender.accumulator.expedited:
            await asyncio.sleep(0)  # a loop of sends that goes on calls `give_way` again
            return
        now, began = self._loop.time(), self._activity.time()
        self._act(now)
        ended = self._activity.time()
        self._rests_until = ended + min(_REST * (ended - began), _LONGEST_REST_S)
        if self._sender.fatal_error is not None:
            raise self._sender.fatal_error
        self._after_turn()
        deadline = self._sender.next_deadline(now, self._client)
        if deadline > now:
            await self._wakeup.sleep(deadline)
        else:
            # More to do at once; let other tasks run in between.
            await asyncio.sleep(0)

    def _act(self, now: float) -> None:
        """Perform the actions of `Sender.poll`.

        Not in `_turn`, whose frame would hold batches, which may have failed, while it sleeps.
        """
        for action in self._sender.poll(now, self._client):
            match action:
                case Connect(node_id):
                    self._client.maybe_connect(node_id, now)
                case Dispatch(node_id, batches):
                    self._prepare(node_id, batches, now)
                case RequestIdentity(node_id):
                    self._request_identity(node_id, now)
        self._activity.on_acted()

    # -- the producer id -------------------------------------------------------------------------

    def _request_identity(self, node_id: int, now: float) -> None:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT
        )
        try:
            future = self._client.send(node_id, request, now=now)
        except KafkaError as error:
            if isinstance(error, UnsupportedVersionError):
                error = without_producer_ids()
            self._on_identity_failure(error.with_context(node_id=node_id))
            return
        self._sender.producer_id.on_sent()
        future.add_done_callback(partial(self._on_identity_answer, node_id))

    def _on_identity_answer(self, node_id: int, future: asyncio.Future[Message | None]) -> None:
        failure, answer = outcome_of(future)
        if isinstance(answer, InitProducerIdResponse) and not answer.error_code:
            if answer.producer_id >= 0 <= answer.producer_epoch:
                identity = ProducerIdentity(answer.producer_id, answer.producer_epoch)
                self._sender.on_identity(identity)
                self.warnings.recovered(self._loop.time(), _PRODUCER_ID, "there is a producer id")
                self.wake()
                return
            failure = ProtocolError("InitProducerId was answered without a producer id")
        elif isinstance(answer, InitProducerIdResponse):
            failure = self._sender.identity_error(answer.error_code)
        failure = failure or NodeDisconnectedError("no answer to InitProducerId")
        self._on_identity_failure(failure.with_context(node_id=node_id))
        self.wake()

    def _on_identity_failure(self, error: KafkaError) -> None:
        now = self._loop.time()
        self._sender.on_identity_failure(error, now)
        if self._stopping or self._sender.fatal_error is not None:
            return
        if self._sender.producer_id.last_error is not None:
            self.warnings.warning(
                now,
                _PRODUCER_ID,
                type(error).__name__,
                "no producer id, %d request(s) in a row failed: %s",
                self._sender.producer_id.failures,
                error,
            )

    # -- one request -----------------------------------------------------------------------------

    def _prepare(self, node_id: int, batches: list[ProducerBatch], now: float) -> None:
        try:
            lowest, highest = self._versions(batches)
            version = self._client.api_version(node_id, ProduceRequest, lowest, highest)
            magic = magic_for(version)
            is_encoded = self._encoder.encode_inline(batches, magic)
        except Exception as error:
            self._not_dispatched(node_id, batches, error)
            return
        if is_encoded:
            self._dispatch(node_id, batches, version, now)
            return
        task = start_later(
            self._loop, self._encoder.encode(batches, magic), name="aioproducer-encode"
        )
        # Until then the node counts as busy: its requests are sent in the order they were drained.
        self._preparing[task] = node_id, batches
        task.add_done_callback(lambda done: self.wake())

    def _dispatch_prepared(self) -> None:
        """Dispatch the requests whose encoding has ended; fail those whose encoding has failed."""
        for task in [task for task in self._preparing if task.done()]:
            node_id, batches = self._preparing.pop(task)
            if task.cancelled():
                error: BaseException | None = ProducerFailedError("the preparation was cancelled")
            else:
                error = task.exception()
            if error is None:
                now = self._loop.time()
                live = self._sender.without_outdated(node_id, batches, now)
                live = self._sender.without_unencoded(node_id, live, now)
                if live:
                    # Everything is encoded now, unless the broker's version has changed.
                    self._prepare(node_id, live, now)
            else:
                self._not_dispatched(node_id, batches, error)

    def _dispatch(
        self, node_id: int, batches: list[ProducerBatch], version: int, now: float
    ) -> None:
        """Give the request to the connection, without batches that have failed or ended."""
        live = self._sender.without_unencoded(node_id, batches, now)
        live = self._sender.without_done(node_id, live)
        if not live:
            return
        transactions = self._transactions
        try:
            encode = partial(
                self._encode_request,
                transactional_id=None if transactions is None else transactions.transactional_id,
                topics=self._topics(live, version),
            )
            self._sender.on_dispatching(live)
            self._client.begin(
                node_id,
                PreparedRequest(ProduceRequest, encode, self._acks != 0, version=version),
                now=now,
                on_end=partial(self._on_answer, node_id, live),
            )
        except Exception as error:
            self._not_dispatched(node_id, live, error)
            return
        self._sender.on_dispatched(node_id, live)
        if self._sends_directly and len(live) == 1 and live[0].count == 1:
            self._store_route(node_id, live[0], version)
        if self._refreshes_always:
            self._metadata.invalidate()

    def _on_answer(
        self,
        node_id: int,
        batches: Sequence[ProducerBatch],
        answer: Message | Position | None,
        failure: KafkaError | None,
    ) -> None:
        if self.interrupt is not None:
            return  # `end_all` ends these batches
        try:
            self._on_end_of_request(node_id, batches, answer, failure)
        except BaseException as error:
            self.on_interrupt(error, batches)
            raise

    def _on_end_of_request(
        self,
        node_id: int,
        batches: Sequence[ProducerBatch],
        answer: Message | Position | None,
        failure: KafkaError | None,
    ) -> None:
        now = self._loop.time()
        if isinstance(answer, _ANSWERS):
            self._activity.on_acted()
            if self._wake_ups is not None:
                self._wake_ups.held = True
            if isinstance(answer, tuple):
                self._sender.on_acknowledged(batches[0], answer, now)
                self.acknowledged = batches[0].topic_partition
            else:
                self._sender.on_response(node_id, batches, answer, now)
            return
        if failure is not None:
            self._sender.on_failure(node_id, batches, failure, now)
        else:
            self._sender.on_response(node_id, batches, None, now)
        self._on_event()

    def _not_dispatched(
        self, node_id: int, batches: Sequence[ProducerBatch], error: BaseException
    ) -> None:
        failure = error if isinstance(error, KafkaError) else ProducerFailedError(repr_of(error))
        self._sender.on_not_dispatched(node_id, batches, failure, self._loop.time())
        self.wake()

    def _topic_id(self, name: str) -> UUID:
        topic = self._metadata.topic(name)
        return _NO_TOPIC_ID if topic is None else topic.topic_id

    def _topics(self, batches: Sequence[ProducerBatch], version: int) -> list[ProduceTopic]:
        by_topic: dict[str, ProduceTopic] = {}
        for batch in batches:
            if batch.encoded is None:  # pragma: no cover - `_prepare` has encoded it
                raise RuntimeError(f"{batch.topic_partition} is not encoded")
            name, partition = batch.topic_partition
            topic = by_topic.get(name)
            if topic is None:
                # Produce before v13 has topic names instead of ids.
                topic_id = self._topic_id(name) if version >= _TOPIC_IDS_SINCE else _NO_TOPIC_ID
                topic = by_topic[name] = ProduceTopic(name, topic_id, [])
            batch.topic_id = topic.topic_id
            topic.partitions.append(ProducePartition(partition, batch.encoded.buffers))
        return list(by_topic.values())

    def _versions(self, batches: Sequence[ProducerBatch]) -> tuple[int, int]:
        """Return the lowest and highest Produce version that can carry the batches."""
        lowest, highest = self._encoder.min_produce_version, _TOPIC_IDS_SINCE
        for batch in batches:
            if batch.has_sequence and lowest < _SEQUENCES_SINCE:
                lowest = _SEQUENCES_SINCE
            # Some services have no topic ids, which v13 needs (KIP-516).
            if not self._topic_id(batch.topic_partition.topic).int:
                highest = _TOPIC_IDS_SINCE - 1
        if self._transactions is None:
            return lowest, highest
        if self._transactions.uses_v2:
            return max(lowest, _TRANSACTIONS_V2_SINCE), highest
        return lowest, _TRANSACTIONS_V2_SINCE - 1

    # -- direct sends ----------------------------------------------------------------------------

    def try_send_directly(self, batch: ProducerBatch, now: float) -> bool:
        """Write the request of a new batch with one record; return False if it has to be queued."""
        route, builder = self._routes.get(batch.topic_partition), batch.builder
        accumulator = self._sender.accumulator
        if (
            route is None
            or builder is None
            or builder.count != 1  # an exception came after the spare had got its first
            or self._routes_version != self._metadata.version
            or route.link.versions is not route.versions
            or not self._may_leave()
        ):
            return False
        connection = route.link.ready_connection(now)
        if connection is None or not accumulator.try_hand_out(batch, now, route.leader_epoch):
            return False
        batch.topic_id = route.topic_id
        self._activity.on_acted()
        try:
            request = self._direct_request(route, connection, batch, builder, now)
            batch.on_wire = True
            connection.begin(request)
        except Exception as error:
            self._not_dispatched(route.node_id, [batch], error)
        else:
            expires_at = now + accumulator.settings.delivery_timeout
            if expires_at < self._wakeup.until:
                self.turn_at(expires_at, now)
            self._sender.on_dispatched(route.node_id, (batch,))
        return True

    def _store_route(self, node_id: int, batch: ProducerBatch, version: int) -> None:
        """Store how a batch was sent, for direct sends to the same partition."""
        link, place = self._client.link(node_id), batch.topic_partition
        if self._routes_version != self._metadata.version:
            self._routes_version = self._metadata.version
            self._routes.clear()
        if (
            link is None
            or link.versions is None
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
                timeout_ms=round(self._request_timeout * 1000),
                topic=place.topic,
                topic_id=batch.topic_id,
                partition=place.partition,
            )
            epoch = self._metadata.leader_epoch(*place)
            self._routes[place] = Route(
                node_id, link, link.versions, version, batch.topic_id, epoch, template
            )

    def _direct_request(
        self,
        route: Route,
        connection: Connection,
        batch: ProducerBatch,
        builder: RecordBatchBuilder,
        now: float,
    ) -> InFlightRequest:
        template, correlation_id = route.template, connection.next_correlation_id()
        frame: Sequence[Buffer]
        if builder.size <= _COPIED_BYTES:
            request = single_record_request(
                builder,
                template.prefix(correlation_id),
                template.suffix,
                template.is_flexible,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
            )
            frame = (request,)
        else:
            batch.encoded = encoded = self._encoder.encode_one(batch)
            frame = template.render(correlation_id, encoded.buffers)
        return InFlightRequest(
            ProduceRequest,
            route.version,
            correlation_id,
            frame,
            now + self._request_timeout,
            partial(self._on_answer, route.node_id, [batch]),
            recognise=partial(position_after, template.acknowledgement(correlation_id)),
        )
