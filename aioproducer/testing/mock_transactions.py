"""The transactions of a `MockProducer`.

States:

    new --init--> ready --begin--> begun --commit, abort--> ready
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, Self

from aioproducer import errors
from aioproducer.runtime.send.appender import LOSSES
from aioproducer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.testing.mock_records import MockRecord

MockCall = Literal[
    "send", "flush", "close", "partitions_for", "init", "begin", "send_offsets", "commit", "abort"
]
"""Calls that a test may let fail."""

_Offsets = dict[str, dict[TopicPartition, OffsetAndMetadata]]


class RecordsOfProducer(Protocol):
    """The parts of a `MockProducer` that its transactions use."""

    history: list[MockRecord]
    uncommitted: list[MockRecord]

    @property
    def config(self) -> ProducerConfig:
        """The options in force."""

    def raise_scripted(self, call: MockCall) -> None:
        """Raise what the test wants a call of transactions to raise."""

    def complete_all(self) -> None:
        """Acknowledge everything that waits."""

    def drop_transaction(self) -> None:
        """Drop the records of the open transaction."""


class MockTransactions:
    """The interface of the runtime's transactions for `Producer` and `Transaction`.

    Attributes:
        number: how many were begun.
        commits: how many have committed.
        aborts: how many were aborted.
        is_begun: whether one is open.
        offsets: those of the open one, per group.
        committed_offsets: those of each that has committed.
    """

    def __init__(self, producer: RecordsOfProducer) -> None:
        self.number: int = 0
        self.commits: int = 0
        self.aborts: int = 0
        self.is_begun: bool = False
        self.offsets: _Offsets = {}
        self.committed_offsets: list[_Offsets] = []
        self._producer = producer
        self._is_ready = False
        self._is_prepared = False
        self._failure: errors.KafkaError | None = None

    @property
    def manager(self) -> Self:
        """Itself: it has `number`."""
        return self

    async def init(self) -> None:
        """See `TransactionTask.init`."""
        self.initialize()

    def initialize(self) -> None:
        """`init`, which waits for nothing here."""
        self._producer.raise_scripted("init")
        if self._is_ready:
            self._check_not_failed()
            raise errors.IllegalStateError("transactions are initialized already")
        self._is_ready = True

    async def begin(self) -> int:
        """See `TransactionTask.begin`."""
        self._producer.raise_scripted("begin")
        if not self._is_ready:
            raise errors.IllegalStateError("call init_transactions() first")
        if self.is_begun:
            self._check_not_failed()
            raise errors.IllegalStateError("a transaction is open already")
        self.number += 1
        self.is_begun = True
        return self.number

    def check_send(self) -> int:
        """See `TransactionTask.check_send`."""
        if not self.is_begun or self._is_prepared:
            raise errors.IllegalStateError("no transaction takes records", advice="begin one first")
        self._check_not_failed()
        return self.number

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """See `TransactionTask.send_offsets`."""
        self._producer.raise_scripted("send_offsets")
        self.check_send()
        if offsets:
            self.offsets.setdefault(group.group_id, {}).update(offsets)

    async def prepare(self) -> PreparedTransaction:
        """See `TransactionTask.prepare`."""
        if self._is_prepared:
            raise errors.IllegalStateError("the transaction is prepared already")
        self._check_can_commit()
        self._is_prepared = True
        name = self._producer.config.transactional_id or ""
        empty = not self._producer.uncommitted and not self.offsets
        return PreparedTransaction(name, 0, 0, 2, empty)

    async def commit(self) -> None:
        """See `TransactionTask.commit`."""
        self._producer.raise_scripted("commit")
        self._check_can_commit()
        self._producer.history.extend(self._producer.uncommitted)
        self._producer.uncommitted.clear()
        if self.offsets:
            self.committed_offsets.append(self.offsets)
        self.commits += 1
        self._reset()

    async def abort(self) -> None:
        """See `TransactionTask.abort`."""
        self._producer.raise_scripted("abort")
        if not self.is_begun:
            raise errors.IllegalStateError("no transaction is open")
        self._abort()

    async def abort_for_good(self) -> None:
        """See `TransactionTask.abort_for_good`."""
        await self.abort()

    def is_open(self, number: int | None) -> bool:
        """See `TransactionTask.is_open`."""
        return self.is_begun and number == self.number and not self._is_prepared

    def has_to_commit(self, number: int | None) -> bool:
        """See `TransactionTask.has_to_commit`."""
        return self.is_open(number)

    def end_for_close(self) -> None:
        """Abort, unless what is open is prepared."""
        if self.is_begun and not self._is_prepared:
            self._abort()

    def on_failure(self, error: errors.KafkaError) -> None:
        """Note that a record of the open transaction has failed."""
        self._failure = error

    def on_refused(self, error: Exception) -> None:
        """Fail the open transaction if the real one would: `send()` has refused a record."""
        if isinstance(error, LOSSES):
            self.on_row_refused(error)

    def on_row_refused(self, error: errors.KafkaError) -> None:
        """Fail the open transaction: a bulk call has refused a record, and no call raises that."""
        if self.is_begun and not self._is_prepared:
            self.on_failure(error)

    def clear(self) -> None:
        """Remove offsets."""
        self.offsets = {}
        self.committed_offsets.clear()

    def _check_can_commit(self) -> None:
        if not self.is_begun:
            raise errors.IllegalStateError("no transaction is open")
        self._producer.complete_all()
        self._check_not_failed()

    def _check_not_failed(self) -> None:
        if self._failure is not None:
            error = errors.TransactionAbortableError(f"a record has failed: {self._failure}")
            raise error from self._failure

    def _abort(self) -> None:
        self._producer.drop_transaction()
        self.aborts += 1
        self._reset()

    def _reset(self) -> None:
        self.is_begun = self._is_prepared = False
        self.offsets = {}
        self._failure = None
