"""The transaction coordinators of a cluster: the effect of each of their requests.

Every coordinator is here, since the state is the cluster's; `CoordinatorShards` decides which
broker may use it. Steps that take time (markers, timeouts) happen in `advance`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol, Self

from aioproducer import errors
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.settings import ClusterSettings
from aioproducer.testing.broker.transactions.endings import RETRY_MS, Ending, MarkedLogs
from aioproducer.testing.broker.transactions.shards import (
    OFFSETS_TOPIC,
    CoordinatorKind,
    CoordinatorShards,
)
from aioproducer.testing.broker.transactions.states import (
    NO_TIMEOUT_MS,
    V1,
    V2,
    ProducerIdentity,
    Transaction,
)
from aioproducer.types import TopicPartition


class PartitionCheck(Enum):
    """The error of a write whose partition belongs to no transaction, by its request's version."""

    CHECK = "check"
    """INVALID_TXN_STATE: older clients have no better code."""
    CHECK_ABORTABLE = "check abortable"
    """TRANSACTION_ABORTABLE (KIP-890, part 1)."""
    ADD = "add"
    """Not at all: it adds the partition (V2)."""

    @classmethod
    def of(cls, version: int, adding_from: int) -> Self:
        """Return the check of a request; it is abortable one version before `adding_from`."""
        if version >= adding_from:
            return cls.ADD
        return cls.CHECK if version < adding_from - 1 else cls.CHECK_ABORTABLE

    @property
    def missing(self) -> type[errors.BrokerError]:
        """The error for a partition that is not part of the transaction."""
        if self is PartitionCheck.CHECK:
            return errors.InvalidTxnStateError
        return errors.TransactionAbortableError


class CoordinatedCluster(MarkedLogs, Protocol):
    """The parts of a cluster that its transaction coordinators use."""

    settings: ClusterSettings

    @property
    def transaction_version(self) -> int:
        """The finalized level of the feature `transaction.version`."""

    def new_producer_id(self) -> int:
        """Return an unused producer id (KIP-98)."""


class TransactionCoordinators:
    """All transactions of one cluster.

    Attributes:
        transactions: By transactional id.
        overtaken: Whose transaction was aborted since an older epoch asked for its next one.
        displaced: Whose transaction was aborted by a producer that started.
        sender_is_gone: Whether the producer had closed the connection of the request that is being
            carried out.
    """

    def __init__(self, cluster: CoordinatedCluster, shards: CoordinatorShards) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.overtaken: set[ProducerIdentity] = set()
        self.displaced: set[ProducerIdentity] = set()
        self.sender_is_gone: bool = False
        self._shut_out: set[ProducerIdentity] = set()
        self._cluster = cluster
        self._shards = shards
        self._endings: dict[str, Ending] = {}
        self._next_check_ms = 0

    # Requests

    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        node_id: int,
        now_ms: int,
        two_phase: bool = False,
    ) -> ProducerIdentity:
        """Give an incarnation its producer id and epoch (InitProducerId).

        With `two_phase` its transactions have no timeout, if the cluster allows that (KIP-939).

        Raises:
            RefusedError: CONCURRENT_TRANSACTIONS while the last transaction is being ended; the
                first such answer may be what ended it.
        """
        if not transactional_id:
            raise RefusedError(errors.InvalidRequestError)
        settings = self._cluster.settings
        if two_phase:
            if not settings.two_phase_commit:
                raise RefusedError(errors.TransactionalIdAuthorizationFailedError)
            timeout_ms = NO_TIMEOUT_MS
        elif not 0 < timeout_ms <= settings.transaction_max_timeout_ms:
            raise RefusedError(errors.InvalidTransactionTimeoutError)
        self._shards.coordinate(CoordinatorKind.TRANSACTION, transactional_id, node_id, now_ms)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, self._cluster.new_producer_id(), timeout_ms)
            self.transactions[transactional_id] = transaction
        transaction.check_not_ending()
        transaction.check_may_continue(expected)
        if transaction.is_pending:
            # A running transaction is aborted whatever epoch is expected, so that a producer that
            # was replaced still can (Java: TransactionCoordinator.prepareInitProducerIdTransit).
            if expected is None:
                self.displaced.add(transaction.identity)
            elif expected != transaction.identity:
                self.overtaken.add(transaction.identity)
            if expected != transaction.identity or transaction.begun_late:
                self._shut_out.add(transaction.identity)
            self._fence(transaction, now_ms)
            raise RefusedError(errors.ConcurrentTransactionsError)
        if expected is None:
            self._shut_out.add(transaction.identity)
        if transaction.needs_rotation(expected):
            producer_id = self._cluster.new_producer_id()
            transaction.rotate(producer_id, timeout_ms, continued=expected is not None)
        else:
            transaction.next_epoch(expected, timeout_ms)
        return transaction.identity

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        node_id: int | None,
        now_ms: int,
    ) -> None:
        """Add partitions to the transaction; `node_id` None: asked by another broker."""
        transaction = self._present(transactional_id, producer, now_ms, node_id)
        transaction.add(set(partitions), now_ms, late=self.sender_is_gone)

    def admit(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partition: TopicPartition,
        check: PartitionCheck,
        now_ms: int,
    ) -> None:
        """Check for a broker that it may write to a partition under the transaction (KIP-890)."""
        try:
            if check is PartitionCheck.ADD:
                self.add(transactional_id, producer, [partition], node_id=None, now_ms=now_ms)
            elif partition not in self._present(transactional_id, producer, now_ms).partitions:
                raise RefusedError(check.missing)
        except RefusedError as refusal:
            # Java: AddPartitionsToTxnManager; the epoch's error is one that a client may survive.
            if refusal.error is errors.ProducerFencedError:
                raise RefusedError(errors.InvalidProducerEpochError) from refusal
            raise

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        version: int,
        node_id: int,
        now_ms: int,
    ) -> ProducerIdentity:
        """Decide how a transaction ends (EndTxn); return the producer's next id and epoch."""
        transaction = self._known(transactional_id, node_id, now_ms)
        if producer == transaction.identity:
            transaction.abort_asked = not commit
        if version < V2:
            decided = transaction.end_v1(producer, commit=commit)
        else:
            new_id = self._next_producer_id(transaction)
            decided = transaction.end_v2(producer, commit=commit, new_id=new_id)
        if decided:
            self._begin_ending(transaction, now_ms)
        if transaction.next_producer_id >= 0:
            return ProducerIdentity(transaction.next_producer_id, 0)
        return transaction.identity

    def find(self, transactional_id: str, *, node_id: int, now_ms: int) -> Transaction | None:
        """Return the coordinator's state of a transactional id; for DescribeTransactions."""
        self._shards.coordinate(CoordinatorKind.TRANSACTION, transactional_id, node_id, now_ms)
        return self.transactions.get(transactional_id)

    def coordinated_by(self, node_id: int, now_ms: int) -> list[Transaction]:
        """Return the transactions of one coordinator (ListTransactions); refuse while it loads."""
        found = []
        for transactional_id in sorted(self.transactions):
            try:
                self._shards.coordinate(
                    CoordinatorKind.TRANSACTION, transactional_id, node_id, now_ms
                )
            except RefusedError as refusal:
                if refusal.error is errors.CoordinatorLoadInProgressError:
                    raise
                continue
            found.append(self.transactions[transactional_id])
        return found

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition that stands in for the group's offsets in a transaction."""
        return TopicPartition(
            OFFSETS_TOPIC, self._shards.shard(CoordinatorKind.GROUP, group_id).index
        )

    def has_shut_out(self, producer: ProducerIdentity) -> bool:
        """Return whether an incarnation or a timeout has fenced a producer at this epoch or later.

        False for a producer that has requested an epoch amid its own transaction, unless that was
        begun by a request which it had given up, after its last abort (`Transaction.begun_late`).
        """
        return any(
            each.producer_id == producer.producer_id and each.epoch >= producer.epoch
            for each in self._shut_out
        )

    def discard_all(self) -> None:
        """Have no transactions, as the coordinators of another cluster."""
        self.transactions.clear()
        self._endings.clear()

    # Time

    @property
    def next_due_ms(self) -> int | None:
        """The time of `advance`'s next task; None for never."""
        times = [ending.due_ms for ending in self._endings.values()]
        times += [
            max(each.deadline_ms, self._next_check_ms)
            for each in self.transactions.values()
            if each.deadline_ms is not None
        ]
        return min(times, default=None)

    def advance(self, now_ms: int) -> None:
        """Write the markers that are due, abort what took too long."""
        for transaction in self.transactions.values():
            if transaction.deadline_ms is not None and now_ms >= transaction.deadline_ms:
                self._time_out(transaction, now_ms)
        for transactional_id, ending in list(self._endings.items()):
            while ending.due_ms <= now_ms and transactional_id in self._endings:
                self._step(ending, now_ms)

    def _step(self, ending: Ending, now_ms: int) -> None:
        transaction, shard = ending.transaction, ending.shard
        try:
            self._shards.coordinate(
                CoordinatorKind.TRANSACTION, transaction.transactional_id, None, now_ms
            )
        except RefusedError:
            ending.due_ms = now_ms + RETRY_MS
            return
        if ending.coordinator_epoch != shard.leader_epoch:
            ending.take_over()
        if not transaction.unmarked:
            transaction.complete()
            del self._endings[transaction.transactional_id]
        elif ending.step(self._cluster, now_ms):
            ending.due_ms = now_ms + self._cluster.settings.marker_delay_ms
        else:
            ending.due_ms = now_ms + RETRY_MS

    def _time_out(self, transaction: Transaction, now_ms: int) -> None:
        try:
            self._known(transaction.transactional_id, None, now_ms)
        except RefusedError:  # Fenced meanwhile: its timeout no longer applies.
            self._next_check_ms = now_ms + RETRY_MS
        else:
            self._shut_out.add(transaction.identity)
            self._fence(transaction, now_ms)

    def _fence(self, transaction: Transaction, now_ms: int) -> None:
        # No request has a version here, so it is the cluster's (Java: endTransaction).
        version = V2 if self._cluster.transaction_version >= V2 else V1
        new_id = self._next_producer_id(transaction) if version >= V2 else None
        transaction.fence(version=version, new_id=new_id)
        self._begin_ending(transaction, now_ms)

    def _begin_ending(self, transaction: Transaction, now_ms: int) -> None:
        shard = self._shards.shard(CoordinatorKind.TRANSACTION, transaction.transactional_id)
        self._endings[transaction.transactional_id] = Ending(
            transaction, shard, shard.leader_epoch, now_ms + self._cluster.settings.marker_delay_ms
        )

    def _next_producer_id(self, transaction: Transaction) -> int | None:
        return self._cluster.new_producer_id() if transaction.identity.is_last else None

    def _present(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        now_ms: int,
        node_id: int | None = None,
    ) -> Transaction:
        """Return the transaction that its present producer may write to."""
        transaction = self._known(transactional_id, node_id, now_ms)
        transaction.check_not_ending()  # before the identity: a new producer id is the next one
        transaction.check_identity(producer)
        return transaction

    def _known(self, transactional_id: str, node_id: int | None, now_ms: int) -> Transaction:
        if not transactional_id:
            raise RefusedError(errors.InvalidRequestError)
        self._shards.coordinate(CoordinatorKind.TRANSACTION, transactional_id, node_id, now_ms)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise RefusedError(errors.InvalidProducerIdMappingError)
        return transaction
