"""TransactionManager: what a transactional producer does next, decided without doing it.

Owns: the state of the transaction, the requests it needs and their order, retries, the reading of
their answers, who is told. Must not know: asyncio, connections, record batches beyond whether one
failed; `core.transactions.states` has the states, `core.transactions.rules` the error codes.

Two protocols
- V1 (KIP-98): partitions and groups are announced before they are used; the epoch stays over many
  transactions. V2 (KIP-890): neither is announced, and each end brings a new epoch. Which one
  holds is looked up when a transaction begins.

Invariants
- One request is out at a time.
- A transaction ends on the broker only when no batch of it is without an outcome or on the wire,
  so that none arrives late; hence no batch is stamped with an epoch that has ended.
- Once a record has failed the transaction cannot be committed, whether or not anybody looked.
- Once an EndTxn is sent, or the preparation told, nothing but the coordinator's answer fails the
  transaction: it may be committed already.
- Sequences are never mended locally: after a failed batch, V2's end brings the new epoch; V1 asks
  for one before the next transaction (KIP-360).
- In V1 a request without an answer may still reach the coordinator: the next transaction begins
  under a new epoch, which it cannot touch (KAFKA-17754). A coordinator fences the producer that
  asks for one while a transaction of its own runs, so what may have begun is ended before that;
  after an addition without an answer once more, right before the request for the epoch: it may
  have begun a transaction after the end of its own.
- A call that is refused changes nothing. A background event that fits no state is fatal.
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
from aioproducer.core.transactions.states import TRANSITIONS, TransactionState
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
)
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
"""States in which a failed record fails the transaction, and all of them are wanted."""
_OPEN = frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTING, _S.ABORTABLE_ERROR})
"""States in which a transaction is open that nobody has asked to commit."""
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
_DOUBTFUL = _ADDITIONS | {Rpc.COMMIT_OFFSETS, Rpc.END}
"""Requests that change the transaction when they arrive late."""


class TransactionManager:
    """The state machine of one transactional producer.

    Args:
        transactional_id: the name the transactions go by.
        timeout_ms: after how long the coordinator aborts an open transaction.
        two_phase: whether it shall not do that, an outside coordinator deciding (KIP-939).
        topic_ids: the ids of topics, as far as they are known.
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
        """Why the transaction can only be aborted, nothing can be done, or no epoch was given."""
        self.coordinator_error: KafkaError | None = None
        """Why the last request to a coordinator is repeated; None after a success."""
        self.identity: ProducerIdentity | None = None
        self.number: int = 0
        """Counts the transactions; tells a record of one from a record of another."""
        self.over: int = 0
        """The last one that has ended, or that was prepared when the producer came to its end."""
        self.aborted_by_close: int = 0
        """The one that the producer aborted since it was closed; 0 for none."""
        self.on_work: Callable[[], None] = lambda: None
        """Called when a request may be due that was not before."""
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._topic_ids = topic_ids
        self._operations = Operations()
        self._wants_v2 = False
        self._can_renew = True
        self._must_renew = False
        self._renew_to_be_sure = False
        self._addition_in_doubt = False
        self._init_in_doubt = False
        self._aborted_to_be_sure = False
        self._unanswered: Rpc | None = None
        self._commit_at_the_end: Operation | None = None
        self.contents: TransactionContents = TransactionContents(transactional_id)

    # -- calls of the application ----------------------------------------------------------------

    def init(self) -> Operation:
        """Asks for a producer id, which fences older producers of this transactional id."""
        operation = self._repeated(OperationKind.INIT)
        if operation is None:
            operation = self._operations.start(OperationKind.INIT)
            self.error = None
            self._move(_S.INITIALIZING)
        return operation

    def begin(self, version: int | None) -> Operation:
        """Begins a transaction by the protocol of `version`, the cluster's transaction.version.

        None where that cannot be told now: the protocol stays what it was.
        """
        operation = self._repeated(OperationKind.BEGIN)
        if operation is None:
            operation = self._operations.start(OperationKind.BEGIN)
            if version is not None:
                self._wants_v2 = version >= 2
            self._maybe_begin()
        return operation

    def prepare(self) -> Operation:
        """Waits until every record is acknowledged and takes no more; the transaction stays open.

        V1 does not tell one transaction of an epoch from the next: whoever ends this one late must
        not end that one, which therefore begins under a new epoch.
        """
        operation = self._repeated(OperationKind.PREPARE)
        if operation is None:
            operation = self._operations.start(OperationKind.PREPARE)
            self._renew_to_be_sure |= not self.uses_v2
            self._move(_S.PREPARED)
        return operation

    def prepared(self) -> PreparedTransaction:
        """What ends the prepared transaction from anywhere.

        Raises:
            IllegalStateError: the transaction is not prepared.
        """
        found = self._as_prepared()
        if not self.is_prepared or found is None:
            raise self._refusal("prepare_transaction")
        return found

    def assume(self, transactional_id: str) -> None:
        """Goes on under another transactional id, not initialized; for a prepared transaction.

        That one is left to whoever ends it, as when the producer is closed.

        Raises:
            IllegalStateError: no transaction is prepared.
        """
        if not self.is_prepared:
            raise self._refusal("assume")
        self.transactional_id, self.identity = transactional_id, None
        v2, self.contents = self.contents.v2, TransactionContents(transactional_id)
        self.contents.v2 = v2
        self._on_new_epoch()
        self._unanswered = None
        self._move(_S.UNINITIALIZED)

    def commit(self) -> Operation:
        """Commits once every record is acknowledged.

        After the producer's end it gives a commit whose success no caller has seen, and raises what
        is known of any other one, or of the transaction that was open then.
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
        """Aborts; what was not sent yet fails with `TransactionAbortedError`."""
        return self._abort(TransactionAbortedError("the transaction was aborted meanwhile"))

    def _abort(self, reason: KafkaError) -> Operation:
        """Aborts; calls that wait for something else end with the reason."""
        untold, handed_out = self._operations.untold, self.is_prepared
        if untold is not None and untold.kind is OperationKind.PREPARE:
            # Whoever has not seen the outcome cannot have given it to anybody.
            self.on_seen(untold)
        operation = self._repeated(OperationKind.ABORT)
        if operation is None:
            self.contents.handed_out |= handed_out
            operation = self._operations.start(OperationKind.ABORT)
            self._move(_S.ABORTING)
            self.contents.drop(reason)
            self._operations.settle(OperationKind.PREPARE, error=reason)
        return operation

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Operation:
        """Makes offsets of a consumer group part of the transaction (KIP-447)."""
        self._check(OperationKind.SEND_OFFSETS)
        operation = OffsetsOperation(group, dict(offsets))
        self.contents.add_offsets(operation)
        return operation

    def on_seen(self, operation: Operation) -> None:
        """The outcome has been told to a caller: other calls may follow."""
        self._operations.on_told(operation)
        if operation is self._commit_at_the_end and operation.error is None:
            self._commit_at_the_end = None

    def end_for_close(self) -> Operation | None:
        """What is to be waited for before the producer closes; an open transaction is aborted.

        Not so a prepared one: somebody else may decide about it.
        """
        if self.is_prepared:
            return None
        if self.state in CALLABLE_IN[OperationKind.ABORT]:
            self._operations.untold = None
            self.aborted_by_close = self.number
            return self._abort(ProducerClosedError("the producer was closed meanwhile"))
        return self._operations.end_of_transaction()

    def check_send(self) -> int:
        """The number of the transaction a record would belong to.

        Raises:
            IllegalStateError: there is none.
            TransactionAbortableError: it has failed.
        """
        if self.state is not _S.IN_TRANSACTION:
            raise self._refusal("send")
        return self.number

    # -- what the sender asks and tells ----------------------------------------------------------

    @property
    def uses_v2(self) -> bool:
        """Whether the transaction that is open follows KIP-890."""
        return self.contents.v2

    @property
    def is_prepared(self) -> bool:
        """Whether the application has been told that the transaction is prepared."""
        return self.state is _S.PREPARED and self._operations.untold is None

    @property
    def is_busy(self) -> bool:
        """Whether a call has no outcome yet."""
        return bool(self._operations)

    @property
    def is_free(self) -> bool:
        """Whether another transaction may be begun now, or another transactional id assumed."""
        may_begin = self.state in CALLABLE_IN[OperationKind.BEGIN]
        return self._operations.untold is None and (may_begin or self.is_prepared)

    @property
    def has_commit_to_tell(self) -> bool:
        """Whether `commit` gives the outcome of an earlier call, if need be after the end."""
        return self._commit_at_the_end is not None or self._operations.commit is not None

    @property
    def awaits_batches(self) -> bool:
        """Whether the end of the transaction, or of its sending, waits for batches to be done."""
        ends = self.state in {_S.COMMITTING, _S.ABORTING}
        return ends or OperationKind.PREPARE in self._operations

    @property
    def abandoned_with(self) -> KafkaError | None:
        """What queued batches are to fail with; None while they are wanted."""
        if self.state not in {_S.ABORTING, _S.ABORTABLE_ERROR}:
            return None
        error = TransactionAbortedError("the record's transaction was aborted before it was sent")
        error.__cause__ = self.error
        return error

    def may_abandon(self, batch: ProducerBatch) -> bool:
        """Whether a queued batch may be given up: one with a sequence only if a new epoch follows.

        Brokers before 2.5 cannot give one; there the batch is sent to its end, as Java's client
        does everywhere.
        """
        return self._can_renew or not batch.has_sequence

    @property
    def may_abort_nothing(self) -> bool:
        """Whether V1 aborts what the coordinator may never have heard of; it refuses that then."""
        return self.state is _S.ABORTING and not self.uses_v2 and not self.contents.known

    @property
    def aborts_before_renewal(self) -> bool:
        """Whether an abort precedes the request for the next epoch.

        It ends the transaction that a late addition of this epoch may have begun.
        """
        renews = self.state is _S.INITIALIZING and self.identity is not None
        return renews and self._addition_in_doubt and not self._aborted_to_be_sure

    def on_partition_used(self, topic_partition: TopicPartition) -> None:
        """A batch for the partition was opened: V1 announces it."""
        if self.contents.use(topic_partition):
            self.on_work()

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Whether a batch of the transaction may be sent."""
        wanted = batch.has_sequence or self.state in _FAILS_WITH
        return wanted and batch.topic_partition in self.contents

    def on_drained(self) -> None:
        """A batch goes out: from now on a V2 transaction exists for the broker."""
        self.contents.begun |= self.uses_v2

    def on_batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A record of the transaction is lost."""
        if batch.has_sequence and not self.uses_v2:
            self._require_new_epoch(error)
        self._fail_transaction(error)

    def on_sequences_lost(self, why: str) -> None:
        """Sequences given out are worth nothing any more; a new epoch starts them over."""
        self._renew_to_be_sure |= not self.uses_v2
        if self._can_fail and (self.contents.begun or not self.uses_v2):
            self._fail_transaction(KafkaError(why))

    def on_send_refused(self, number: int, error: KafkaError) -> None:
        """A record meant for transaction `number` was not even accepted (Java: doSend)."""
        if number == self.number and self._can_fail:
            self._fail_transaction(error)

    def fail(self, error: KafkaError) -> None:
        """Nothing can be done any more; every call learns why."""
        if self.state is not _S.FATAL_ERROR:
            if not isinstance(error, _FATAL_ALREADY):
                error = FatalTransactionError("the producer cannot go on").because_of(error)
            elif isinstance(error, ProducerFencedError):
                error = self._fenced_by_whom(error)
            self._commit_at_the_end = self._end_of_commit(error)
            if self.is_prepared:
                self.over = self.number
            self.state, self.error = _S.FATAL_ERROR, error
        # Also when called again: an exception may have cut off the rest of the first call.
        self.contents.drop(error)
        self._operations.settle(*OperationKind, error=error)
        self.on_work()

    # -- requests and their outcomes -------------------------------------------------------------

    def has_work(self, *, quiet: bool) -> bool:
        """Whether `wanted` has something to do."""
        if self.state is _S.INITIALIZING:
            return True
        has_more = self.contents.has_additions or (self.awaits_batches and quiet)
        return self.identity is not None and has_more

    def wanted(self, *, quiet: bool) -> TransactionalRequest | None:
        """The request that is due, if one is.

        Args:
            quiet: whether no batch is without an outcome or on the wire.
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
        if missing is not None or not (self.awaits_batches and quiet):
            return missing
        if self.state is _S.PREPARED:
            self._operations.settle(OperationKind.PREPARE)
            return None
        if not self.contents.begun:
            self.on_ended(None)
            return None
        commit = self.state is _S.COMMITTING
        return requests.end(name, identity, commit=commit, v2=self.uses_v2)

    def on_sending(self, rpc: Rpc) -> None:
        """A request is about to be sent: from now on it may have its effect."""
        if rpc is Rpc.END:
            self.contents.end_is_out = True

    def on_sent(self, rpc: Rpc, version: int) -> None:
        """A request is on its way."""
        if rpc is Rpc.INIT_PRODUCER_ID:
            self._can_renew = version >= requests.FIRST_INIT_WITH_IDENTITY
        elif rpc is Rpc.COMMIT_OFFSETS and self.uses_v2:
            self.contents.begun = True
        elif rpc is Rpc.END:
            self.contents.may_have_ended = self.contents.end_is_out = True

    def on_answered(self, rpc: Rpc) -> None:
        """A request has been refused, or was not sent; after a success the transaction is over."""
        if rpc is Rpc.END:
            self.contents.end_is_out = False
        elif rpc is Rpc.INIT_PRODUCER_ID and not self._init_in_doubt:
            # The epoch is still the old one: what is late may have begun a transaction meanwhile.
            self._aborted_to_be_sure = False

    def on_doubt(self, rpc: Rpc) -> None:
        """A request may have had its effect, although no answer said so."""
        if rpc is Rpc.INIT_PRODUCER_ID:
            self._init_in_doubt = True
        elif rpc is Rpc.END:
            self.contents.end_in_doubt = True
        elif rpc in _ADDITIONS:
            self.contents.begun = True

    def on_unanswered(self, rpc: Rpc) -> None:
        """A request that was sent has got no answer; it may still have its effect."""
        self.on_doubt(rpc)
        self.on_answered(rpc)
        if rpc in _DOUBTFUL and not self.uses_v2:
            self._renew_to_be_sure = True
        if rpc in _ADDITIONS:
            self._addition_in_doubt = True
            self._unanswered = self._unanswered or rpc
        elif rpc is Rpc.INIT_PRODUCER_ID:
            self._unanswered = rpc

    def on_identity(self, identity: ProducerIdentity) -> None:
        """The coordinator has given a producer id and epoch."""
        self.identity = identity
        self._on_new_epoch()
        if self._unanswered in _ADDITIONS:
            self._unanswered = None
        self._move(_S.READY)
        self._operations.settle(OperationKind.INIT)
        self._maybe_begin()

    def on_ended(self, identity: ProducerIdentity | None) -> None:
        """The transaction is committed or aborted; V2 brings the next identity."""
        if self.aborts_before_renewal:
            self._aborted_to_be_sure = True
            self.contents.clear()
            self.on_work()
            return
        ended = OperationKind.COMMIT if self.state is _S.COMMITTING else OperationKind.ABORT
        self._operations.settle(ended)  # first: what an exception cuts off must not change it
        if identity is not None:
            self.identity = identity
        self._move(_S.INITIALIZING if self._needs_new_epoch else _S.READY)
        self.error, self.over = None, self.number
        self.contents.clear()
        self._maybe_begin()

    def on_refused(self, rpc: Rpc, reaction: Reaction, error: KafkaError) -> None:
        """A request was refused for good."""
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
                self._operations.settle(OperationKind.INIT, OperationKind.BEGIN, error=error)
            case _:
                self._fail_transaction(error)

    # -- steps -----------------------------------------------------------------------------------

    def _repeated(self, kind: OperationKind) -> Operation | None:
        """The call that is being repeated; None for a new one, if it may be made now."""
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
            f"{call}() does not fit: the producer is {self.state.value}{why}",
            advice=ADVICE[self.state],
        )
        refusal.__cause__ = self.error
        return refusal

    def _as_prepared(self) -> PreparedTransaction | None:
        """What ends the open transaction from anywhere; None without an identity."""
        if self.identity is None:
            return None
        return PreparedTransaction(
            self.transactional_id,
            *self.identity,
            transaction_version=2 if self.uses_v2 else 1,
            empty=not self.contents.begun,
        )

    def _end_of_commit(self, error: KafkaError) -> Operation | None:
        """What a commit tells from now on, where it goes on, is untold or was still to come."""
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
                persistence=Persistence.NOT_PERSISTED,
                advice=error.advice or _NOT_COMMITTED,
            )
        operation.finish(outcome)
        return operation

    def _fenced_by_whom(self, error: ProducerFencedError) -> ProducerFencedError:
        """Return the error with all its possible causes.

        A coordinator says the same of another producer and of a late request of this one.
        """
        if self._unanswered is None:
            return error
        return ProducerFencedError(
            f"another producer with the transactional id {self.transactional_id!r} has taken "
            "over, the transaction timed out, or a late request of this producer has fenced it: "
            f"{self._unanswered.value} got no response and may have been carried out later",
            node_id=error.node_id,
        )

    def _on_new_epoch(self) -> None:
        """No request of an earlier epoch can do anything to what begins now."""
        self._must_renew = self._renew_to_be_sure = False
        self._addition_in_doubt = self._init_in_doubt = self._aborted_to_be_sure = False

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
        # Nothing of the old protocol that is still under way may count in the new one.
        upgraded = self.number > 0 and self._wants_v2 and not self.uses_v2
        self.contents.v2 = self._wants_v2
        if upgraded or self._needs_new_epoch:
            self._move(_S.INITIALIZING)
            return
        self.number += 1
        self._move(_S.IN_TRANSACTION)
        self._operations.settle(OperationKind.BEGIN)

    def _fail_transaction(self, cause: KafkaError) -> None:
        if self.state not in _FAILS_WITH:
            return
        error = cause
        if not isinstance(cause, TransactionAbortableError):
            error = TransactionAbortableError("the transaction has failed").because_of(cause)
        self.error = error
        self._move(_S.ABORTABLE_ERROR)
        self.contents.drop(error)
        self._operations.settle(OperationKind.PREPARE, OperationKind.COMMIT, error=error)

    @property
    def _can_fail(self) -> bool:
        """Whether a loss can still keep the transaction from being committed, here or elsewhere."""
        decided = self.is_prepared or self.contents.may_have_ended
        return self.state in _FAILS_WITH and not decided

    @property
    def _needs_new_epoch(self) -> bool:
        return self._must_renew or (self._renew_to_be_sure and self._can_renew)

    def _require_new_epoch(self, cause: KafkaError) -> None:
        self._must_renew = True
        if not self._can_renew:
            self.fail(cause)
