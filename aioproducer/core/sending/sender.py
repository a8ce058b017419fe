"""What the sender does next, decided without doing it.

Owns: the order of things in one turn (expire, collect, drain), the reading of Produce responses,
the choice between retry and failure. Must not know: asyncio, sockets, request encoding; it sees
the network as `NodeView` and speaks in `Connect` and `Dispatch`.

A batch fails when
- its delivery timeout ends (queued, backing off or in flight),
- a broker answers an error that no retry can mend, or `retries` are used up,
- the producer is closed by force or its sender task died.
Everything else is tried again.

Invariants
- A node whose request is still being prepared gets no second one: requests leave in drain order.
- An answer is matched by topic and partition against what was asked: what is missing is retried,
  what was not asked for is ignored, and nothing is counted twice.
- A failure says "not persisted" only if no attempt may have been written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.batch import NO_PARTITION, BatchOutcome, ProducerBatch
from aioproducer.core.liveness import Connections, unattended, wait_of
from aioproducer.core.sending.acknowledged import (
    AcknowledgedOffsets,
    ForgottenProducer,
    LostRecords,
)
from aioproducer.core.sending.actions import Action, Connect, Dispatch, NodeView
from aioproducer.core.sending.failures import (
    expiry_of,
    failure_outcome,
    overtaken,
    refused_because_of_others,
)
from aioproducer.core.sending.idempotence import ProducerIdentity, Sequencer
from aioproducer.core.sending.obstacles import Wait
from aioproducer.core.sending.produce_answers import (
    Answers,
    acknowledges,
    blamed_records,
    leader_hints,
    match_answers,
    standing_at,
    success_outcome,
)
from aioproducer.core.sending.produce_rules import (
    SURELY_REFUSED,
    ProduceAction,
    action_for,
)
from aioproducer.core.sending.producer_id import IdentityFailure, ProducerIdRequests
from aioproducer.core.stats import FailedBatch, ProducerStats
from aioproducer.core.transactions.rules import concurrent_backoff
from aioproducer.errors import (
    ConcurrentTransactionsError,
    KafkaError,
    NodeDisconnectedError,
    ProtocolError,
    error_for_code,
    error_from_code,
)
from aioproducer.errors.authorization import this_principal, with_access
from aioproducer.types import TopicPartition
from aioproducer.wire.produce import Acknowledgement

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
    """Options the sender obeys; times in seconds."""

    retries: int
    retry_backoff: ExponentialBackoff
    delivery_timeout: float
    principal: Callable[[], str] = this_principal
    """Says whom brokers take this client for."""


class Sender:
    """Turns the accumulator's state into actions, and answers into outcomes."""

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
        on_forgotten: Callable[[ForgottenProducer], None] = lambda forgotten: None,
        transactions: TransactionManager | None = None,
    ) -> None:
        self.accumulator = accumulator
        self._readiness = accumulator.readiness
        self._transactions = transactions
        self._metadata = metadata
        self._sequencer = sequencer
        self._settings = settings
        self._offsets = AcknowledgedOffsets(on_data_loss, on_forgotten)
        metadata.on_recreated = self._on_recreated
        metadata.on_other_cluster = self._on_other_cluster
        self.producer_id: ProducerIdRequests = ProducerIdRequests(
            sequencer, settings.retry_backoff, rng
        )
        self.fatal_error: KafkaError | None = None
        """Set when nothing can be sent any more; the runtime ends the producer with it."""
        self._rng = rng
        self._stats = stats
        self._latencies = latencies
        self._preparing: set[int] = set()

    # -- decisions -------------------------------------------------------------------------------

    def poll(self, now: float, nodes: NodeView) -> list[Action]:
        """One turn: fails what expired and says what to connect to and what to send."""
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
                    # Whoever leads now, it may not be the node that cannot be reached.
                    self._metadata.request_update(now)
                continue
            batches = accumulator.drain(node_id, now)
            if batches:
                self._preparing.add(node_id)
                for batch in batches:
                    accumulator.hold(batch)
                actions.append(Dispatch(node_id, batches))
        # Last: a drain that finds the epochs used up gives up the identity.
        if self._wants_identity:
            action = self.producer_id.action(now, nodes)
            if action is not None:
                actions.append(action)
        return actions

    def next_deadline(self, now: float, nodes: NodeView) -> float:
        """Loop time of the turn after this one, unless something happens before."""
        deadline = min(self._readiness.next_at, self.accumulator.next_expiry_at)
        if self._wants_identity:
            deadline = min(deadline, self.producer_id.due_at(now, nodes))
        for node_id in self._readiness.nodes():
            if node_id not in self._preparing:
                ready = nodes.is_ready(node_id, now)
                deadline = min(deadline, now if ready else nodes.ready_at(node_id, now))
        return deadline

    def due_at(self, now: float, nodes: NodeView) -> float:
        """Loop time of the next turn now that something has happened; `now` for one at once.

        Where batches linger it is at once: the tasks that are resumed may send the last records
        that all others wait for (adaptive linger). So it is with the records of a transaction,
        which may not be wanted any more, and with partitions that new metadata left without a
        leader: their topics are asked for again.
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

    def wait_of(self, batch: ProducerBatch) -> Wait:
        """What a batch without an outcome waits for."""
        return wait_of(batch, self.accumulator, self.producer_id)

    def unattended(self, nodes: Connections, now: float) -> list[tuple[ProducerBatch, Wait]]:
        """The batches for which the rule of `core.driver` is broken."""
        return list(unattended(self.accumulator, self.producer_id, self._preparing, nodes, now))

    # -- events ----------------------------------------------------------------------------------

    def on_identity(self, identity: ProducerIdentity) -> None:
        """A broker gave a producer id: what waited for it may go."""
        if self.producer_id.on_identity(identity):
            self.accumulator.replan_all()

    def refusal_of_identity(self, code: int) -> KafkaError:
        """What an error code means that a broker answered to InitProducerId."""
        message = error_for_code(code).default_message.rstrip(".")
        error = error_from_code(code, f"{message} (InitProducerId, which idempotence needs)")
        return with_access(error, "InitProducerId", self._settings.principal)

    def on_identity_failure(self, error: KafkaError, now: float) -> None:
        """No producer id this time; fatal when asking again cannot help."""
        match self.producer_id.on_failure(error, now):
            case IdentityFailure.NOT_NEEDED:
                self.accumulator.replan_all()
            case IdentityFailure.REFUSED:
                self.abort(error, in_flight=False)
            case IdentityFailure.FATAL:
                self.fatal_error = error

    def on_dispatching(self, batches: Sequence[ProducerBatch]) -> None:
        """The request is about to be given to a transport: from now on it may be written."""
        for batch in batches:
            batch.on_wire = True

    def on_dispatched(self, node_id: int, batches: Sequence[ProducerBatch]) -> None:
        """The request is in the transport's hands; the node may get the next one."""
        self._preparing.discard(node_id)
        stats = self._stats
        stats.tick(batches[0].last_attempt_at)
        stats.requests_sent += 1
        for batch in batches:
            batch.on_wire = True
            stats.on_batch_sent(
                batch.topic_partition.topic,
                batch.count,
                batch.wire_size,
                batch.uncompressed_size,
                batch.largest_record,
                batch.last_attempt_at - batch.created_at,
                again=batch.attempts > 1,
            )

    def on_dispatched_directly(self, node_id: int, batch: ProducerBatch) -> None:
        """`on_dispatched` for a batch that no `poll` has handed out."""
        self._latencies.update(node_id, batch.created_at, can_drain=True)
        self.on_dispatched(node_id, (batch,))

    def without_done(self, node_id: int, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Lets go of batches that ended while their request was prepared; returns the others."""
        ended = [batch for batch in batches if batch.done]
        if not ended:
            return batches
        self._let_go(ended)
        live = [batch for batch in batches if not batch.done]
        if not live:
            self._preparing.discard(node_id)
        return live

    def on_not_dispatched(
        self, node_id: int, batches: Sequence[ProducerBatch], error: KafkaError, now: float
    ) -> None:
        """The request never reached a transport: nothing of it can have been written."""
        self._preparing.discard(node_id)
        for batch in batches:
            batch.attempts -= 1
            self._retry_or_fail(batch, error, node_id, now)
        self._let_go(batches)

    def on_failure(
        self, node_id: int, batches: Sequence[ProducerBatch], error: KafkaError, now: float
    ) -> None:
        """The request got no answer (disconnect, timeout, garbage): its fate is unknown."""
        self._metadata.request_update(now)
        if isinstance(error, ProtocolError):
            # What the peer sent made no sense; the records are not to blame.
            error = NodeDisconnectedError(f"connection dropped: {error}")
        # As in a turn: whose time is up is told that, even when the request's is up as well.
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
        """Reads the answer; None stands for a written request with acks=0."""
        if response is None:
            for batch in batches:
                self._succeed(batch, BatchOutcome(), now)
            self._let_go(batches)
            return
        if isinstance(response, Acknowledgement):
            if acknowledges(response, batches):
                self._on_acknowledged(batches, response, now)
                return
            response = response.whole()
        self._count_response(batches[0], response.throttle_time_ms, now)
        names: dict[UUID, str] = {}
        if not (response.responses and response.responses[0].name):
            # By the ids the request was made with: the metadata may know others by now, or none.
            names = {batch.topic_id: batch.topic_partition.topic for batch in batches}
        answers = match_answers(response, names)
        moved = self._move_leaders(answers, response, now)
        for batch in batches:
            answer = answers.get(batch.topic_partition)
            if answer is None:
                error: KafkaError = NodeDisconnectedError(
                    "the broker's answer left this partition out", node_id=node_id
                )
                batch.possibly_persisted = True
                self._retry_or_fail(batch, error, node_id, now)
            else:
                self._on_answer(batch, answer, node_id, now, hinted=batch.topic_partition in moved)
        self._let_go(batches)

    def on_acknowledged(self, batch: ProducerBatch, outcome: BatchOutcome, now: float) -> None:
        """`on_response` for one batch, whose answer says nothing but where it is written."""
        self._count_response(batch, 0, now)
        self._acknowledge(batch, outcome, now)

    def abort(self, error: KafkaError, *, queued: bool = True, in_flight: bool = True) -> int:
        """Fails every batch without an outcome, or one kind of them; returns how many records."""
        records = 0
        for batch in self.accumulator.take_all(queued=queued, in_flight=in_flight):
            if batch.on_wire:
                batch.possibly_persisted = True
            records += batch.count
            self._fail(batch, error)
        return records

    def fail(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fails one batch that is on no queue and that no transport has."""
        self._fail(batch, error)

    def end_all(self, error: KafkaError, others: Sequence[ProducerBatch]) -> None:
        """Fail every batch without an outcome after an exception came in the middle of something.

        Unlike `abort` it relies on nothing that may have been half done: a batch that was on its
        way to a transport counts as possibly written. See `RecordAccumulator.end_all`.
        """
        self.accumulator.end_all(others, lambda batch: failure_outcome(batch, error, None, None))

    # -- private ---------------------------------------------------------------------------------

    def _on_other_cluster(self) -> None:
        self.producer_id.on_other_cluster()
        self._sequencer.on_other_cluster()
        self._offsets.on_other_cluster()

    def _on_recreated(self, topic: str) -> None:
        self._sequencer.on_recreated(topic)
        self._offsets.on_recreated(topic)

    def _abandon(self, transactions: TransactionManager) -> None:
        """Fails what was not sent of a transaction that is not wanted any more (KIP-654)."""
        error = transactions.abandoned_with
        if error is not None and self.accumulator.has_incomplete:
            unwanted = transactions.may_abandon
            for batch in self.accumulator.take_all(in_flight=False, only=unwanted):
                self._fail(batch, error)

    def _expire(self, now: float) -> None:
        timeout = self._settings.delivery_timeout
        expired = [(batch, self.wait_of(batch)) for batch in self.accumulator.expired(now)]
        self.accumulator.withdraw(batch for batch, _ in expired)
        for batch, wait in expired:
            batch.possibly_persisted |= batch.on_wire
            self._fail(batch, expiry_of(batch, wait, self._metadata, timeout=timeout, now=now))

    def _move_leaders(
        self, answers: Answers, response: ProduceResponse, now: float
    ) -> set[TopicPartition]:
        """Follows the leader hints among the errors (KIP-951); returns what moved."""
        hints = leader_hints(answers)
        if not hints:
            return set()
        moved = self._metadata.on_leader_hints(hints, response.node_endpoints, now)
        if moved:
            self.accumulator.on_metadata_update(now)
        return moved

    def _on_answer(
        self,
        batch: ProducerBatch,
        answer: PartitionProduceResponse,
        node_id: int,
        now: float,
        *,
        hinted: bool,
    ) -> None:
        if batch.done:
            return
        code = answer.error_code
        action = action_for(code, idempotent=batch.has_sequence)
        if action is ProduceAction.SUCCEED:
            self._succeed(batch, success_outcome(answer), now)
            return
        transactions = self._transactions
        error = with_access(
            error_from_code(code, answer.error_message, node_id=node_id),
            "Produce",
            self._settings.principal,
            topic=batch.topic_partition.topic,
            transactional_id=None if transactions is None else transactions.transactional_id,
        )
        batch.last_error = error
        if code not in SURELY_REFUSED:
            batch.possibly_persisted = True
        if error.refreshes_metadata and not hinted:
            self._metadata.request_topic(batch.topic_partition.topic, now)
        if action is ProduceAction.FATAL:
            self.fatal_error = error
            if self._transactions is not None:
                self._transactions.fail(error)
                self.fatal_error = self._transactions.error
        elif action is ProduceAction.OUT_OF_ORDER and self._sequencer.may_renumber(batch):
            self._renumber(batch, error, answer.log_start_offset, now)
            return
        blamed = blamed_records(answer, batch.count, action)
        if blamed is not None and (groups := self._groups(batch, blamed)):
            self._split(batch, groups, blamed, error, now)
            return
        self._retry_or_fail(batch, error, node_id, now, blamed, at_once=hinted)

    def _groups(
        self, batch: ProducerBatch, blamed: Mapping[int, KafkaError]
    ) -> Sequence[Sequence[int]]:
        """The records of a refused batch that part from now on: the blamed ones, if any, first.

        Empty if the batch ends as it is.
        """
        count = batch.count
        if batch.indivisible or len(blamed) == count or self._sequencer.is_overtaken(batch):
            return ()
        if not blamed:
            if batch.possibly_persisted and not batch.has_sequence:
                # Only sequences keep the parts out of a log in which the whole batch stands.
                return ()
            # As many steps as it takes to be left with one record name the bad ones, too.
            return range(count // 2), range(count // 2, count)
        if batch.possibly_persisted or self._transactions is not None:
            # The others cannot keep their sequences, and a transaction fails with any record.
            return ()
        return list(blamed), [index for index in range(count) if index not in blamed]

    def _split(
        self,
        batch: ProducerBatch,
        groups: Sequence[Sequence[int]],
        blamed: Mapping[int, KafkaError],
        error: KafkaError,
        now: float,
    ) -> None:
        """The blamed records fail, the others go out again in the batch's place."""
        self._stats.batches_split += 1
        parts = batch.split(groups)
        if blamed:
            self._fail(parts[0], error, dict(enumerate(blamed.values())), now=now)
            parts = parts[1:]
        for part in parts:
            # What they are told of if they do not get to be sent again.
            part.last_error = refused_because_of_others(error, are_named=bool(blamed))
        self._sequencer.on_split(batch, parts)
        self.accumulator.enqueue_parts(batch, parts, now)

    def _renumber(
        self, batch: ProducerBatch, error: KafkaError, log_start: int, now: float
    ) -> None:
        """Not written, since its predecessor is missing: goes out again, bounded by time alone."""
        if self._sequencer.on_out_of_order(batch):
            self._offsets.on_unknown_predecessor(batch.topic_partition, log_start)
        if now - batch.created_at >= self._settings.delivery_timeout:
            self._fail(batch, error, now=now)
        else:
            delay = self._settings.retry_backoff.delay(batch.attempts - 1, self._rng)
            self.accumulator.reenqueue(batch, now + delay)

    def _retry_or_fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        node_id: int,
        now: float,
        blamed: Mapping[int, KafkaError] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        if batch.done:
            return
        error = error.with_context(node_id=node_id)
        batch.last_error = error
        expired = now - batch.created_at >= self._settings.delivery_timeout
        if error.retriable and self._sequencer.is_overtaken(batch):
            self._fail(batch, overtaken(batch), now=now)
            return
        if error.retriable and batch.attempts <= self._settings.retries and not expired:
            backoff = self._settings.retry_backoff
            if isinstance(error, ConcurrentTransactionsError):
                backoff = concurrent_backoff(backoff)
            delay = backoff.delay(batch.attempts - 1, self._rng)
            self.accumulator.reenqueue(batch, now if at_once else now + delay)
            return
        if error.retriable:
            error = error.with_context(
                advice=f"failed to send after {batch.attempts} attempt(s), retries="
                f"{self._settings.retries}"
            )
        self._fail(batch, error, blamed, now=now)

    @property
    def _awaits_connection(self) -> bool:
        """Whether something is to go out, and connections are what it may be waiting for."""
        return self._readiness.has_ready or self._wants_identity

    @property
    def _wants_identity(self) -> bool:
        requests = self.producer_id
        return requests.is_wanted and not (requests.refused and not self.accumulator.has_incomplete)

    def _succeed(self, batch: ProducerBatch, outcome: BatchOutcome, now: float) -> None:
        self._on_written(batch, outcome.base_offset, now)
        if self.accumulator.complete(batch, outcome):
            self._stats.on_batch_acknowledged(batch.count, now - batch.created_at)

    def _on_written(self, batch: ProducerBatch, base_offset: int | None, now: float) -> None:
        if batch.has_sequence:
            self._offsets.on_acknowledged(batch, base_offset)
        for elder in self._sequencer.on_acknowledged(batch, now):
            self.accumulator.withdraw((elder,))
            self._fail(elder, overtaken(elder), now=now)

    def _fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        blamed: Mapping[int, KafkaError] | None = None,
        *,
        now: float | None = None,
    ) -> None:
        if batch.topic_partition.partition != NO_PARTITION:
            self._sequencer.on_failed(batch)
        if self._transactions is not None:
            self._transactions.on_batch_failed(batch, error)
        outcome = failure_outcome(batch, error, blamed, now)
        if self.accumulator.complete(batch, outcome):
            where, since = batch.topic_partition, batch.created_at
            self._stats.on_batch_failed(FailedBatch(where, batch.count, since, str(outcome.error)))

    def _on_acknowledged(
        self, batches: Sequence[ProducerBatch], answer: Acknowledgement, now: float
    ) -> None:
        self._count_response(batches[0], answer.throttle_time_ms, now)
        for batch in batches:
            place = answer.places[batch.topic_partition.partition]
            self._acknowledge(batch, standing_at(*place), now)

    def _acknowledge(self, batch: ProducerBatch, outcome: BatchOutcome, now: float) -> None:
        """`_succeed` and `_let_go` in one."""
        if batch.done:  # it ended meanwhile
            self._let_go((batch,))
            return
        self._on_written(batch, outcome.base_offset, now)
        self.accumulator.acknowledge(batch, outcome)
        batch.on_wire = False
        self._stats.on_batch_acknowledged(batch.count, now - batch.created_at)

    def _count_response(self, batch: ProducerBatch, throttle_ms: int, now: float) -> None:
        """The request with this batch was answered."""
        self._stats.tick(now)
        self._stats.on_response(now - batch.last_attempt_at, throttle_ms / 1000)

    def _let_go(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            batch.on_wire = False
            self.accumulator.release(batch)
            self._sequencer.on_off_the_wire(batch.topic_partition)
            self.accumulator.unmute(batch.topic_partition)
