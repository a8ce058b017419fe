"""MockProducer: a producer for unit tests, without brokers and without a network.

Owns: what Java's `MockProducer` can do: records that wait until the test completes or fails them,
the history, scripted errors, transactions with their offsets. Must not know: brokers; arguments,
serializers and the states of a producer are checked by `Producer` itself.

    send() -> waiting --complete_next()--> acknowledged         at once with `auto_complete`
                      --error_next(e)----> failed
                      --flush(), close(), commit--> acknowledged

Invariants
- Deliveries are those of the real producer: awaited, given callbacks and forgotten in the same way.
- Records of a transaction enter `history` when it commits; a transaction in which a record failed
  does not commit.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import UUID

from aioproducer.core.cluster import PartitionMetadata, TopicMetadata
from aioproducer.core.producer_batch import BatchOutcome, ProducerBatch
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import (
    BufferFullError,
    IllegalStateError,
    InvalidPartitionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordsPurgedError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortedError,
)
from aioproducer.partitioners import partition_chooser
from aioproducer.producer import Producer, _State
from aioproducer.records import record_size_bound
from aioproducer.records.layout import HEADER_SIZE
from aioproducer.runtime.bulk import Item, as_record
from aioproducer.runtime.bulk_result import (
    FailedRecord,
    SendManyInterruptedError,
    SendManyResult,
)
from aioproducer.runtime.delivery import Delivery, WakeUps
from aioproducer.runtime.lane import wall_clock_ms
from aioproducer.runtime.unretrieved import UnretrievedFailures
from aioproducer.testing.mock_transactions import MockTransactions
from aioproducer.types import (
    HeaderPairs,
    HeadersInput,
    OffsetAndMetadata,
    PartitionInfo,
    RecordMetadata,
    TopicPartition,
)

if TYPE_CHECKING:
    from aioproducer.runtime.transaction_task import TransactionTask

MockCall = Literal[
    "send", "flush", "close", "partitions_for", "init", "begin", "send_offsets", "commit", "abort"
]
"""Calls that a test may let fail."""

_INSTANCE = UUID(int=1)
_BUILDER_BYTES = 256
"""What a batch of one record takes beyond the bound of the record's size."""


@dataclass(frozen=True, slots=True)
class MockRecord:
    """A record as it would have been sent; key and value are serialized."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int
    offset: int


@dataclass(slots=True)
class _Waiting:
    record: MockRecord
    batch: ProducerBatch


class MockProducer(Producer):
    """A `Producer` whose records go nowhere.

    Args:
        auto_complete: whether records are acknowledged at once, instead of by `complete_next`.
        topics: partitions per topic; any other topic has one.
        **options: as a `Producer`'s, `bootstrap_servers` aside; `transactional_id`, serializers,
            the partitioner and the limits of a record's size have their effect.

    Attributes:
        auto_complete: see above; may be changed at any time.
        history: records sent, in order; those of a transaction once it has committed.
        uncommitted: records of the open transaction.
        errors: what a call is to raise, by its name, until it is taken away again.
        flushes: how often `flush` was called.
    """

    def __init__(
        self,
        *,
        auto_complete: bool = True,
        topics: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**{"bootstrap_servers": "mock.invalid:9092", **options})
        self.auto_complete: bool = auto_complete
        self.history: list[MockRecord] = []
        self.uncommitted: list[MockRecord] = []
        self.errors: dict[MockCall, Exception] = {}
        self.flushes: int = 0
        self._topics = dict(topics or {})
        self._waiting: deque[_Waiting] = deque()
        self._offsets: Counter[TopicPartition] = Counter()
        self._choose = partition_chooser(self._config, random.Random(0))
        self._is_fenced = False
        self._mock_transactions = (
            None if self._config.transactional_id is None else MockTransactions(self)
        )

    # -- what a test does ------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How many records wait for `complete_next` or `error_next`."""
        return len(self._waiting)

    def complete_next(self) -> bool:
        """Acknowledges the record that waits longest; False if none waits."""
        if not self._waiting:
            return False
        waiting = self._waiting.popleft()
        self._end(waiting, BatchOutcome(base_offset=waiting.record.offset))
        return True

    def complete_all(self) -> None:
        """Acknowledges everything that waits."""
        while self.complete_next():
            pass

    def error_next(self, error: KafkaError) -> bool:
        """Lets the record that waits longest fail; False if none waits."""
        if not self._waiting:
            return False
        waiting = self._waiting.popleft()
        for records in (self.history, self.uncommitted):
            if waiting.record in records:
                records.remove(waiting.record)
        if self._mock_transactions is not None:
            self._mock_transactions.on_failure(error)
        self._end(waiting, BatchOutcome(error=error))
        return True

    def fence(self) -> None:
        """Another producer of the same transactional id has started: calls raise from now on.

        Raises:
            IllegalStateError: the producer is not transactional, or not running.
        """
        if self._config.transactional_id is None or self._state is not _State.RUNNING:
            raise IllegalStateError("only a running transactional producer can be fenced")
        self._is_fenced = True

    def clear(self) -> None:
        """Forgets the history, what waits, and offsets that were sent; not the transaction."""
        self.history.clear()
        self.uncommitted.clear()
        self._fail_waiting(RecordsPurgedError("the mock producer was cleared"))
        if self._mock_transactions is not None:
            self._mock_transactions.clear()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state is _State.CLOSED

    @property
    def commits(self) -> int:
        """How many transactions have committed."""
        return 0 if self._mock_transactions is None else self._mock_transactions.commits

    @property
    def aborts(self) -> int:
        """How many transactions were aborted."""
        return 0 if self._mock_transactions is None else self._mock_transactions.aborts

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._mock_transactions is not None and self._mock_transactions.is_begun

    @property
    def sent_offsets(self) -> list[dict[str, dict[TopicPartition, OffsetAndMetadata]]]:
        """Offsets per group, of each transaction that has committed."""
        return [] if self._mock_transactions is None else self._mock_transactions.committed_offsets

    @property
    def uncommitted_offsets(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Offsets per group, of the open transaction."""
        return {} if self._mock_transactions is None else self._mock_transactions.offsets

    # -- what a producer does --------------------------------------------------------------------

    async def start(self, *, init_transactions: bool = True) -> None:
        """Connects to nothing; the states are those of a producer."""
        if self._state is not _State.NEW:
            raise IllegalStateError(f"a producer starts once; this one is {self._state.value}")
        self._loop = asyncio.get_running_loop()
        self._unretrieved = UnretrievedFailures(
            self._loop, ProducerStats(), self._config.on_delivery_error
        )
        self._wake_ups = WakeUps(self._loop)
        self._state = _State.RUNNING
        if self._mock_transactions is not None and init_transactions:
            try:
                await self._mock_transactions.init()
            except BaseException:
                self._state = _State.CLOSED
                raise

    async def close(self, timeout: float | None = None) -> None:
        """Acknowledges what waits, or fails it with `timeout=0`; aborts an open transaction."""
        if self._state is _State.CLOSED:
            return
        if self._state is _State.RUNNING:
            self._check_loop()
            self._raise_scripted("close")
            if self._mock_transactions is not None:
                self._mock_transactions.end_for_close()
            if timeout == 0:
                self._fail_waiting(ProducerClosedError("the producer was closed"))
            self.complete_all()
        self._state = _State.CLOSED

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """See `Producer.send`."""
        ticket = self._admit()
        prepared = self._prepare(topic, key, value, headers)
        if not isinstance(prepared, tuple):
            try:
                async with asyncio.timeout(self._config.max_block_ms / 1000):
                    prepared = await prepared
            except TimeoutError as error:
                raise KafkaTimeoutError(
                    f"the record's serializer took longer than {self._config.max_block_ms} ms"
                ) from error
            if self._admit() != ticket:
                raise IllegalStateError("the record's transaction ended while send() waited")
        return self._accept(topic, *prepared, partition, timestamp_ms)

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """See `Producer.send_nowait`."""
        self._admit()
        prepared = self._prepare(topic, key, value, headers)
        if not isinstance(prepared, tuple):
            prepared.close()
            raise BufferFullError(f"the {prepared.part}_serializer has to wait", topic=topic)
        return self._accept(topic, *prepared, partition, timestamp_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: HeadersInput = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """See `Producer.send_and_wait`; without `auto_complete` some other task completes it."""
        return await (
            await self.send(
                topic,
                value,
                key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    async def send_many(
        self,
        topic: str,
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        partition: int | None = None,
    ) -> SendManyResult:
        """See `Producer.send_many`; without `auto_complete` some other task completes them."""
        result = SendManyResult()
        accepted: list[tuple[int, Delivery]] = []
        broken: Exception | None = None
        self._admit()
        try:
            async for item in _each(items):
                number, result.count = result.count, result.count + 1
                try:
                    accepted.append((number, await self._send_item(topic, item, partition)))
                except IllegalStateError:
                    raise
                except KafkaError as error:
                    result.failed.append(FailedRecord(number, error))
        except Exception as error:
            broken = error
        for number, delivery in accepted:
            await _fold(result, number, delivery)
        result.failed.sort(key=lambda failed: failed.index)
        if broken is not None:
            raise SendManyInterruptedError(f"stopped: {broken!r}", result=result) from broken
        return result

    async def send_arrow(
        self,
        topic: str | None,
        data: object,
        *,
        value: str | None = "value",
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        topic_column: str | None = None,
    ) -> SendManyResult:
        """Not there: a mock has no use of columns.

        Raises:
            NotImplementedError: always; use `EmbeddedCluster` for code that sends tables.
        """
        raise NotImplementedError("MockProducer has no send_arrow: use an EmbeddedCluster")

    async def flush(self, timeout: float | None = None) -> int:
        """Acknowledges everything that waits, as Java's mock does."""
        self._running()
        self._raise_scripted("flush")
        self.flushes += 1
        self.complete_all()
        return 0

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Fails what waits."""
        self._running()
        count = len(self._waiting) if queued else 0
        if count:
            self._fail_waiting(RecordsPurgedError("the record was purged"))
        return count

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions that `topics` gives it, or one."""
        self._running()
        self._raise_scripted("partitions_for")
        count = self._topics.get(topic, 1)
        return [PartitionInfo(topic, number, 0, 0, (0,), (0,)) for number in range(count)]

    async def warm_up(self, topics: Sequence[str]) -> None:
        """Does nothing, in the right states."""
        self._running()

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Always the same: nobody counts the telemetry of a mock."""
        self._running()
        return _INSTANCE

    # -- private ---------------------------------------------------------------------------------

    def _transactions(self) -> TransactionTask:
        self._running()
        if self._mock_transactions is None:
            raise IllegalStateError(
                "the producer is not transactional", advice="give it a transactional_id"
            )
        return cast("TransactionTask", self._mock_transactions)

    def raise_scripted(self, call: MockCall) -> None:
        """Raises what the test wants a call of transactions to raise."""
        if self._is_fenced:
            raise ProducerFencedError("the test has fenced this producer")
        self._raise_scripted(call)

    def drop_transaction(self) -> None:
        """The open transaction's records will never be seen."""
        self._fail_waiting(TransactionAbortedError("the transaction was aborted"))
        self.uncommitted.clear()

    def _raise_scripted(self, call: MockCall) -> None:
        error = self.errors.get(call)
        if error is not None:
            raise error

    def _running(self) -> None:
        if self._state is not _State.RUNNING:
            self._refuse()
        self._check_loop()

    def _admit(self) -> int:
        """The number of the transaction that a record belongs to."""
        self._running()
        if self._is_fenced:
            raise ProducerFencedError("the test has fenced this producer")
        self._raise_scripted("send")
        return 0 if self._mock_transactions is None else self._mock_transactions.check_send()

    async def _send_item(self, topic: str, item: Item, partition: int | None) -> Delivery:
        record = as_record(item)
        return await self.send(
            record.topic or topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=partition if record.partition is None else record.partition,
            timestamp_ms=record.timestamp_ms,
        )

    def _accept(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: HeaderPairs,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        try:
            size = record_size_bound(key, value, headers) + HEADER_SIZE
        except (TypeError, ValueError) as error:
            raise SerializationError(str(error), topic=topic) from error
        if size > self._config.max_request_size:
            raise RecordTooLargeError(
                f"the record takes up to {size} bytes, more than "
                f"max_request_size={self._config.max_request_size}",
                topic=topic,
            )
        number = self._partition(topic, key, value, partition)
        timestamp_ms = wall_clock_ms() if timestamp_ms is None else timestamp_ms
        where = TopicPartition(topic, number)
        offset = self._offsets[where]
        record = MockRecord(topic, number, key, value, headers, timestamp_ms, offset)
        batch = ProducerBatch(
            where,
            bytearray(size + _BUILDER_BYTES),
            size,
            now=0.0,
            owner=self._wake_ups,
            on_unretrieved=self._unretrieved.on_unretrieved,
        )
        if batch.builder is None or batch.builder.try_append(timestamp_ms, key, value, headers) < 0:
            raise SerializationError("the record cannot be written", topic=topic)
        self._offsets[where] += 1
        transactions = self._mock_transactions
        (self.history if transactions is None else self.uncommitted).append(record)
        self._waiting.append(_Waiting(record, batch))
        sizes = [-1 if part is None else len(part) for part in (key, value)]
        delivery = Delivery(batch, 0, timestamp_ms, *sizes)
        if self.auto_complete:
            self.complete_next()
        return delivery

    def _partition(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None
    ) -> int:
        count = self._topics.get(topic, 1)
        if partition is None:
            partition = self._choose(topic, key, value, _metadata(topic, count))
        number = 0 if partition is None else partition
        if not 0 <= number < count:
            raise InvalidPartitionError(f"{number} is none of {count} partitions", topic=topic)
        return number

    def _fail_waiting(self, error: KafkaError) -> None:
        while self._waiting:
            self._end(self._waiting.popleft(), BatchOutcome(error=error))

    def _end(self, waiting: _Waiting, outcome: BatchOutcome) -> None:
        waiting.batch.complete(outcome)
        waiting.batch.take_buffer()


@lru_cache(maxsize=1000)
def _metadata(topic: str, count: int) -> TopicMetadata:
    partitions = tuple(PartitionMetadata(number, 0, 0) for number in range(count))
    return TopicMetadata(topic, UUID(int=1), partitions)


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterable[Item]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _fold(result: SendManyResult, number: int, delivery: Delivery) -> None:
    try:
        metadata = await delivery
    except KafkaError as error:
        result.failed.append(FailedRecord(number, error))
        return
    result.delivered += 1
    if metadata.offset is not None:
        low, high = result.offsets.get(metadata.topic_partition, (metadata.offset,) * 2)
        offsets = (min(low, metadata.offset), max(high, metadata.offset))
        result.offsets[metadata.topic_partition] = offsets
