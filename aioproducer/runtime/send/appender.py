"""The slow path of `send()`, from its arguments to a record in a batch: `RecordAppender`.

Invariants
- A call that needs no wait does not suspend, except once per `RECORDS_PER_TURN` records and when
  this turn of the loop has opened enough new batches.
- Calls that wait for memory form one queue (`BufferMemory.lock`) and are counted (`waiting`).
  While that queue is not empty, no other call appends, not even to a batch with room.
- Metadata and memory share one bound, `max_block_ms`, unless `enqueue_timeout_ms` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aioproducer.core.batching.batch import OnOpened, OutgoingRecord, RecordParts
from aioproducer.errors import (
    AuthorizationError,
    BufferExhaustedError,
    BufferFullError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    WouldBlockError,
)
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.send.batch_appender import RECORDS_PER_TURN, BatchAppender, SendPath
from aioproducer.runtime.send.early import EarlyRecords
from aioproducer.runtime.send.fast_path import FastPath
from aioproducer.runtime.send.serialization_queue import Place, SerializationQueue, discard
from aioproducer.runtime.send.validation import partition_index
from aioproducer.types import HeaderPairs

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.runtime.send.serialization_queue import PendingSerialization
    from aioproducer.runtime.tasks.transactions import TransactionTask
    from aioproducer.types import TopicMetadata

T = TypeVar("T", bound=tuple[Any, ...])
R = TypeVar("R")

WholeRecord = tuple[bytes | None, bytes | None, HeaderPairs, int | None]
"""Key, value, headers and timestamp in ms of one record."""

LOSSES = (AuthorizationError, InvalidTopicError, KafkaTimeoutError, RecordTooLargeError)
"""Refusals after which a transaction cannot be committed (Java: the ApiExceptions of `doSend`)."""


class RecordAppender:
    """Append records for `Producer.send` and similar calls.

    `serializing` has the records whose serializers are still running, and later ones of their
    topics.
    """

    def __init__(self, path: SendPath) -> None:
        self._path = path
        self._max_block = path.config.max_block_ms / 1000
        self._memory = path.memory
        self._metadata = path.metadata
        self._check = path.check
        self._transactions: TransactionTask | None = None
        self.early: EarlyRecords | None = None
        """Accepts records of topics without metadata, if `send()` does not wait for metadata."""
        self.refuse_unconnected: Callable[[], None] | None = None
        """If set, raises until the cluster has been reached; no record waits for that then."""
        self._loop = path.loop
        self.wall_ms: Callable[[], int] = path.wall_ms
        self.batch_appender: BatchAppender = BatchAppender(path)
        self.fast_path: FastPath = self.batch_appender.fast_path
        self.serializing: SerializationQueue = SerializationQueue(path.loop, self._max_block)
        path.stats.count_appended = lambda: self.fast_path.appended
        self._on_ceiling(path.memory.pool.ceiling)
        path.memory.pool.on_ceiling = self._on_ceiling

    def _on_ceiling(self, ceiling: int) -> None:
        self.fast_path.ceiling = ceiling

    @property
    def waiting(self) -> int:
        """Number of calls that queue for memory.

        Not `lock.locked()`, which is False between a release and the next acquisition.
        """
        return self.fast_path.waiting

    @property
    def takes_headers(self) -> bool:
        """Whether the brokers can store headers (since 0.11).

        If not, no record takes the fast path, which does not check for headers.
        """
        return self._check.takes_headers

    @takes_headers.setter
    def takes_headers(self, takes: bool) -> None:
        self._check.takes_headers = takes
        if not takes:
            self.batch_appender.drop_spare()
            self.fast_path.retain(())  # it has open batches, and would add headers to them

    def use_transactions(self, transactions: TransactionTask) -> None:
        """Make every record from now on belong to a transaction."""
        self._transactions = transactions
        self.open_gate(False)

    def open_gate(self, is_open: bool) -> None:
        """Set whether the fast path may take records without a check of the transaction."""
        if self._transactions is not None:
            self.fast_path.check_transaction = None if is_open else self._transactions.check_send

    def early_records(self) -> EarlyRecords:
        """Return a new object for the attribute `early`."""
        return EarlyRecords(self._path, self.batch_appender)

    def close(self, error: KafkaError) -> None:
        """Accept no more records; calls that wait for serializers raise this error."""
        self.fast_path.close()
        self.serializing.close(error)

    async def append(
        self,
        parts: RecordParts,
        *,
        on_opened: OnOpened = None,
        early: bool = True,
        losses: tuple[type[KafkaError], ...] = LOSSES,
    ) -> Delivery:
        """Append a record, waiting at most `max_block_ms` for metadata and memory together.

        With `early` it may be accepted before its topic has metadata; until then its delivery has
        no partition. `losses` are the refusals that fail the transaction.
        """
        transaction_number = self._transaction_number()
        failing: tuple[type[KafkaError], ...] = (*losses, IllegalStateError)
        try:
            deadline = None
            if early and self.early is not None and self.early.takes(parts[0]):
                deadline = self._loop.time() + self._max_block
                delivery = await self._append_early(self.early, parts, transaction_number, deadline)
                if delivery is not None:
                    return delivery
            return await self._append(parts, transaction_number, on_opened, deadline)
        except failing as error:
            self._on_refused(transaction_number, error)
            raise

    async def _append(
        self,
        parts: RecordParts,
        transaction_number: int,
        on_opened: OnOpened,
        deadline: float | None,
    ) -> Delivery:
        topic, key, value, headers, partition, timestamp_ms = parts
        meta, partition, deadline = await self._metadata_of(
            topic, partition, transaction_number, deadline
        )
        record = self._check.record(meta, key, value, headers, partition, timestamp_ms)
        record.on_opened = on_opened
        if self._may_append:
            batch_appender = self.batch_appender
            worn = self.fast_path.records_this_turn >= RECORDS_PER_TURN
            batch = None if worn else batch_appender.try_append(record)
            if batch is None and (
                worn or not batch_appender.may_open(batch_appender.batch_bytes(record))
            ):
                # Fairness: a loop of sends that never suspends would block all other tasks, and
                # fill the memory before the first byte is sent.
                self._path.sender_task.give_way()
                await asyncio.sleep(0)
                self._check_open(transaction_number)
                if not self._may_append:
                    return await self._append_in_line(record, deadline, transaction_number)
                batch = batch_appender.try_append(record)
            if batch is None:
                batch = batch_appender.try_open(record)
            if batch is not None:
                return batch_appender.delivery(record, batch)
        return await self._append_in_line(record, deadline, transaction_number)

    def append_nowait(
        self,
        parts: RecordParts,
        *,
        on_opened: OnOpened = None,
        early: bool = True,
        losses: tuple[type[KafkaError], ...] = LOSSES,
    ) -> Delivery:
        """Append a record, or raise `WouldBlockError` or `BufferFullError`."""
        transaction_number = self._transaction_number()
        topic, key, value, headers, partition, timestamp_ms = parts
        if early and self.early is not None and self.early.takes(topic):
            record = self.early.record(parts)
            delivery = self._try_append_early(self.early, record)
            if delivery is None:
                raise self._full(topic)
            return delivery
        if partition is not None:
            partition = partition_index(partition, topic)
        try:
            meta = self._metadata_nowait(topic, partition)
            record = self._check.record(meta, key, value, headers, partition, timestamp_ms)
        except losses as error:
            self._on_refused(transaction_number, error)
            raise
        record.on_opened = on_opened
        if self._may_append:
            batch = self.batch_appender.try_append(record)
            if batch is None:
                batch = self.batch_appender.try_open(record)
            if batch is not None:
                return self.batch_appender.delivery(record, batch)
        raise self._full(topic)

    async def append_whole(
        self, topic: str, records: Sequence[WholeRecord], partition: int | None
    ) -> ProducerBatch:
        """Open one batch of these records, at least one, which takes no others.

        It is written whole or not at all: if the broker refuses it for its size, or for one of its
        records, that is the outcome of all its records. Waits as `append` does. Without a
        partition, the partitioner chooses as for a record without key and value.
        """
        transaction_number = self._transaction_number()
        try:
            meta, partition, deadline = await self._metadata_of(
                topic, partition, transaction_number
            )
            chosen = self._check.record(meta, None, None, (), partition, None).partition
            checked = [
                self._check.record(meta, key, value, headers, chosen or 0, timestamp_ms)
                for key, value, headers, timestamp_ms in records
            ]
            for record in checked:
                record.partition = chosen
            size = HEADER_SIZE + sum(record.size - HEADER_SIZE for record in checked)
            self._memory.pool.check_size(size, meta.name)
            if self._may_append and not self.batch_appender.may_open(size):
                await asyncio.sleep(0)  # fairness, as in `append`
                self._check_open(transaction_number)
            # A batch of more records than may be buffered is accepted alone.
            count = min(len(checked), self._path.config.buffer_max_records or len(checked))
            has_place = self.fast_path.appended + count <= self.fast_path.ceiling
            may_append = self._may_append and has_place
            buffer = self._memory.pool.try_allocate(size) if may_append else None
            if buffer is not None:
                return self.batch_appender.open_whole(checked, buffer, size)
            open_whole = partial(self.batch_appender.open_whole, checked)
            return await self._in_line(
                meta.name, size, deadline, transaction_number, lambda: None, open_whole, count
            )
        except (*LOSSES, IllegalStateError) as error:
            self._on_refused(transaction_number, error)
            raise

    def _full(self, topic: str) -> BufferFullError:
        return BufferFullError(
            self._shortage,
            topic=topic,
            advice=f"send less at a time, raise {self._scarce}, or use send() which waits",
        )

    async def finished(self, topic: str, made: T | PendingSerialization[T]) -> T:
        """Return a serialized record once the earlier records of its topic are appended.

        The caller has to append it before it waits for anything else.
        """
        with self.serializing.enter(topic) as place:
            return await self.finish(place, made)

    async def finish(self, place: Place, made: T | PendingSerialization[T]) -> T:
        """Do the work of `finished` for a call that is in the queue already.

        The record belongs to the transaction that was open before the wait, or to none.
        """
        try:
            transaction_number = self._transaction_number()
        except KafkaError:
            discard(made)
            raise
        try:
            made = await self.serializing.finish(place, made)
            self._check_open(transaction_number)
        except (*LOSSES, IllegalStateError) as error:
            self._on_refused(transaction_number, error)
            raise
        return made

    @property
    def _may_append(self) -> bool:
        """Whether no call queues for memory, and one more record may be buffered."""
        return not self.fast_path.waiting and self.fast_path.appended < self.fast_path.ceiling

    @property
    def _scarce(self) -> str:
        return (
            "buffer_memory"
            if self.fast_path.appended < self.fast_path.ceiling
            else "buffer_max_records"
        )

    @property
    def _shortage(self) -> str:
        return f"{self._scarce} is used up"

    @property
    def _waiters(self) -> str:
        """The number of waiting records as text, for the error of one of them."""
        if self.fast_path.waiting == 1:
            return "1 record waits for memory, this one"
        return f"{self.fast_path.waiting} records wait for memory, this one included"

    # -- steps -----------------------------------------------------------------------------------

    def _transaction_number(self) -> int:
        """Return the number of the record's transaction; 0 without transactions."""
        return 0 if self._transactions is None else self._transactions.check_send()

    def _check_open(self, transaction_number: int) -> None:
        """Raise if the producer or the record's transaction ended during a wait."""
        self._memory.pool.check_open()
        if self._transaction_number() != transaction_number:
            raise IllegalStateError("the record's transaction ended while send() waited")

    def _on_refused(self, transaction_number: int, error: KafkaError) -> None:
        if self._transactions is not None:
            self._transactions.on_send_refused(transaction_number, error)

    async def _metadata_of(
        self,
        topic: str,
        partition: int | None,
        transaction_number: int,
        deadline: float | None = None,
    ) -> tuple[TopicMetadata, int | None, float | None]:
        """Return topic, partition and, if the call had to wait, the end of `max_block_ms`."""
        meta = self._metadata.topic(topic)
        if partition is not None:
            partition = partition_index(partition, topic)
        if meta is None or (partition is not None and partition >= len(meta.partitions)):
            if deadline is None:
                deadline = self._loop.time() + self._max_block
            if self.refuse_unconnected is not None:
                self.refuse_unconnected()
            meta = await self._wait_for_metadata(topic, partition, deadline)
            self._check_open(transaction_number)
        return meta, partition, deadline

    def _metadata_nowait(self, topic: str, partition: int | None) -> TopicMetadata:
        meta = self._metadata.topic(topic)
        if meta is not None and (partition is None or partition < len(meta.partitions)):
            return meta
        if self.refuse_unconnected is not None:
            self.refuse_unconnected()
        failure = self._metadata.topic_failure(topic)
        absence = self._metadata.absence(topic, partition)
        self._metadata.request_topic(topic, self._loop.time())
        if failure is not None:
            raise failure.with_context()
        if absence is not None:
            reason = self._metadata.explain(topic, partition)
            missing = "topic" if meta is None else "partition"
            raise WouldBlockError(
                f"the {missing} is not present in metadata: {reason.text}",
                topic=topic,
                partition=partition,
                advice=reason.advice,
            ) from absence
        reason = self._metadata.explain_failures()
        raise WouldBlockError(
            "the topic's metadata is not known yet" + (f": {reason.text}" if reason.text else ""),
            topic=topic,
            partition=partition,
            advice=reason.advice or "await producer.warm_up([topic]) first, or use send()",
        )

    async def _wait_for_metadata(
        self, topic: str, partition: int | None, deadline: float
    ) -> TopicMetadata:
        began = self._loop.time()
        try:
            if partition is None:
                return await self._path.waits.wait_for_topic(topic, deadline)
            return await self._path.waits.wait_for_partition(topic, partition, deadline)
        finally:
            self._path.stats.metadata_wait_time += self._loop.time() - began

    async def _append_early(
        self, early: EarlyRecords, parts: RecordParts, transaction_number: int, deadline: float
    ) -> Delivery | None:
        """Accept a record of a topic without metadata; None if the metadata has arrived."""
        topic = parts[0]
        if self.fast_path.records_this_turn >= RECORDS_PER_TURN:
            await asyncio.sleep(0)
            self._check_open(transaction_number)
            if not early.takes(topic):
                return None
        record = early.record(parts)
        delivery = self._try_append_early(early, record)
        if delivery is not None:
            return delivery

        def open_early(buffer: bytearray, size: int) -> Delivery | None:
            if early.takes(topic):
                return early.open(record, buffer, size)
            self._memory.pool.deallocate(buffer, size)
            return None

        return await self._in_line(
            topic,
            self.batch_appender.batch_bytes(record),
            deadline,
            transaction_number,
            partial(early.try_append, record),
            open_early,
        )

    def _try_append_early(self, early: EarlyRecords, record: OutgoingRecord) -> Delivery | None:
        """Accept a record of a topic without metadata; None if there is no free memory."""
        if not self._may_append:
            return None
        delivery = early.try_append(record)
        if delivery is not None:
            return delivery
        size = self.batch_appender.batch_bytes(record)
        buffer = self._memory.pool.try_allocate(size)
        return None if buffer is None else early.open(record, buffer, size)

    async def _append_in_line(
        self, record: OutgoingRecord, deadline: float | None, transaction_number: int
    ) -> Delivery:
        appender = self.batch_appender
        batch = await self._in_line(
            record.meta.name,
            appender.batch_bytes(record),
            deadline,
            transaction_number,
            partial(appender.try_append, record),
            partial(appender.open, record),
        )
        return appender.delivery(record, batch)

    async def _in_line(
        self,
        topic: str,
        size: int,
        deadline: float | None,
        transaction_number: int,
        try_append: Callable[[], R | None],
        open_batch: Callable[[bytearray, int], R],
        count: int = 1,
    ) -> R:
        """Queue for memory until the call is first, for as long as it may wait; then append.

        `count` records have to have a place.
        """
        started = self._loop.time()
        bound, deadline = self._wait_bound(started, deadline, topic)
        pool = self._memory.pool
        self.fast_path.waiting += 1
        try:
            async with asyncio.timeout_at(deadline), self._memory.lock:
                await self._memory.wait_for_place(self.fast_path.appended + count - 1)
                self._check_open(transaction_number)
                made = try_append()
                if made is not None:
                    return made
                buffer: bytearray | None = None
                try:
                    buffer = await self._memory.allocate(size)
                    self._check_open(transaction_number)
                    # The sticky partitioner may have chosen a partition whose batch has room.
                    made = try_append()
                except BaseException:
                    if buffer is not None:
                        pool.deallocate(buffer, size)
                    raise
                if made is None:
                    return open_batch(buffer, size)
                pool.deallocate(buffer, size)
                return made
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            self._path.stats.tick(self._loop.time())
            self._path.stats.buffer_exhausted += 1
            raise BufferExhaustedError(
                f"no memory for the record within {bound}: {self._shortage}; {self._waiters}",
                topic=topic,
                elapsed_ms=round((self._loop.time() - started) * 1000),
                advice=f"the cluster takes less than is offered: slow down or raise {self._scarce}",
            ) from None
        finally:
            self.fast_path.waiting -= 1

    def _wait_bound(
        self, now: float, deadline: float | None, topic: str
    ) -> tuple[str, float | None]:
        """Return the bound of the wait for memory, as text and loop time; raise without a wait."""
        allowed = self._path.config.enqueue_timeout_ms
        if allowed == 0:
            raise BufferFullError(
                self._shortage,
                topic=topic,
                advice=f"send slower, or raise {self._scarce} or enqueue_timeout_ms",
            )
        if allowed is not None:
            return f"enqueue_timeout_ms={allowed}", None if allowed < 0 else now + allowed / 1000
        block = self._max_block
        return f"max_block_ms={round(block * 1000)}", now + block if deadline is None else deadline
