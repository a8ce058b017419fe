"""Requests to coordinators: lookup, one request at a time, schedule, target node, retries.

    next_request --not cached--> FindCoordinator --response--> next_request
         |
         +--sent--> in flight --success--> an event of the manager
                        |  |
                        |  +--retriable-----------> backoff --> next_request
                        +-----moved, no response--> coordinator dropped, backoff --> FindCoordinator

A request is never kept for a retry: the next one is built from the state at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from aioproducer.core.metadata.cluster import is_usable, place_for_errors
from aioproducer.core.sending.actions import (
    Action,
    Connect,
    CoordinatorUnreachable,
    NodeView,
    RequestOfCoordinator,
    recheck_at,
)
from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import requests
from aioproducer.core.transactions.requests import Answered, CoordinatorKey, TransactionalRequest
from aioproducer.core.transactions.rules import (
    INVALID_TXN_STATE,
    OPERATION_NOT_ATTEMPTED,
    Reaction,
    Rpc,
    concurrent_backoff,
    gravest,
    may_have_worked,
    reaction_to,
)
from aioproducer.core.transactions.states import TransactionState
from aioproducer.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    KafkaError,
    NodeDisconnectedError,
    UnsupportedVersionError,
    error_from_code,
)
from aioproducer.errors.authorization import request_name, this_principal, with_access
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from random import Random

    from aioproducer._util.backoff import ExponentialBackoff
    from aioproducer.core.batching.accumulator import RecordAccumulator
    from aioproducer.core.metadata.metadata import Metadata
    from aioproducer.core.transactions.manager import TransactionManager
    from aioproducer.wire.messages.find_coordinator import FindCoordinatorResponse
    from aioproducer.wire.messages.init_producer_id import InitProducerIdResponse
    from aioproducer.wire.messages.transactions import (
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnResponse,
        EndTxnResponse,
        TxnOffsetCommitResponse,
    )
    from aioproducer.wire.schema import Message

_MOST_REMEMBERED = 100
"""Limit of cached coordinators: a producer that calls `assume` often needs many."""
_DECIDES_RENEWAL = frozenset({Reaction.RETRY, Reaction.FIND_COORDINATOR, Reaction.FENCED})
"""Reactions to an abort before a new epoch after which the epoch is not requested yet."""


class CoordinatorSession:
    """Makes the requests of a `TransactionManager` and reads their responses."""

    def __init__(
        self,
        manager: TransactionManager,
        backoff: ExponentialBackoff,
        rng: Random,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        *,
        principal: Callable[[], str] = this_principal,
    ) -> None:
        self._manager = manager
        self._metadata = metadata
        self._accumulator = accumulator
        self._backoff = backoff
        self._rng = rng
        self._principal = principal
        self._coordinators: dict[CoordinatorKey, int] = {}
        self._in_flight: TransactionalRequest | None = None
        self.failures: int = 0
        """Number of consecutive failures; the lookup of a coordinator does not reset it."""
        self._retry_at = -inf
        self.wanted: Rpc | None = None
        """The request that a call waits for; None while none is due."""
        self.is_searching: bool = False
        """Whether the coordinator for that request is not known yet."""

    def poll(self, now: float, nodes: NodeView) -> list[Action]:
        """Return the action that is due now, if any."""
        request = self.next_request(now)
        if request is None:
            return []
        node_id = request.node_id
        if node_id is None:
            node_id = nodes.least_loaded_node(now)
            if node_id is None:
                return []
            request = replace(request, node_id=node_id)
        elif node_id not in self._metadata.cluster.nodes:
            self._metadata.request_update()
            gone = NodeDisconnectedError("not among the brokers")
            return [CoordinatorUnreachable(request, gone)]
        if nodes.can_ask(node_id, now):
            return [RequestOfCoordinator(node_id, request)]
        failure = nodes.connection_failures(node_id)
        if failure is not None and now < nodes.ready_at(node_id, now) < inf:
            # It backs off. The coordinator may have moved.
            return [CoordinatorUnreachable(request, failure)]
        return [Connect(node_id)]

    def next_request(self, now: float) -> TransactionalRequest | None:
        """Return the request to send now, if any."""
        if self._in_flight is not None or now < self._retry_at:
            return None
        wanted = self._manager.wanted(is_idle=self._accumulator.is_idle)
        self.wanted = None if wanted is None else wanted.rpc
        if wanted is None:
            return None
        node_id = self._coordinators.get(wanted.coordinator)
        self.is_searching = node_id is None
        if node_id is None:
            return requests.find_coordinator(wanted.coordinator)
        return replace(wanted, node_id=node_id)

    def due_at(self, now: float) -> float:
        """Return the loop time of the next turn after an event; `now` means at once."""
        if self._in_flight is not None:
            return inf
        if self._retry_at > now:
            return self._retry_at
        return now if self._manager.has_work(is_idle=self._accumulator.is_idle) else inf

    def next_deadline(self, now: float, nodes: NodeView) -> float:
        """Return the loop time of the next turn if no event comes before."""
        due_at = self.due_at(now)
        return due_at if due_at > now else recheck_at(nodes, now)

    def on_sent(self, request: TransactionalRequest, version: int) -> None:
        """Handle a request that was sent."""
        self._in_flight = request
        self._manager.on_sent(request.rpc, version)

    def on_unreachable(self, request: TransactionalRequest, error: KafkaError, now: float) -> None:
        """Handle a request that could not be sent or got no response."""
        if self._in_flight is not None:
            self._in_flight = None
            self._manager.on_unanswered(request.rpc)
        else:
            self._manager.on_answered(request.rpc)
        self._coordinators.pop(request.coordinator, None)
        self._back_off(now, error)

    def on_unsupported(self, request: TransactionalRequest, error: UnsupportedVersionError) -> None:
        """Handle a request of which the broker supports no version that can be used: fatal."""
        self._manager.fail(error.with_context(advice=request.advice))

    def on_response(self, request: TransactionalRequest, response: Message, now: float) -> None:
        """Handle a response; one that does not fit the state is fatal."""
        self._in_flight = None
        try:
            _READERS[request.rpc](self, request, response, now)
        except IllegalStateError as error:
            self._manager.fail(error)

    # -- answers ---------------------------------------------------------------------------------

    def _on_coordinator(
        self, request: TransactionalRequest, response: FindCoordinatorResponse, now: float
    ) -> None:
        found = requests.coordinator_of(response, request.coordinator.name)
        code, message = found.error_code, found.error_message
        if not code and not is_usable(found.host, found.port):
            code = CoordinatorNotAvailableError.code  # no coordinator: asked again elsewhere
            if found.host:
                place = place_for_errors(found.host, found.port)
                message = f"it is node {found.node_id}, which advertises {place}: no valid address"
        if self._taken(request, Answered(code, message), now):
            if len(self._coordinators) >= _MOST_REMEMBERED:
                self._coordinators.clear()
            self._coordinators[request.coordinator] = found.node_id

    def _on_producer_id(
        self, request: TransactionalRequest, response: InitProducerIdResponse, now: float
    ) -> None:
        code = response.error_code
        if not code and not response.producer_id >= 0 <= response.producer_epoch:
            code = CoordinatorNotAvailableError.code  # no producer id: asked again elsewhere
        if self._taken(request, Answered(code), now):
            self._manager.on_identity(
                ProducerIdentity(response.producer_id, response.producer_epoch)
            )

    def _on_partitions_added(
        self, request: TransactionalRequest, response: AddPartitionsToTxnResponse, now: float
    ) -> None:
        answers = requests.added_partitions(response)
        self._manager.contents.on_partitions_added(self._each_taken(request, answers, now))

    def _on_group_added(
        self, request: TransactionalRequest, response: AddOffsetsToTxnResponse, now: float
    ) -> None:
        if self._taken(request, Answered(response.error_code), now):
            self._manager.contents.on_group_added(request.group_id)

    def _on_offsets_committed(
        self, request: TransactionalRequest, response: TxnOffsetCommitResponse, now: float
    ) -> None:
        answers = requests.committed_offsets(response, request.topic_ids)
        self._manager.contents.on_offsets_committed(self._each_taken(request, answers, now))

    def _on_ended(
        self, request: TransactionalRequest, response: EndTxnResponse, now: float
    ) -> None:
        if self._taken(request, Answered(response.error_code), now):
            identity = ProducerIdentity(response.producer_id, response.producer_epoch)
            self._manager.on_ended(identity if response.producer_id >= 0 else None)

    # -- steps -----------------------------------------------------------------------------------

    def _taken(self, request: TransactionalRequest, answer: Answered, now: float) -> bool:
        """Return whether the response is a success; otherwise react to its error."""
        if answer.code:
            self._react(request, answer, now)
            return False
        if request.rpc is not Rpc.FIND_COORDINATOR:
            self._on_success()
        return True

    def _each_taken(
        self, request: TransactionalRequest, answers: Mapping[TopicPartition, Answered], now: float
    ) -> list[TopicPartition]:
        """Return the accepted partitions; react to the gravest error of the others."""
        asked = [partition for partition in request.partitions if partition in answers]
        refused = [answers[partition] for partition in asked if answers[partition].code]
        if len(asked) < len(request.partitions):
            self._manager.on_doubt(request.rpc)
        if refused:
            # OPERATION_NOT_ATTEMPTED does not show the cause.
            causes = [answer for answer in refused if answer.code != OPERATION_NOT_ATTEMPTED]
            worst = gravest(request.rpc, [answer.code for answer in causes or refused])
            self._react(request, next(a for a in refused if a.code == worst), now)
        elif len(asked) < len(request.partitions):
            left_out = "the response left some partitions out"
            self._back_off(now, KafkaError(left_out, node_id=request.node_id))
        else:
            self._on_success()
        return [partition for partition in asked if not answers[partition].code]

    def _react(self, request: TransactionalRequest, answer: Answered, now: float) -> None:
        manager = self._manager
        contents, is_end = manager.contents, request.rpc is Rpc.END
        # An earlier request may have ended the transaction, whatever this response is.
        may_have_ended = contents.end_in_doubt if is_end else contents.may_have_ended
        # So may another process that has the handle, unless the error is about the state.
        elsewhere = contents.handed_out and answer.code != INVALID_TXN_STATE
        aborting = manager.state is TransactionState.ABORTING
        reaction = reaction_to(
            request.rpc,
            answer.code,
            ending=aborting or may_have_ended or elsewhere,
            may_be_committed=elsewhere or (may_have_ended and not aborting),
        )
        topic, partition = answer.topic_partition or (None, None)
        error = error_from_code(
            answer.code, answer.message, topic=topic, partition=partition, node_id=request.node_id
        )
        error = with_access(
            error,
            request_name(request.request_type),
            self._principal,
            group=request.group,
            transactional_id=manager.transactional_id,
        )
        if may_have_worked(answer.code):
            manager.on_doubt(request.rpc)
        manager.on_answered(request.rpc)
        if is_end and answer.code == INVALID_TXN_STATE and manager.may_abort_nothing:
            manager.on_ended(None)
        elif is_end and manager.aborts_before_renewal and reaction not in _DECIDES_RENEWAL:
            # There was nothing to abort, or InitProducerId will fail with the same error.
            manager.on_ended(None)
        elif reaction is Reaction.RETRY:
            if error.refreshes_metadata:
                self._metadata.request_update()
            self._back_off(now, error)
        elif reaction is Reaction.FIND_COORDINATOR:
            self._coordinators.pop(request.coordinator, None)
            self._back_off(now, error)
        else:
            manager.on_refused(request.rpc, reaction, error)

    def _on_success(self) -> None:
        self.failures, self._manager.coordinator_error = 0, None

    def _back_off(self, now: float, error: KafkaError) -> None:
        concurrent = isinstance(error, ConcurrentTransactionsError)
        backoff = concurrent_backoff(self._backoff) if concurrent else self._backoff
        self._retry_at = now + backoff.delay(self.failures, self._rng)
        self.failures += 1
        self._manager.coordinator_error = error


_Reader = Callable[[CoordinatorSession, TransactionalRequest, Any, float], None]
_READERS: Mapping[Rpc, _Reader] = {
    Rpc.FIND_COORDINATOR: CoordinatorSession._on_coordinator,
    Rpc.INIT_PRODUCER_ID: CoordinatorSession._on_producer_id,
    Rpc.ADD_PARTITIONS: CoordinatorSession._on_partitions_added,
    Rpc.ADD_OFFSETS: CoordinatorSession._on_group_added,
    Rpc.COMMIT_OFFSETS: CoordinatorSession._on_offsets_committed,
    Rpc.END: CoordinatorSession._on_ended,
}
