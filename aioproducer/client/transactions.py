"""Transactions as users see them: the calls, the `async with` block, consumers' positions.

Leaving an `async with producer.transaction()` block

    normally                        commit, or wait for the commit that was begun inside; if that
                                    is refused: abort, and raise why
    by an exception, a cancellation abort, at most `max_block_ms`; the exception goes on,
                                    with a note if the abort failed
    cancelled, or out of time,      the exception goes on, and so does the commit: only
    during that commit              `commit_transaction()` has its outcome, also after `close()`
    after commit, abort or prepare  nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aioproducer._util.arguments import check_integer, check_text, index_of
from aioproducer.client.lifecycle import ProducerLifecycle, State
from aioproducer.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aioproducer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Persistence,
    PreparedTransaction,
    TopicPartition,
)

if TYPE_CHECKING:
    from aioproducer.runtime.tasks.transactions import TransactionTask

OffsetsInput = Mapping[Any, Any] | Iterable[Any]
"""`{TopicPartition: offset}`, offsets being ints or `OffsetAndMetadata`; or confluent-kafka's
`TopicPartition` objects, which carry their offset."""

GroupInput = Any
"""A group id, a `ConsumerGroupMetadata`, or what `group_metadata_of` takes."""

_CONFLUENT_MAGIC = b"CGMDv2:"
_GENERATION = Struct("=i")
_MAX_OFFSET = 2**63 - 1
_OLD_EPOCH = (TransactionAbortableError, InvalidProducerEpochError)
"""What is raised first when a newer producer has taken over: only the abort says that it has, and a
program that starts again after anything else would fence that one."""


class TransactionsMixin(ProducerLifecycle):
    """The transactional part of `Producer`; needs `transactional_id`."""

    async def init_transactions(self) -> None:
        """Get ready for transactions and fence older producers of the same transactional id.

        `start()` does this by default. Transactions such a producer left open are
        aborted.

        Raises:
            KafkaTimeoutError: no outcome within `max_block_ms`; call it again to go on waiting.
            AuthorizationError: the principal may not use the transactional id; may be repeated.
            FatalTransactionError, ProducerFencedError: only `close()` is left.
        """
        transactions = self._transactions()
        if self._engine is None:
            await transactions.init()
        else:
            await self._engine.init_transactions(transactions)

    async def begin_transaction(self) -> None:
        """Begin a transaction; every record sent until its end belongs to it.

        Raises:
            IllegalStateError: one is open already, or the producer is not initialized.
            KafkaTimeoutError: see `init_transactions`.
            KafkaConnectionError: `start(wait=False)` has not come to its end within `max_block_ms`.
        """
        await self._begin()

    async def prepare_transaction(self) -> PreparedTransaction:
        """Send what is left, wait for every record, and leave the transaction open.

        What it returns ends the transaction from any process, by `finish_transaction`; so do
        `commit_transaction()` and `abort_transaction()` here. Nothing more can be sent, and
        `close()` leaves the transaction as it is.

        The broker sets one limit: `transaction_timeout_ms` after its first record it aborts the
        transaction, prepared or not (its own `transaction.max.timeout.ms`, 15 minutes by default,
        bounds that option). Initializing another producer of the same transactional id aborts it
        as well, and so may an older one that was replaced but has not been notified yet. Until it
        is ended, read_committed consumers wait at its records.

        Raises:
            TransactionAbortableError: some record or offset failed, awaited or not.
            KafkaTimeoutError: no outcome within `max_block_ms`; call it again, or abort.
            ProducerFencedError, FatalTransactionError: only `close()` is left.
            IllegalStateError: no transaction is open.
            UnsupportedVersionError: a broker is older than Kafka 2.5.
        """
        return await self._transactions().prepare()

    async def commit_transaction(self) -> None:
        """Send what is left without lingering, wait for every record, and commit.

        A bulk call that has not ended does not delay it: the items that it has sent are committed,
        and it raises `SendManyInterruptedError`.

        Raises:
            TransactionAbortableError: some record or offset failed, awaited or not: nothing of the
                transaction will be visible. Abort it, then do its work again.
            KafkaTimeoutError: no outcome within `max_block_ms`. It may commit yet: calling
                `commit_transaction()` again returns it, also while and after the producer is
                closed.
            CommitOutcomeUnknownError: the producer came to its end, by `close(0)` or an error,
                after the coordinator was asked to commit and before it answered.
            ProducerClosedError, ProducerFencedError, FatalTransactionError, ProducerFailedError:
                the producer is at its end; `persistence` NOT_PERSISTED says that the transaction
                is not committed and never will be.
            IllegalStateError: no transaction is open.
        """
        await self._committing().commit()

    async def abort_transaction(self) -> None:
        """Abort; records that were not sent yet fail with `TransactionAbortedError`.

        Raises:
            KafkaTimeoutError: no outcome within `max_block_ms`; call it again to go on waiting.
            ProducerFencedError, FatalTransactionError: only `close()` is left.
            IllegalStateError: no transaction is open.
        """
        await self._transactions().abort()

    async def send_offsets_to_transaction(
        self, offsets: OffsetsInput, group_metadata: GroupInput
    ) -> None:
        """Make a consumer group's positions part of the transaction (KIP-447).

        Args:
            offsets: per partition the offset to read next; aiokafka's and confluent-kafka's
                `TopicPartition` and `OffsetAndMetadata` objects will do.
            group_metadata: a group id, a `ConsumerGroupMetadata`, an aiokafka consumer, or what
                confluent-kafka's `consumer_group_metadata()` returns.

        Raises:
            TransactionAbortableError: the group has expelled the member, or does not let us.
            KafkaTimeoutError: no outcome within `max_block_ms`; it goes on, and a commit waits
                for it.
            IllegalStateError: no transaction is open.
        """
        transactions = self._transactions()
        await transactions.send_offsets(offsets_of(offsets), group_metadata_of(group_metadata))

    def transaction(self) -> Transaction:
        """Return a block whose records become visible together, or not at all.

        One is open at a time; what any task sends meanwhile belongs to it. Left normally it
        commits, and raises what `commit_transaction` raises; left by an exception it aborts.

        Examples:
            >>> async with producer.transaction() as tx:
            ...     await producer.send("orders", b"value")
            ...     await tx.send_offsets({TopicPartition("in", 0): 42}, "group")
        """
        return Transaction(self)

    async def _begin(self) -> int:
        transactions = self._transactions()
        if self._engine is not None:
            await self._engine.wait_until_started()
        return await transactions.begin()

    async def _committed_offset(
        self, group: str, place: TopicPartition
    ) -> OffsetAndMetadata | None:
        """Return a group's offset once older producers of the transactional id are fenced."""
        from aioproducer.transaction_admin import TransactionAdmin  # heavy

        await self._usable().wait_until_started()
        async with TransactionAdmin(self._config) as admin:
            return (await admin.committed_offsets(group, [place])).get(place)

    def _committing(self) -> TransactionTask:
        """Return the transactions for a commit; after the producer's end if one has an outcome."""
        task = self._transaction_task
        if task is None or not task.manager.has_unreported_commit or self._state is State.FORKED:
            return self._transactions()
        self._check_loop()
        return task

    @property
    def _transaction_task(self) -> TransactionTask | None:
        """The transactions, in any state of the producer."""
        return None if self._engine is None else self._engine.transactions

    def _transactions(self) -> TransactionTask:
        transactions = self._usable().transactions
        if transactions is None:
            raise IllegalStateError(
                "the producer is not transactional", advice="give it a transactional_id"
            )
        return transactions


class Transaction:
    """One transaction as an async context manager; see `Producer.transaction`."""

    def __init__(self, producer: TransactionsMixin) -> None:
        self._producer = producer
        self._number: int | None = None

    async def send_offsets(self, offsets: OffsetsInput, group_metadata: GroupInput) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        self._check_current()
        await self._producer.send_offsets_to_transaction(offsets, group_metadata)

    async def prepare(self) -> PreparedTransaction:
        """See `Producer.prepare_transaction`; leaving the block then does nothing more."""
        self._check_current()
        return await self._producer.prepare_transaction()

    async def __aenter__(self) -> Self:
        if self._number is not None:
            raise IllegalStateError("a Transaction is one block", advice="make another one")
        self._number = await self._producer._begin()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_over:  # by a call inside the block
            if exc is None:
                self._end_in_order()
            return
        if exc is None:
            await self._commit()
        else:
            await self._abort(exc)

    def has_ended_with_producer(self) -> bool:
        """Return whether the producer is at its end and nothing is left to do for this transaction.

        Raises:
            KafkaError: the transaction is not committed, or its outcome is unknown; see
                `commit_transaction`.
        """
        task = self._producer._transaction_task
        if self._is_over:
            self._end_in_order()
            return True
        return task is not None and task.reports_commit()

    @property
    def _is_over(self) -> bool:
        task = self._producer._transaction_task
        return task is not None and self._number is not None and self._number <= task.manager.over

    def _end_in_order(self) -> None:
        """Receive the outcome of a commit that has succeeded after its call was cancelled.

        Raise if the producer is closed, so that the block does not end as if committed.
        """
        task = self._producer._transaction_task
        if task is None:
            return
        if task.manager.aborted_by_close == self._number:
            raise ProducerClosedError(
                "the producer was closed before the transaction was committed, and aborted it",
                persistence=Persistence.NOT_PERSISTED,
            )
        if task.has_to_commit(self._number):
            task.manager.on_seen(task.manager.commit())

    def _check_current(self) -> None:
        """Raise if this transaction is no longer the open one."""
        if self._number != self._producer._transactions().manager.number:
            raise IllegalStateError("this transaction has ended, or has not begun")

    async def _commit(self) -> None:
        transactions = self._producer._committing()
        if not transactions.has_to_commit(self._number):
            return
        try:
            await transactions.commit()
        except (TransactionAbortableError, IllegalStateError) as error:
            await self._abort(error)
            raise

    async def _abort(self, first: BaseException) -> None:
        """Abort; see `reason_after_abort` for a failure of that."""
        try:
            transactions = self._producer._transactions()
            if transactions.is_open(self._number):
                await transactions.abort_for_good()
        except KafkaError as error:
            if reason_after_abort(error, first) is error:
                raise


def reason_after_abort(error: KafkaError, first: BaseException) -> BaseException:
    """Return what to raise if the abort after a failure fails: its error, or `first` with a note.

    The error of an abort must not hide the first one, unless it says why that was raised.
    """
    if isinstance(error, ProducerFencedError) and isinstance(first, _OLD_EPOCH):
        error.__cause__ = first
        return error
    first.add_note(f"the transaction could not be aborted: {error}")
    return first


def offsets_of(offsets: OffsetsInput) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets in our types, from ours, aiokafka's or confluent-kafka's."""
    pairs = offsets.items() if isinstance(offsets, Mapping) else ((each, each) for each in offsets)
    result: dict[TopicPartition, OffsetAndMetadata] = {}
    for place, position in pairs:
        topic, partition = getattr(place, "topic", None), getattr(place, "partition", None)
        if topic is None and isinstance(place, tuple) and len(place) == 2:
            topic, partition = place
        if not isinstance(topic, str) or partition is None:
            raise TypeError(f"{place!r} is not a topic and partition")
        check_text("the topic", topic)
        check_integer("the partition", partition, 32)
        if index_of(partition) < 0:
            raise ValueError(f"the partition must not be negative, got {partition!r}")
        result[TopicPartition(topic, index_of(partition))] = _position_of(position)
    return result


def _position_of(position: Any) -> OffsetAndMetadata:
    if isinstance(position, OffsetAndMetadata):
        known = position
    elif hasattr(position, "offset"):
        known = OffsetAndMetadata(
            index_of(position.offset),
            getattr(position, "metadata", None),
            getattr(position, "leader_epoch", None),
        )
    else:
        known = OffsetAndMetadata(index_of(position))
    if not 0 <= index_of(known.offset) <= _MAX_OFFSET:
        # Other clients use negative ones for "none" and "the end".
        raise ValueError(f"{known.offset} is not an offset that can be committed")
    if known.metadata is not None:
        check_text("the metadata of an offset", known.metadata)
    if known.leader_epoch is not None:
        check_integer("the leader epoch of an offset", known.leader_epoch, 32)
    return known


def group_metadata_of(source: GroupInput) -> ConsumerGroupMetadata:
    """Group metadata from a group id, an aiokafka consumer or confluent-kafka's opaque bytes.

    Of an aiokafka consumer (0.8 to 0.14) its coordinator is read: `_coordinator.group_id`,
    `.generation`, `.member_id` and `._group_instance_id`. What confluent-kafka's
    `consumer_group_metadata()` returns is librdkafka's own serialization of the same four facts.

    Raises:
        TypeError: it is none of these.
        ValueError: confluent-kafka's bytes have another form than librdkafka 2 gives them.
    """
    if isinstance(source, ConsumerGroupMetadata):
        return source
    if isinstance(source, str):
        return ConsumerGroupMetadata(source)
    if isinstance(source, bytes):
        return _from_confluent(source)
    if callable(getattr(source, "consumer_group_metadata", None)):
        return group_metadata_of(source.consumer_group_metadata())
    coordinator = getattr(source, "_coordinator", None)
    group_id = getattr(coordinator, "group_id", None)
    if not isinstance(group_id, str):
        raise TypeError(f"{type(source).__name__} has no metadata of a consumer group")
    return ConsumerGroupMetadata(
        group_id,
        getattr(coordinator, "generation", -1),
        getattr(coordinator, "member_id", "") or "",
        getattr(coordinator, "_group_instance_id", None),
    )


def _from_confluent(data: bytes) -> ConsumerGroupMetadata:
    body = data.removeprefix(_CONFLUENT_MAGIC)
    facts, names = body[: _GENERATION.size], body[_GENERATION.size :].split(b"\0", 2)
    if len(body) == len(data) or len(facts) != _GENERATION.size or len(names) != 3 or not names[2]:
        raise ValueError("these bytes are not group metadata of confluent-kafka")
    group_id, member_id, instance = names
    (generation,) = _GENERATION.unpack(facts)
    has_instance = not instance[0]
    return ConsumerGroupMetadata(
        group_id.decode(),
        generation,
        member_id.decode(),
        instance[1:].rstrip(b"\0").decode() if has_instance else None,
    )
