"""TransactionManager: the sans-I/O state machine of a transactional producer.

It has the state of the transaction, the due requests and their order, and handles their outcomes.
ARCHITECTURE.md (Transactions) has the reasons. In V1 (KIP-98) partitions and groups are added
before they are used; in V2 (KIP-890) neither is added, and each end brings a new epoch.

Invariants
- At most one request is in flight.
- A transaction ends on the broker only when every batch of it has its outcome and is off the wire.
- After a record has failed, the transaction cannot be committed, even if its error was not read.
- Sequences are never repaired locally: after a failed batch, the end of a V2 transaction brings the
  new epoch; V1 requests one before the next transaction (KIP-360).
- A refused call changes nothing. A background event that does not fit the state is fatal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aioproducer.core.sending.idempotence import ProducerIdentity
from aioproducer.core.transactions import requests
from aioproducer.core.transactions.contents import TransactionContents
from aioproducer.core.transactions.operations import (
    ADVICE,
    CALLABLE_IN,
    OffsetsOperation,
    Operation,
    OperationKind,
    Operations,
)
from aioproducer.core.transactions.rules import Reaction, Rpc
from aioproducer.core.transactions.states import TRANSITIONS, EpochRenewal, TransactionState
from aioproducer.errors import (
    CommitOutcomeUnknownError,
    FatalTransactionError,
    IllegalStateError,
    InvalidTransactionTimeoutError,
    KafkaError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from aioproducer.errors.advice import joined
from aioproducer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Persistence,
    PreparedTransaction,
    TopicPartition,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.core.transactions.requests import TransactionalRequest

_S = TransactionState
_FAILS_WITH = frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.COMMITTING})
"""States in which a failed record fails the transaction, and no record is abandoned."""
_OPEN = frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTING, _S.ABORTABLE_ERROR})
"""States with an open transaction and no commit call."""
_NOT_COMMITTED = (
    "nothing of the transaction is visible, and nothing will be: the broker aborts it, after "
    "transaction_timeout_ms at the latest; its work can be done again"
)
_FATAL_ALREADY = (
    FatalTransactionError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
)
_ADDITIONS = frozenset({Rpc.ADD_PARTITIONS, Rpc.ADD_OFFSETS})
"""Requests that begin a V1 transaction at its coordinator."""
_MAY_APPLY_LATE = frozenset({Rpc.COMMIT_OFFSETS, Rpc.END})
"""Requests that, when late, change the next transaction of the same epoch."""


class TransactionManager:
    """The state machine of one transactional producer.

    The coordinator aborts an open transaction after `timeout_ms`; `two_phase` disables that, for an
    external coordinator (KIP-939).
    """

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        two_phase: bool = False,
        topic_ids: Callable[[], Mapping[str, UUID]] = dict,
    ) -> None:
        self.transactional_id: str = transactional_id
        self.state: TransactionState = _S.UNINITIALIZED
        self.error: KafkaError | None = None
        """The abortable or fatal error, or the last error of the initialization."""
        self.coordinator_error: KafkaError | None = None
        """The error for which the last coordinator request is retried; None after a success."""
        self.identity: ProducerIdentity | None = None
        self.number: int = 0
        """Number of the current transaction; it identifies the transaction of a record."""
        self.over: int = 0
        """Number of the last transaction that ended, or was prepared when the producer failed."""
        self.aborted_by_close: int = 0
        """Number of the transaction that was aborted by the close of the producer; 0 for none."""
        self.on_work: Callable[[], None] = lambda: None
        """Called when a request may have become due."""
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._topic_ids = topic_ids
        self._operations = Operations()
        self._wants_v2 = False
        self._can_renew = True
        self._renewal = EpochRenewal.NOT_NEEDED
        self._unanswered: Rpc | None = None
        self._commit_at_the_end: Operation | None = None
        self.contents: TransactionContents = TransactionContents(transactional_id)

    # -- calls of the application ----------------------------------------------------------------

    def init(self) -> Operation:
        """Request a producer id, which fences older producers of this transactional id."""
        operation = self._repeated(OperationKind.INIT)
        if operation is None:
            operation = self._operations.start(OperationKind.INIT)
            self.error = None
            self._move(_S.INITIALIZING)
        return operation

    def begin(self, version: int | None) -> Operation:
        """Begin a transaction with the protocol of `version`, the cluster's transaction.version.

        With None (unknown) the protocol does not change.
        """
        operation = self._repeated(OperationKind.BEGIN)
        if operation is None:
            operation = self._operations.start(OperationKind.BEGIN)
            if version is not None:
                self._wants_v2 = version >= 2
            self._maybe_begin()
        return operation

    def prepare(self) -> Operation:
        """Accept no more records and wait for every acknowledgement; the transaction stays open.

        V1 cannot distinguish two transactions of one epoch. The next one begins with a new epoch,
        so that a late end of this one cannot end it.
        """
        operation = self._repeated(OperationKind.PREPARE)
        if operation is None:
            if not self._can_renew:
                raise UnsupportedVersionError(
                    "brokers before Kafka 2.5 give a prepared transaction and the next one the "
                    "same epoch, so that a late end of the first would end the second",
                    advice="commit without preparing, or upgrade the brokers",
                )
            operation = self._operations.start(OperationKind.PREPARE)
            self._renew_in_v1()
            self._move(_S.PREPARED)
        return operation

    def prepared(self) -> PreparedTransaction:
        """Return the handle with which any process can end the prepared transaction."""
        found = self._as_prepared()
        if not self.is_prepared or found is None:
            raise self._refusal("prepare_transaction")
        return found

    def assume(self, transactional_id: str) -> None:
        """Switch to another transactional id, not initialized, and leave a prepared transaction.

        Another process can end that transaction, as after a close of the producer.
        """
        if not self.is_prepared:
            raise self._refusal("assume")
        self.transactional_id, self.identity = transactional_id, None
        v2, self.contents = self.contents.v2, TransactionContents(transactional_id)
        self.contents.v2 = v2
        self._unanswered = None
        self._move(_S.UNINITIALIZED)

    def commit(self) -> Operation:
        """Commit once every record is acknowledged.

        After the producer failed, return a commit whose success no caller has seen. Raise the
        outcome of any other commit, or of the transaction that was open.
        """
        last = self._commit_at_the_end
        if last is not None:
            if last.error is not None:
                raise last.error.with_context()
            return last
        operation = self._repeated(OperationKind.COMMIT)
        if operation is None:
            self.contents.handed_out = self.is_prepared
            operation = self._operations.start(OperationKind.COMMIT)
            self._move(_S.COMMITTING)
        return operation

    def abort(self) -> Operation:
        """Abort; unsent records fail with `TransactionAbortedError`."""
        return self._abort(TransactionAbortedError("the transaction was aborted meanwhile"))

    def _abort(self, reason: KafkaError, *, closing: bool = False) -> Operation:
        """Abort; other pending calls fail with the reason."""
        unreceived, handed_out = self._operations.unreceived, self.is_prepared
        if unreceived is not None and (closing or unreceived.kind is OperationKind.PREPARE):
            # The caller has not seen the outcome, so no other process can have the handle.
            self.on_seen(unreceived)
        operation = self._repeated(OperationKind.ABORT)
        if operation is None:
            self.contents.handed_out |= handed_out
            operation = self._operations.start(OperationKind.ABORT)
            self._move(_S.ABORTING)
            self.contents.drop(reason)
            self._operations.finish_all(OperationKind.PREPARE, error=reason)
        return operation

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Operation:
        """Add offsets of a consumer group to the transaction (KIP-447)."""
        self._check(OperationKind.SEND_OFFSETS)
        operation = OffsetsOperation(group, dict(offsets))
        self.contents.add_offsets(operation)
        return operation

    def on_seen(self, operation: Operation) -> None:
        """Mark an outcome as seen by a caller: other calls may follow."""
        self._operations.on_received(operation)
        if operation is self._commit_at_the_end and operation.error is None:
            self._commit_at_the_end = None

    def end_for_close(self) -> Operation | None:
        """Abort an open transaction; return the operation to await before the producer closes.

        A prepared transaction stays open: another process may end it.
        """
        if self.is_prepared:
            return None
        if self.state in CALLABLE_IN[OperationKind.ABORT]:
            self.aborted_by_close = self.number
            error = ProducerClosedError("the producer was closed meanwhile")
            return self._abort(error, closing=True)
        return self._operations.end_of_transaction()

    def check_send(self) -> int:
        """Return the number of the transaction for a new record; raise if none can take it."""
        if self.state is not _S.IN_TRANSACTION:
            raise self._refusal("send")
        return self.number

    # -- for the sender --------------------------------------------------------------------------

    @property
    def uses_v2(self) -> bool:
        """Whether the open transaction uses V2 (KIP-890)."""
        return self.contents.v2

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is prepared and the caller has received that."""
        return self.state is _S.PREPARED and self._operations.unreceived is None

    @property
    def is_busy(self) -> bool:
        """Whether a call has no outcome yet."""
        return bool(self._operations)

    @property
    def is_free(self) -> bool:
        """Whether `begin` or `assume` may be called now."""
        may_begin = self.state in CALLABLE_IN[OperationKind.BEGIN]
        return self._operations.unreceived is None and (may_begin or self.is_prepared)

    @property
    def has_unreported_commit(self) -> bool:
        """Whether `commit` returns the outcome of an earlier call, even after a fatal error."""
        return self._commit_at_the_end is not None or self._operations.commit is not None

    @property
    def awaits_batches(self) -> bool:
        """Whether a commit, abort or prepare waits for batches."""
        ends = self.state in {_S.COMMITTING, _S.ABORTING}
        return ends or OperationKind.PREPARE in self._operations

    @property
    def abandoned_with(self) -> KafkaError | None:
        """The error for queued batches of an aborted transaction; None otherwise."""
        if self.state not in {_S.ABORTING, _S.ABORTABLE_ERROR}:
            return None
        error = TransactionAbortedError("the record's transaction was aborted before it was sent")
        error.__cause__ = self.error
        return error

    def may_abandon(self, batch: ProducerBatch) -> bool:
        """Return whether a queued batch may be dropped; with a sequence this needs a new epoch.

        Brokers before 2.5 cannot bump the epoch; the batch is then sent, as the Java client always
        does.
        """
        return self._can_renew or not batch.has_sequence

    @property
    def may_abort_nothing(self) -> bool:
        """Whether V1 aborts a transaction that the coordinator may not have, and may refuse."""
        return self.state is _S.ABORTING and not self.uses_v2 and not self.contents.known

    @property
    def aborts_before_renewal(self) -> bool:
        """Whether an abort has to precede the request for the next epoch.

        It ends a transaction that a late addition of this epoch may have begun.
        """
        renews = self.state is _S.INITIALIZING and self.identity is not None
        return renews and self._renewal is EpochRenewal.NEEDED_AFTER_ABORT

    def on_partition_used(self, topic_partition: TopicPartition) -> None:
        """Add the partition of a new batch to the transaction (V1)."""
        if self.contents.use(topic_partition):
            self.on_work()

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Return whether a batch of the transaction may be sent."""
        wanted = batch.has_sequence or self.state in _FAILS_WITH
        return wanted and batch.topic_partition in self.contents

    def on_drained(self) -> None:
        """Record that a batch is sent: from now on a V2 transaction exists at the broker."""
        self.contents.begun |= self.uses_v2

    def on_batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Fail the transaction of a failed batch."""
        if batch.has_sequence and not self.uses_v2:
            self._require_new_epoch(error)
        self._fail_transaction(error)

    def on_sequences_lost(self, why: str) -> None:
        """Handle lost records: fail their transaction, and renew the epoch of their sequences."""
        self._renew_in_v1()
        if self._can_fail and (self.contents.begun or not self.uses_v2):
            self._fail_transaction(KafkaError(why))

    def on_send_refused(self, number: int, error: KafkaError) -> None:
        """Fail transaction `number`, since a record for it was refused (Java: doSend)."""
        if number == self.number and self._can_fail:
            self._fail_transaction(error)

    def fail(self, error: KafkaError) -> None:
        """Fail the producer; every pending and later call gets the error."""
        if self.state is not _S.FATAL_ERROR:
            if not isinstance(error, _FATAL_ALREADY):
                error = FatalTransactionError("the producer cannot go on").because_of(error)
            elif isinstance(error, ProducerFencedError):
                error = self._fencing_error(error)
            self._commit_at_the_end = self._end_of_commit(error)
            if self.is_prepared:
                self.over = self.number
            self.state, self.error = _S.FATAL_ERROR, error
        # Also when called again: an exception may have interrupted the first call.
        self.contents.drop(error)
        self._operations.finish_all(*OperationKind, error=error)
        self.on_work()

    # -- requests and their outcomes -------------------------------------------------------------

    def has_work(self, *, is_idle: bool) -> bool:
        """Return whether `wanted` has something to do."""
        if self.state is _S.INITIALIZING:
            return True
        has_more = self.contents.has_additions or (self.awaits_batches and is_idle)
        return self.identity is not None and has_more

    def wanted(self, *, is_idle: bool) -> TransactionalRequest | None:
        """Return the request that is due, if any.

        `is_idle`: no batch is without an outcome or on the wire.
        """
        name, identity = self.transactional_id, self.identity
        if identity is not None and self.aborts_before_renewal:
            return requests.end(name, identity, commit=False, v2=False)
        if self.state is _S.INITIALIZING:
            return requests.init_producer_id(
                name, self._timeout_ms, identity, two_phase=self._two_phase
            )
        if identity is None:
            return None
        missing = self.contents.wanted(identity, self._topic_ids)
        if missing is not None or not (self.awaits_batches and is_idle):
            return missing
        if self.state is _S.PREPARED:
            self._operations.finish_all(OperationKind.PREPARE)
            return None
        if not self.contents.begun:
            self.on_ended(None)
            return None
        commit = self.state is _S.COMMITTING
        return requests.end(name, identity, commit=commit, v2=self.uses_v2)

    def on_sending(self, rpc: Rpc) -> None:
        """Record that a request is about to be written: from now on it may have an effect.

        `on_sent` or `on_unreachable` of `CoordinatorSession` follows.
        """
        if rpc is Rpc.END:
            self.contents.end_is_out = True

    def on_sent(self, rpc: Rpc, version: int) -> None:
        """Handle a request that was sent."""
        if rpc is Rpc.INIT_PRODUCER_ID:
            self._can_renew = version >= requests.FIRST_INIT_WITH_IDENTITY
        elif rpc is Rpc.COMMIT_OFFSETS and self.uses_v2:
            self.contents.begun = True
        elif rpc is Rpc.END:
            self.contents.may_have_ended = self.contents.end_is_out = True

    def on_answered(self, rpc: Rpc) -> None:
        """Handle a request that was refused or not sent; not called after a success."""
        if rpc is Rpc.END:
            self.contents.end_is_out = False
        elif rpc is Rpc.INIT_PRODUCER_ID and self._renewal is EpochRenewal.ABORTED:
            self._renewal = EpochRenewal.NEEDED_AFTER_ABORT

    def on_doubt(self, rpc: Rpc) -> None:
        """Record that a request may have had an effect, although no response confirmed it."""
        if rpc is Rpc.INIT_PRODUCER_ID and self._renewal is EpochRenewal.ABORTED:
            self._renewal = EpochRenewal.POSSIBLY_DONE
        elif rpc is Rpc.END:
            self.contents.end_in_doubt = True
        elif rpc in _ADDITIONS:
            self.contents.begun = True

    def on_unanswered(self, rpc: Rpc) -> None:
        """Handle a sent request without a response; it may still have an effect."""
        self.on_doubt(rpc)
        self.on_answered(rpc)
        if rpc in _MAY_APPLY_LATE:
            self._renew_in_v1()
        elif rpc in _ADDITIONS:
            self._renewal = EpochRenewal.NEEDED_AFTER_ABORT
            self._unanswered = self._unanswered or rpc
        elif rpc is Rpc.INIT_PRODUCER_ID:
            self._unanswered = rpc

    def on_identity(self, identity: ProducerIdentity) -> None:
        """Store a producer id and epoch from the coordinator."""
        self.identity, self._renewal = identity, EpochRenewal.NOT_NEEDED
        if self._unanswered in _ADDITIONS:
            self._unanswered = None
        self._move(_S.READY)
        self._operations.finish_all(OperationKind.INIT)
        self._maybe_begin()

    def on_ended(self, identity: ProducerIdentity | None) -> None:
        """Handle the end of the transaction; V2 brings the next identity."""
        if self.aborts_before_renewal:
            self._renewal = EpochRenewal.ABORTED
            self.contents.clear()
            self.on_work()
            return
        ended = OperationKind.COMMIT if self.state is _S.COMMITTING else OperationKind.ABORT
        self._operations.finish_all(ended)  # first, so that an exception below cannot change it
        if identity is not None:
            self.identity = identity
        self._move(_S.INITIALIZING if self._needs_new_epoch else _S.READY)
        self.error, self.over = None, self.number
        self.contents.clear()
        self._maybe_begin()

    def on_refused(self, rpc: Rpc, reaction: Reaction, error: KafkaError) -> None:
        """Handle a request with an error that is not retried."""
        if isinstance(error, InvalidTransactionTimeoutError):
            error = InvalidTransactionTimeoutError(
                f"transaction_timeout_ms={self._timeout_ms} is above the broker's "
                "transaction.max.timeout.ms",
                node_id=error.node_id,
            )
        match reaction:
            case Reaction.FENCED:
                self.fail(ProducerFencedError(node_id=error.node_id))
            case Reaction.FATAL:
                self.fail(error)
            case Reaction.BUMP:
                self._require_new_epoch(error)
                if rpc is Rpc.END and self.state is _S.ABORTING:
                    # A new epoch ends the transaction as well.
                    self.on_ended(None)
                self._fail_transaction(error)
            case _ if self.state is _S.INITIALIZING:
                self.error = error
                self._move(_S.UNINITIALIZED)
                self._operations.finish_all(OperationKind.INIT, OperationKind.BEGIN, error=error)
            case _:
                self._fail_transaction(error)

    # -- steps -----------------------------------------------------------------------------------

    def _repeated(self, kind: OperationKind) -> Operation | None:
        """Return the operation that the call repeats; None for a new call that is allowed."""
        if self.state is _S.FATAL_ERROR:
            raise self._refusal(kind.value)
        operation = self._operations.repeated(kind)
        if operation is None:
            self._check(kind)
        return operation

    def _check(self, kind: OperationKind) -> None:
        if self.state not in CALLABLE_IN[kind]:
            raise self._refusal(kind.value)

    def _refusal(self, call: str) -> KafkaError:
        if self.error is not None and self.state in {_S.ABORTABLE_ERROR, _S.FATAL_ERROR}:
            return self.error.with_context()
        why = f": {self.error}" if self.state is _S.UNINITIALIZED and self.error is not None else ""
        refusal = IllegalStateError(
            f"{call}() is not possible: the producer is {self.state.value}{why}",
            advice=ADVICE[self.state],
        )
        refusal.__cause__ = self.error
        return refusal

    def _as_prepared(self) -> PreparedTransaction | None:
        """Return the handle of the open transaction; None without an identity."""
        if self.identity is None:
            return None
        return PreparedTransaction(
            self.transactional_id,
            *self.identity,
            transaction_version=2 if self.uses_v2 else 1,
            empty=not self.contents.begun,
        )

    def _end_of_commit(self, error: KafkaError) -> Operation | None:
        """Return the operation that later `commit` calls get after a fatal error, if any."""
        operation, contents = self._operations.commit, self.contents
        if operation is not None and operation.done:
            return operation
        if operation is None:
            if self.state not in _OPEN or self.is_prepared:
                return None
            operation = Operation(OperationKind.COMMIT)
        is_ending = self.state is _S.COMMITTING and (contents.end_is_out or contents.end_in_doubt)
        if is_ending or contents.handed_out:
            outcome: KafkaError = CommitOutcomeUnknownError(
                f"the transaction of {self.transactional_id!r} may be committed or not: "
                f"{error.without_advice()}",
                transaction=self._as_prepared(),
            )
            outcome.__cause__ = error
        else:
            outcome = error.with_context(
                persistence=Persistence.NOT_PERSISTED, advice=joined(_NOT_COMMITTED, error.advice)
            )
        operation.finish(outcome)
        return operation

    def _fencing_error(self, error: ProducerFencedError) -> ProducerFencedError:
        """Return the error with all its possible causes.

        A coordinator returns the same error for another producer and for a late request of this
        one.
        """
        if self._unanswered is None:
            return error
        return ProducerFencedError(
            f"another producer with the transactional id {self.transactional_id!r} has taken "
            "over, the transaction timed out, or a late request of this producer has fenced it: "
            f"{self._unanswered.value} got no response and may have been carried out later",
            node_id=error.node_id,
        )

    def _move(self, state: TransactionState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise IllegalStateError(
                f"a producer that is {self.state.value} cannot be {state.value} next"
            )
        self.state = state
        self.on_work()

    def _maybe_begin(self) -> None:
        if self.state is not _S.READY or OperationKind.BEGIN not in self._operations:
            return
        # Late requests of the old protocol must not affect the new one. Nor may the outcome of a V1
        # transaction be taken for that of the V2 one before, which ended under the same epoch.
        has_changed = self.number > 0 and self._wants_v2 is not self.uses_v2
        self.contents.v2 = self._wants_v2
        if has_changed or self._needs_new_epoch:
            self._move(_S.INITIALIZING)
            return
        self.number += 1
        self._move(_S.IN_TRANSACTION)
        self._operations.finish_all(OperationKind.BEGIN)

    def _fail_transaction(self, cause: KafkaError) -> None:
        if self.state not in _FAILS_WITH:
            return
        error = cause
        if not isinstance(cause, TransactionAbortableError):
            error = TransactionAbortableError("the transaction has failed").because_of(cause)
        self.error = error
        self._move(_S.ABORTABLE_ERROR)
        self.contents.drop(error)
        self._operations.finish_all(OperationKind.PREPARE, OperationKind.COMMIT, error=error)

    @property
    def _can_fail(self) -> bool:
        """Whether a failed record can still prevent a commit, here or by another process."""
        decided = self.is_prepared or self.contents.may_have_ended
        return self.state in _FAILS_WITH and not decided

    @property
    def _needs_new_epoch(self) -> bool:
        return self._renewal is not EpochRenewal.NOT_NEEDED and self._can_renew

    def _renew(self) -> None:
        """Have the epoch renewed before the next transaction, where brokers can do that."""
        if self._renewal is EpochRenewal.NOT_NEEDED:
            self._renewal = EpochRenewal.NEEDED

    def _renew_in_v1(self) -> None:
        if not self.uses_v2:
            self._renew()

    def _require_new_epoch(self, cause: KafkaError) -> None:
        self._renew()
        if not self._can_renew:
            self.fail(cause)
