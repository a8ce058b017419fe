"""One transactional id: its producer id and epoch, and the transitions of its transaction.

The rules are those of Java's `TransactionMetadata` and `TransactionCoordinator`.

    Empty ---------> Ongoing ---> PrepareCommit ---> CompleteCommit --+
      |                |  ^                                           |
      |                |  +---------------- Ongoing <-----------------+
      +-- (V2) --> PrepareAbort --------------> CompleteAbort --------+

Invariants:
- A producer id is handed to clients with epochs up to 32766 only; 32767 is left for a fence.
- A transition happens whole or, with a `RefusedError`, not at all: it is one record of the
  replicated transaction log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aioproducer import errors
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.types import TopicPartition

NO_PRODUCER_ID, NO_EPOCH = -1, -1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions in two phases, which have none (KIP-939)."""
MAX_EPOCH = 2**15 - 1
_LAST_CLIENT_EPOCH = MAX_EPOCH - 1

V1, V2 = 1, 2
"""Transaction versions (the feature `transaction.version`): V2 bumps the epoch at every end."""


class TransactionState(Enum):
    """The states of a transaction, named as in the transaction log."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_ENDING = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_ENDED = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int

    @property
    def is_last(self) -> bool:
        """Whether the epoch is the last one a client may have."""
        return self.epoch >= _LAST_CLIENT_EPOCH


@dataclass(slots=True, eq=False)
class Transaction:
    """The coordinator's state of one transactional id.

    Attributes:
        transactional_id: The id.
        producer_id: The producer id in use.
        epoch: Its epoch; -1 until the first `initialize`.
        previous_producer_id: The producer id before the last transition.
        next_producer_id: The one in use as soon as the ending is complete, if it changes.
        last_epoch: The epoch before the last bump, if its producer may ask for it again; else -1.
        timeout_ms: How long a transaction may take.
        state: The state of the transaction.
        version: The transaction version of its ending.
        partitions: What belongs to it, the groups' offsets included.
        started_ms: When it began; -1 if none did.
        unmarked: While it ends: the partitions that still wait for their marker.
        abort_asked: Whether the last EndTxn of this epoch wanted an abort, whatever the answer was.
        begun_late: Whether a request that its producer had given up began the transaction, after an
            EndTxn for an abort: the producer can have no knowledge of it.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    version: int = V1
    partitions: set[TopicPartition] = field(default_factory=set)
    started_ms: int = -1
    unmarked: set[TopicPartition] = field(default_factory=set)
    abort_asked: bool = False
    begun_late: bool = False

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch in use."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def is_ending(self) -> bool:
        """Whether its end is decided and markers are being written."""
        return self.state in _ENDING

    @property
    def is_pending(self) -> bool:
        """Whether it runs or is being ended."""
        return self.is_ending or self.state is TransactionState.ONGOING

    @property
    def is_commit(self) -> bool:
        """Whether it ends, or ended, with a commit."""
        return self.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}

    @property
    def deadline_ms(self) -> int | None:
        """The deadline of a running transaction; None for none."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.started_ms + self.timeout_ms

    # Beginning

    def check_may_continue(self, expected: ProducerIdentity | None) -> None:
        """Refuse a producer that asks for its next epoch but has been replaced (KIP-360)."""
        if expected is None or self.epoch == NO_EPOCH or expected.producer_id == self.producer_id:
            return
        if expected.producer_id == self.previous_producer_id and expected.is_last:
            return  # A repeated request after a rotation of the id: the first response was lost.
        raise RefusedError(errors.ProducerFencedError)

    def next_epoch(self, expected: ProducerIdentity | None, timeout_ms: int) -> None:
        """Give the id's next incarnation, or the same one after an error, its epoch."""
        if expected is None:
            self.last_epoch, self.epoch = NO_EPOCH, self.epoch + 1
        elif self.epoch in {NO_EPOCH, expected.epoch}:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        elif expected.epoch != self.last_epoch:
            raise RefusedError(errors.ProducerFencedError)
        # Else a repeated request after a lost response: the same epoch again.
        self.previous_producer_id = self.producer_id
        self._empty(timeout_ms)

    def rotate(self, producer_id: int, timeout_ms: int, *, continued: bool) -> None:
        """Go on under a new producer id, the old one's epochs being used up."""
        self.last_epoch = self.epoch if continued else NO_EPOCH
        self.previous_producer_id, self.producer_id, self.epoch = self.producer_id, producer_id, 0
        self._empty(timeout_ms)

    def needs_rotation(self, expected: ProducerIdentity | None) -> bool:
        """Return whether the next epoch has to be one of a new producer id."""
        return self.identity.is_last and (expected is None or expected.epoch == self.epoch)

    def _empty(self, timeout_ms: int) -> None:
        self.state = TransactionState.EMPTY
        self.timeout_ms = timeout_ms
        self.partitions = set()
        self.started_ms = -1
        self.abort_asked = False

    # Growing

    def check_identity(self, producer: ProducerIdentity) -> None:
        """Refuse any producer id or epoch but the present one."""
        if producer.producer_id != self.producer_id:
            raise RefusedError(errors.InvalidProducerIdMappingError)
        if producer.epoch != self.epoch:
            raise RefusedError(errors.ProducerFencedError)

    def check_not_ending(self) -> None:
        """Refuse while markers are being written."""
        if self.is_ending:
            raise RefusedError(errors.ConcurrentTransactionsError)

    def add(self, partitions: set[TopicPartition], now_ms: int, *, late: bool = False) -> None:
        """Let partitions belong to the transaction; the first ones begin it."""
        if self.state is not TransactionState.ONGOING:
            self.begun_late = late and self.abort_asked
            self.state = TransactionState.ONGOING
            self.started_ms = now_ms
        self.partitions |= partitions
        self.previous_producer_id = self.producer_id

    # Ending

    def end_v1(self, producer: ProducerIdentity, *, commit: bool) -> bool:
        """Decide the end as before V2: the epoch stays. Return False if it is complete already."""
        self.check_identity(producer)
        self.check_not_ending()
        if self.state is TransactionState.ONGOING:
            self._prepare(commit=commit, version=V1)
            return True
        self._check_same_end(commit=commit)
        return False

    def end_v2(self, producer: ProducerIdentity, *, commit: bool, new_id: int | None) -> bool:
        """Decide the end and bump the epoch (KIP-890); see `end_v1`.

        Args:
            producer: The requesting producer.
            commit: Which end.
            new_id: The producer id to use if the epochs are used up.

        Beyond V1 a producer may abort what it never began, for the bump alone. While markers are
        being written every end is refused alike, for any producer; seen at Kafka 4.0.0 and 4.3.1.
        An end is a repeated one only after one of V2, which has bumped the epoch.
        """
        self.check_not_ending()
        overflowed = (
            self.version >= V2
            and self.epoch == 0
            and producer == (self.previous_producer_id, _LAST_CLIENT_EPOCH)
            and producer.producer_id != self.producer_id
        )
        if producer.producer_id != self.producer_id and not overflowed:
            raise RefusedError(errors.InvalidProducerIdMappingError)
        bumped = self.version >= V2 and self.epoch == producer.epoch + 1
        repeated = self.state in _ENDED and (overflowed or bumped)
        if not repeated and producer.epoch != self.epoch:
            raise RefusedError(errors.ProducerFencedError)
        if self.state is TransactionState.ONGOING:
            self._prepare(commit=commit, version=V2, new_id=new_id)
            return True
        if repeated:
            self._check_same_end(commit=commit)
            return False
        if commit:
            raise RefusedError(errors.InvalidTxnStateError)
        self._prepare(commit=False, version=V2, new_id=new_id)
        return True

    def fence(self, *, version: int, new_id: int | None) -> None:
        """Abort a running transaction and fence its producer: a timeout, or a new incarnation.

        The bumped epoch is in no response. V2 bumps as at every end, so that the fenced producer
        may ask for it, unless another one has been initialized meanwhile; seen at Kafka 4.3.1.
        """
        if version < V2:
            self.epoch = min(self.epoch + 1, MAX_EPOCH)
            self.last_epoch = NO_EPOCH
        self._prepare(commit=False, version=version, new_id=new_id)

    def complete(self) -> None:
        """Complete the end: all markers are written."""
        self.state = (
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT
        )
        self.previous_producer_id = self.producer_id
        if self.next_producer_id != NO_PRODUCER_ID:
            self.producer_id, self.next_producer_id = self.next_producer_id, NO_PRODUCER_ID
            self.epoch = 0
        self.partitions = set()

    def _prepare(self, *, commit: bool, version: int, new_id: int | None = None) -> None:
        self.state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        self.version = version
        self.unmarked = set(self.partitions)
        self.previous_producer_id = self.producer_id
        if version >= V2:
            self.last_epoch = self.epoch
            self.epoch = min(self.epoch + 1, MAX_EPOCH)
            self.next_producer_id = NO_PRODUCER_ID if new_id is None else new_id

    def _check_same_end(self, *, commit: bool) -> None:
        """Check that a repeated EndTxn wants the same end, or refuse it."""
        if self.state is TransactionState.EMPTY or commit != self.is_commit:
            raise RefusedError(
                errors.InvalidTxnStateError,
                f"The transaction is in state {self.state.value}, which does not allow "
                f"{'COMMIT' if commit else 'ABORT'}",
            )
