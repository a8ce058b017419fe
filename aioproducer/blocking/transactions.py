"""Transactions for threads: the calls of `aioproducer.Producer`, and a `with` block."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from aioproducer.blocking.loop_thread import LoopThread
from aioproducer.client.producer import Producer
from aioproducer.client.transactions import GroupInput, OffsetsInput
from aioproducer.client.transactions import Transaction as AsyncTransaction
from aioproducer.errors import KafkaError
from aioproducer.types import PreparedTransaction

T = TypeVar("T")


class TransactionsMixin:
    """The transactional part of the blocking `Producer`; needs `transactional_id`."""

    _producer: Producer
    _thread: LoopThread

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call of the asynchronous producer in its loop, after what was handed over."""
        raise NotImplementedError

    def init_transactions(self) -> None:
        """See `aioproducer.Producer.init_transactions`, as for all calls here."""
        self.run(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Begin a transaction; what any thread sends until its end belongs to it."""
        self.run(self._producer.begin_transaction)

    def prepare_transaction(self) -> PreparedTransaction:
        """Wait for every record and leave the transaction open, to be ended from anywhere."""
        return self.run(self._producer.prepare_transaction)

    def commit_transaction(self) -> None:
        """Send what is left without lingering, wait for every record, and commit.

        Called again it has the outcome of the earlier call, also while and after the producer is
        closed.
        """
        task = self._producer._transaction_task
        if task is None or not task.manager.has_unreported_commit:
            self.run(self._producer.commit_transaction)
        elif not task.reports_commit():
            self._thread.call(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """Abort; records that were not sent yet fail with `TransactionAbortedError`."""
        self.run(self._producer.abort_transaction)

    def send_offsets_to_transaction(
        self, offsets: OffsetsInput, group_metadata: GroupInput
    ) -> None:
        """Make a consumer group's positions part of the transaction (KIP-447)."""
        self.run(lambda: self._producer.send_offsets_to_transaction(offsets, group_metadata))

    def transaction(self) -> Transaction:
        """Return a block whose records become visible together, or not at all.

        Left normally it commits, left by an exception it aborts.

        Examples:
            >>> with producer.transaction() as tx:
            ...     producer.send("orders", b"value")
            ...     tx.send_offsets({TopicPartition("in", 0): 42}, "group")
        """
        return Transaction(self, self._producer.transaction())


class Transaction:
    """One transaction as a context manager; see `Producer.transaction`."""

    def __init__(self, producer: TransactionsMixin, transaction: AsyncTransaction) -> None:
        self._producer = producer
        self._transaction = transaction

    def send_offsets(self, offsets: OffsetsInput, group_metadata: GroupInput) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        self._producer.run(lambda: self._transaction.send_offsets(offsets, group_metadata))

    def prepare(self) -> PreparedTransaction:
        """See `Producer.prepare_transaction`; leaving the block then does nothing more."""
        return self._producer.run(self._transaction.prepare)

    def __enter__(self) -> Self:
        self._producer.run(self._transaction.__aenter__)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None and self._transaction.has_ended_with_producer():
            return
        try:
            self._producer.run(lambda: self._transaction.__aexit__(exc_type, exc, traceback))
        except KafkaError as error:
            if exc is None or error.__cause__ is exc:  # the abort has found out why
                raise
            exc.add_note(f"the transaction could not be aborted: {error}")
