"""Sans-I/O decisions of the sender: what to send, retry or fail.

`Sender` expires, collects and drains batches in each turn, and reads Produce responses. It sees the
network as `NodeView` and returns actions such as `Connect` and `Dispatch`. ARCHITECTURE.md (When
does a batch fail?) lists the reasons for which a batch is not retried.

Invariants
- While a request to a node is being prepared, no second one is: requests leave in drain order.
- Responses are matched by topic and partition: a missing partition is retried, an unexpected one is
  ignored, and no batch is counted twice.
- An error reports "not persisted" only if no attempt may have been written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.batch import NO_PARTITION, BatchOutcome, ProducerBatch, outcome_at
from aioproducer.core.sending.actions import Action, Connect, Dispatch, NodeView
from aioproducer.core.sending.failures import (
    as_lost_connection,
    expiry_of,
    failure_outcome,
    no_longer_retried,
    overtaken,
    refused_because_of_others,
)
from aioproducer.core.sending.idempotence import (
    AcknowledgedOffsets,
    ExpiredProducer,
    LostRecords,
    ProducerIdentity,
    Sequencer,
)
from aioproducer.core.sending.produce_answers import (
    Answers,
    acknowledges,
    leader_hints,
    match_answers,
    named_record_errors,
    position_of,
)
from aioproducer.core.sending.produce_rules import NEVER_APPENDED, ProduceAction, action_for
from aioproducer.core.sending.producer_id import IdentityFailure, ProducerIdRequests
from aioproducer.core.sending.reasons import Obstacle, Wait
from aioproducer.core.transactions.rules import concurrent_backoff
from aioproducer.errors import (
    ConcurrentTransactionsError,
    KafkaError,
    NodeDisconnectedError,
    error_for_code,
    error_from_code,
)
from aioproducer.errors.authorization import this_principal, with_access
from aioproducer.metrics.totals import FailedBatch, ProducerStats
from aioproducer.wire.acknowledgement import Acknowledgement, Position

if TYPE_CHECKING:
    import random
    from uuid import UUID

    from aioproducer._util.backoff import ExponentialBackoff
    from aioproducer.core.batching.partitioners import NodeLatencies
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.wire.messages.produce import PartitionProduceResponse, ProduceResponse


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """Options of the sender; times in seconds."""

    retries: int
    retry_backoff: ExponentialBackoff
    delivery_timeout: float
    principal: Callable[[], str] = this_principal
    """Returns the principal that brokers see, for error messages."""

    def limit_of_retries(self, *, expired: bool) -> str:
        """Return the option that ended a batch's retries, with its value."""
        if expired:
            return f"delivery_timeout_ms={round(self.delivery_timeout * 1000)}"
        return f"retries={self.retries}"


class Sender:
    """Turns the accumulator's state into actions, and Produce responses into outcomes."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        sequencer: Sequencer,
        settings: SenderSettings,
        *,
        rng: random.Random,
        stats: ProducerStats,
        latencies: NodeLatencies,
        on_data_loss: Callable[[LostRecords], None] = lambda lost: None,
        on_producer_expired: Callable[[ExpiredProducer], None] = lambda expired: None,
        transactions: TransactionManager | None = None,
    ) -> None:
        self.accumulator = accumulator
        self._readiness = accumulator.readiness
        self._transactions = transactions
        self._metadata = metadata
        self._sequencer = sequencer
        self._settings = settings
        self._on_data_loss = on_data_loss
        self._offsets = AcknowledgedOffsets(self._on_lost, on_producer_expired)
        metadata.on_recreated = self._on_recreated
        metadata.on_other_cluster = self._on_other_cluster
        self.producer_id: ProducerIdRequests = ProducerIdRequests(
            sequencer, settings.retry_backoff, rng
        )
        self.fatal_error: KafkaError | None = None
        """Set when nothing can be sent any more; the runtime stops the producer with it."""
        self._rng = rng
        self._stats = stats
        self._latencies = latencies
        self._preparing: set[int] = set()

    # -- decisions -------------------------------------------------------------------------------

    def poll(self, now: float, nodes: NodeView) -> list[Action]:
        """Run one turn: fail expired batches, return the connections to open and the requests."""
        accumulator, readiness = self.accumulator, self._readiness
        if accumulator.next_expiry_at <= now:
            self._expire(now)
        if self._transactions is not None:
            self._abandon(self._transactions)
        readiness.collect(now)
        for queue in readiness.leaderless:
            self._metadata.request_topic(queue.topic_partition.topic, now)
        actions: list[Action] = []
        for node_id in readiness.nodes():
            if node_id in self._preparing:
                continue
            can_drain = nodes.is_ready(node_id, now)
            self._latencies.update(node_id, now, can_drain=can_drain)
            if not can_drain:
                actions.append(Connect(node_id))
                if nodes.connection_failures(node_id) is not None:
                    # The leader may have moved away from the unreachable node.
                    self._metadata.request_update()
                continue
            batches = accumulator.drain(node_id, now)
            if batches:
                self._preparing.add(node_id)
                for batch in batches:
                    accumulator.pin(batch)
                actions.append(Dispatch(node_id, batches))
        # Last, since a drain drops the identity when its epochs are used up.
        if self._wants_identity:
            action = self.producer_id.action(now, nodes)
            if action is not None:
                actions.append(action)
        return actions

    def next_deadline(self, now: float, nodes: NodeView) -> float:
        """Return the loop time of the next turn if no event comes before."""
        deadline = min(self._readiness.next_at, self.accumulator.next_expiry_at)
        if self._wants_identity:
            deadline = min(deadline, self.producer_id.due_at(now, nodes))
        for node_id in self._readiness.nodes():
            if node_id not in self._preparing:
                ready = nodes.is_ready(node_id, now)
                deadline = min(deadline, now if ready else nodes.ready_at(node_id, now))
        return deadline

    def due_at(self, now: float) -> float:
        """Return the loop time of the next turn after an event; `now` means at once.

        With lingering batches it is at once, since the resumed tasks may send the last records that
        adaptive linger waits for. It is also at once for the records of a transaction, which may
        have been aborted, and for leaderless partitions, whose metadata is requested again.
        """
        accumulator = self.accumulator
        if (
            accumulator.settings.linger
            or self._awaits_connection
            or self._readiness.leaderless
            or self.fatal_error is not None
            or (self._transactions is not None and accumulator.has_incomplete)
        ):
            return now
        return min(self._readiness.next_at, accumulator.next_expiry_at)

    def waits_for_capacity(self, now: float) -> bool:
        """Return whether something may be due once a request less is in flight.

        A producer id that is wanted is requested with the next record at the latest.
        """
        return self._metadata.next_update_at(now) <= now or self.accumulator.has_queued

    def wait_of(self, batch: ProducerBatch) -> Wait:
        """Return what a batch without an outcome waits for."""
        accumulator, error = self.accumulator, batch.last_error
        if batch.pins:
            return Wait(Obstacle.RESPONSE if batch.on_wire else Obstacle.PREPARATION, error)
        if batch.topic_partition.partition == NO_PARTITION:
            return Wait(Obstacle.METADATA, error)
        queue = accumulator.queue(*batch.topic_partition)
        if queue is None or not queue.batches or queue.ready_at < inf or batch.gathering:
            return Wait(Obstacle.RETRY if batch.attempts else Obstacle.TURN, error)
        if queue.is_leaderless:
            return Wait(Obstacle.LEADER, error)
        if queue.node_id is not None:
            return Wait(Obstacle.CONNECTION, error)
        if queue.muted:
            return Wait(Obstacle.EARLIER_BATCH, error)
        obstacle = accumulator.sequencer.obstacle(queue.batches[0])
        if obstacle is Obstacle.PRODUCER_ID:
            error = self.producer_id.last_error or error
        elif obstacle is Obstacle.COORDINATOR:
            error = accumulator.sequencer.coordinator_error or error
        return Wait(obstacle, error)

    # -- events ----------------------------------------------------------------------------------

    def on_identity(self, identity: ProducerIdentity) -> None:
        """Handle a new producer id: batches that waited for it become ready."""
        if self.producer_id.on_identity(identity):
            self.accumulator.replan_all()

    def identity_error(self, code: int) -> KafkaError:
        """Return the error for the error code of an InitProducerId response."""
        message = error_for_code(code).default_message.rstrip(".")
        error = error_from_code(code, f"{message} (InitProducerId, which idempotence needs)")
        return with_access(error, "InitProducerId", self._settings.principal)

    def on_identity_failure(self, error: KafkaError, now: float) -> None:
        """Handle a failed InitProducerId request; it is fatal if a retry cannot help."""
        match self.producer_id.on_failure(error, now):
            case IdentityFailure.NOT_NEEDED:
                self.accumulator.replan_all()
            case IdentityFailure.REFUSED:
                self.abort(error, in_flight=False)
            case IdentityFailure.FATAL:
                self.fatal_error = error

    def on_dispatching(self, batches: Sequence[ProducerBatch]) -> None:
        """Mark the batches as on the wire before the request is written to a transport."""
        for batch in batches:
            batch.on_wire = True

    def on_dispatched(self, node_id: int, batches: Sequence[ProducerBatch]) -> None:
        """Handle a request that was written to a transport; the node may get the next one."""
        self._preparing.discard(node_id)
        for batch in batches:
            batch.on_wire = True
            self._stats.on_batch_sent(
                batch.topic_partition.topic,
                batch.count,
                size=batch.wire_size,
                uncompressed=batch.uncompressed_size,
                largest=batch.largest_record,
                queued_s=batch.last_attempt_at - batch.created_at,
                is_retry=batch.attempts > 1,
                now=batch.last_attempt_at,
            )
        self._stats.requests_sent += 1

    def without_unencoded(
        self, node_id: int, batches: list[ProducerBatch], now: float
    ) -> list[ProducerBatch]:
        """Fail batches that could not be encoded, for their last error; return the others."""
        failed = [batch for batch in batches if batch.encoded is None]
        for batch in failed:
            batch.attempts -= 1
            error = batch.last_error or KafkaError("the batch could not be encoded")
            self._retry_or_fail(batch, error, node_id, now)
        return self._without(node_id, batches, failed)

    def without_done(self, node_id: int, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Release batches that ended while their request was prepared; return the others."""
        return self._without(node_id, batches, [batch for batch in batches if batch.done])

    def without_outdated(
        self, node_id: int, batches: list[ProducerBatch], now: float
    ) -> list[ProducerBatch]:
        """Enqueue batches again whose topic was recreated meanwhile; return the others.

        The new log accepts any first batch: one with an old sequence could overtake earlier ones,
        and in another cluster the producer id may belong to another producer.
        """
        outdated = [b for b in batches if not b.done and self._sequencer.is_outdated(b)]
        for batch in outdated:
            batch.attempts -= 1
            self.accumulator.reenqueue(batch, now, 0)
        return self._without(node_id, batches, outdated)

    def on_not_dispatched(
        self, node_id: int, batches: Sequence[ProducerBatch], error: KafkaError, now: float
    ) -> None:
        """Retry or fail batches whose request never reached a transport: none was written."""
        self._preparing.discard(node_id)
        for batch in batches:
            batch.attempts -= 1
            batch.on_wire = False
        self._expire(now)  # as in `on_failure`
        for batch in batches:
            self._retry_or_fail(batch, error, node_id, now)
        self._let_go(batches)

    def on_failure(
        self, node_id: int, batches: Sequence[ProducerBatch], error: KafkaError, now: float
    ) -> None:
        """Handle a request without a response (disconnect, timeout, garbage): outcome unknown."""
        self._metadata.request_update()
        error = as_lost_connection(error)
        # As in `poll`: an expired batch gets DeliveryTimeoutError even if the request timed out.
        self._expire(now)
        for batch in batches:
            batch.possibly_persisted = True
            self._retry_or_fail(batch, error, node_id, now)
        self._let_go(batches)

    def on_response(
        self,
        node_id: int,
        batches: Sequence[ProducerBatch],
        response: ProduceResponse | Acknowledgement | None,
        now: float,
    ) -> None:
        """Handle a response; None stands for a written request with acks=0."""
        if response is None:
            for batch in batches:
                self._acknowledge(batch, None, now)
            return
        self._stats.on_response(now - batches[0].last_attempt_at, response.throttle_time_ms, now)
        if isinstance(response, Acknowledgement):
            if acknowledges(response, batches):
                for batch in batches:
                    position = response.positions[batch.topic_partition.partition]
                    self._acknowledge(batch, position, now)
                return
            response = response.whole()
        names: dict[UUID, str] = {}
        if not (response.responses and response.responses[0].name):
            # The ids of the request: the metadata may have changed since.
            names = {batch.topic_id: batch.topic_partition.topic for batch in batches}
        answers = match_answers(response, names)
        self._move_leaders(answers, response, names, now)
        for batch in batches:
            answer = answers.get(batch.topic_partition)
            if answer is None:
                error: KafkaError = NodeDisconnectedError(
                    "the broker's answer left this partition out", node_id=node_id
                )
                batch.possibly_persisted = True
                self._retry_or_fail(batch, error, node_id, now)
                self._let_go((batch,))
            else:
                self._on_answer(batch, answer, node_id, now)

    def on_acknowledged(self, batch: ProducerBatch, position: Position, now: float) -> None:
        """Handle `on_response` for one batch with a plain acknowledgement."""
        self._acknowledge(batch, position, now)
        self._stats.on_response(now - batch.last_attempt_at, 0, now)

    def abort(self, error: KafkaError, *, queued: bool = True, in_flight: bool = True) -> int:
        """Fail the queued and in-flight batches (or only one kind); return the record count."""
        records = 0
        for batch in self.accumulator.withdraw_all(in_flight=in_flight, queued=queued):
            if batch.on_wire:
                batch.possibly_persisted = True
            records += batch.count
            self.fail(batch, error)
        return records

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None = None,
        *,
        now: float | None = None,
    ) -> None:
        """Fail one batch that is not queued."""
        if batch.topic_partition.partition != NO_PARTITION:
            self._sequencer.on_failed(batch)
        if self._transactions is not None:
            self._transactions.on_batch_failed(batch, error)
        outcome = failure_outcome(batch, error, record_errors, now)
        if self.accumulator.complete(batch, outcome):
            where, since = batch.topic_partition, batch.created_at
            failed = FailedBatch(where, batch.count, since, str(outcome.error))
            self._stats.on_batch_failed(failed, now)

    def end_all(self, error: KafkaError, others: Sequence[ProducerBatch]) -> None:
        """Fail every batch without an outcome after an exception interrupted a state change.

        Unlike `abort` it makes no assumption about the state: a batch that was about to be written
        to a transport counts as possibly written. See `RecordAccumulator.end_all`.
        """
        self.accumulator.end_all(others, lambda batch: failure_outcome(batch, error, None, None))

    def _on_other_cluster(self) -> None:
        self.producer_id.on_other_cluster()
        self._sequencer.on_other_cluster()
        self._offsets.on_other_cluster()

    def _on_recreated(self, topic: str) -> None:
        self._sequencer.on_recreated(topic)
        self._offsets.on_recreated(topic)

    def _on_lost(self, lost: LostRecords) -> None:
        if self._transactions is not None:  # the lost records may be of the open transaction
            self._transactions.on_sequences_lost(str(lost))
        self._on_data_loss(lost)

    def _abandon(self, transactions: TransactionManager) -> None:
        """Fail the unsent batches of a transaction that is being aborted (KIP-654)."""
        error = transactions.abandoned_with
        if error is not None and self.accumulator.has_incomplete:
            unwanted = transactions.may_abandon
            for batch in self.accumulator.withdraw_all(in_flight=False, only=unwanted):
                self.fail(batch, error)

    def _expire(self, now: float) -> None:
        timeout = self._settings.delivery_timeout
        expired = [(batch, self.wait_of(batch)) for batch in self.accumulator.expired(now)]
        self.accumulator.withdraw(batch for batch, _ in expired)
        for batch, wait in expired:
            batch.possibly_persisted |= batch.on_wire
            error = expiry_of(batch, wait, self._metadata, timeout=timeout, now=now)
            self.fail(batch, error, now=now)

    def _move_leaders(
        self, answers: Answers, response: ProduceResponse, ids: Collection[UUID], now: float
    ) -> None:
        """Apply the leader hints of the errors (KIP-951).

        `ids` are those of the request's topics, empty if it had names. Hints for one that has
        another id now are about a deleted topic.
        """
        hints, nodes = leader_hints(answers), response.node_endpoints
        if ids:
            topics = self._metadata.cluster.topics
            hints = {
                place: hint
                for place, hint in hints.items()
                if place.topic in topics and topics[place.topic].topic_id in ids
            }
        if hints and self._metadata.on_leader_hints(hints, nodes, by_name=not ids):
            self.accumulator.on_metadata_update(now)

    def _on_answer(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, node_id: int, now: float
    ) -> None:
        action = action_for(answer.error_code, idempotent=batch.has_sequence)
        if action is ProduceAction.SUCCEED:
            self._acknowledge(batch, position_of(answer), now)
            return
        if not batch.done:
            self._on_refusal(batch, answer, action, node_id, now)
        self._let_go((batch,))

    def _on_refusal(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        action: ProduceAction,
        node_id: int,
        now: float,
    ) -> None:
        code = answer.error_code
        transactions = self._transactions
        error = with_access(
            error_from_code(code, answer.error_message, node_id=node_id),
            "Produce",
            self._settings.principal,
            topic=batch.topic_partition.topic,
            transactional_id=None if transactions is None else transactions.transactional_id,
        )
        batch.last_error = error
        if code not in NEVER_APPENDED:
            batch.possibly_persisted = True
        if error.refreshes_metadata:
            # After a leader hint as well: an answer removes the nodes that only a hint names.
            self._metadata.request_topic(batch.topic_partition.topic, now)
        if action is ProduceAction.NEW_ID:
            if not self._sequencer.discard_identity(batch):
                action = ProduceAction.FATAL
            elif not batch.possibly_persisted:  # the refusal proves nothing about other attempts
                action = ProduceAction.OUT_OF_ORDER
        if action is ProduceAction.FATAL:
            self.fatal_error = error
            if self._transactions is not None:
                self._transactions.fail(error)
                self.fatal_error = self._transactions.error
        elif action is ProduceAction.OUT_OF_ORDER and self._sequencer.may_renumber(batch):
            self._renumber(batch, error, answer.log_start_offset, now)
            return
        record_errors = named_record_errors(answer, batch.count, action)
        if record_errors is not None and (groups := self._groups(batch, record_errors)):
            self._split(batch, groups, record_errors, error, now)
            return
        self._retry_or_fail(batch, error, node_id, now, record_errors)

    def _groups(
        self, batch: ProducerBatch, record_errors: Mapping[int, KafkaError]
    ) -> Sequence[Sequence[int]]:
        """Return the record groups to split a refused batch into; those with errors are first.

        Empty if the batch is not split.
        """
        count = batch.count
        if batch.indivisible or len(record_errors) == count or self._sequencer.is_overtaken(batch):
            return ()
        if not record_errors:
            if batch.possibly_persisted and not batch.has_sequence:
                # Without sequences the parts would be duplicates if the whole batch is written.
                return ()
            # Repeated halving finds the bad records.
            return range(count // 2), range(count // 2, count)
        if batch.possibly_persisted or self._transactions is not None:
            # The others would need new sequences; a transaction fails with any of its records.
            return ()
        return list(record_errors), [index for index in range(count) if index not in record_errors]

    def _split(
        self,
        batch: ProducerBatch,
        groups: Sequence[Sequence[int]],
        record_errors: Mapping[int, KafkaError],
        error: KafkaError,
        now: float,
    ) -> None:
        """Fail the records with errors and enqueue the others in the batch's place."""
        self._stats.batches_split += 1
        parts = batch.split(groups)
        if record_errors:
            self.fail(parts[0], error, dict(enumerate(record_errors.values())), now=now)
            parts = parts[1:]
        for part in parts:
            # Their error if they expire before they are sent again.
            part.last_error = refused_because_of_others(error, are_named=bool(record_errors))
        self._sequencer.on_split(batch, parts)
        self.accumulator.enqueue_parts(batch, parts, now)

    def _renumber(
        self, batch: ProducerBatch, error: KafkaError, log_start: int, now: float
    ) -> None:
        """Retry a batch that was refused as out of order, until its delivery timeout."""
        sequencer = self._sequencer
        waits = sequencer.request_metadata_first(batch, self._metadata)
        if not waits and sequencer.on_out_of_order(batch):
            self._offsets.on_unknown_predecessor(batch.topic_partition, log_start)
        if now - batch.created_at >= self._settings.delivery_timeout:
            error = no_longer_retried(batch, error, self._settings.limit_of_retries(expired=True))
            self.fail(batch, error, now=now)
        else:
            delay = self._settings.retry_backoff.delay(batch.attempts - 1, self._rng)
            self.accumulator.reenqueue(batch, now, delay)

    def _retry_or_fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        node_id: int,
        now: float,
        record_errors: Mapping[int, KafkaError] | None = None,
    ) -> None:
        if batch.done:
            return
        error = error.with_context(node_id=node_id)
        batch.last_error = error
        expired = now - batch.created_at >= self._settings.delivery_timeout
        if error.retriable and self._sequencer.is_overtaken(batch):
            self.fail(batch, overtaken(batch), now=now)
            return
        if error.retriable and batch.attempts <= self._settings.retries and not expired:
            backoff = self._settings.retry_backoff
            if isinstance(error, ConcurrentTransactionsError):
                backoff = concurrent_backoff(backoff)
            delay = backoff.delay(batch.attempts - 1, self._rng)
            self.accumulator.reenqueue(batch, now, delay)
            return
        if error.retriable:
            limit = self._settings.limit_of_retries(expired=expired)
            error = no_longer_retried(batch, error, limit)
        self.fail(batch, error, record_errors, now=now)

    @property
    def _awaits_connection(self) -> bool:
        """Whether a request is due that may be waiting for a connection."""
        return self._readiness.has_ready or self._wants_identity

    @property
    def _wants_identity(self) -> bool:
        requests = self.producer_id
        return requests.is_wanted and not (requests.refused and not self.accumulator.has_queued)

    def _acknowledge(self, batch: ProducerBatch, position: Position | None, now: float) -> None:
        """End a written batch and its attempt; without a position if the broker reported none."""
        if batch.done:  # it ended meanwhile
            self._let_go((batch,))
            return
        outcome = BatchOutcome() if position is None else outcome_at(*position)
        base_offset, records = outcome.base_offset, batch.count
        self._stats.on_batch_acknowledged(records, now - batch.created_at, now)
        if batch.has_sequence and base_offset is not None:
            self._offsets.on_acknowledged(batch, base_offset, records)
        for elder in self._sequencer.on_acknowledged(batch, now):
            self.accumulator.withdraw((elder,))
            self.fail(elder, overtaken(elder), now=now)
        self.accumulator.acknowledge(batch, outcome)
        batch.on_wire = False

    def _without(
        self, node_id: int, batches: list[ProducerBatch], gone: Sequence[ProducerBatch]
    ) -> list[ProducerBatch]:
        """Release batches of a request that is being prepared; return the others."""
        if not gone:
            return batches
        self._let_go(gone)
        released = frozenset(gone)
        live = [batch for batch in batches if batch not in released]
        if not live:
            self._preparing.discard(node_id)
        return live

    def _let_go(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            batch.on_wire = False
            self.accumulator.unpin(batch)
            self._sequencer.on_off_the_wire(batch.topic_partition)
            self.accumulator.unmute(batch.topic_partition)
