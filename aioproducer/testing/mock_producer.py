"""MockProducer: a producer for unit tests, without brokers or network, that does what Java's does.

    send() -> waiting --complete_next()--> acknowledged         at once with `auto_complete`
                      --error_next(e)----> failed
                      --flush(), close(), commit--> acknowledged

Invariants
- Deliveries are those of the real producer: awaited, given callbacks and dropped in the same way.
- Records of a transaction enter `history` when it commits; a transaction in which a record failed,
  or was refused, does not commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from aioproducer._util.arguments import seconds_of, timeout_of
from aioproducer._util.secrets import hides_arguments
from aioproducer.client.lifecycle import State
from aioproducer.client.producer import Producer
from aioproducer.core.metadata.cluster import check_topic_name
from aioproducer.errors import (
    IllegalStateError,
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
    RecordsFailedError,
    RecordsPurgedError,
    TransactionAbortedError,
    WouldBlockError,
)
from aioproducer.records.arrow import ArrowColumns
from aioproducer.runtime.bulk.result import Item, SendManyResult
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.observability.health import Health
from aioproducer.runtime.observability.interceptors import InterceptorChain
from aioproducer.runtime.send.serialization_queue import SerializationQueue
from aioproducer.runtime.tasks.closing import UserObjects
from aioproducer.testing.mock_bulk import send_arrow, send_many
from aioproducer.testing.mock_records import MockRecord, WaitingRecords
from aioproducer.testing.mock_transactions import MockCall, MockTransactions
from aioproducer.types import (
    HeadersInput,
    OffsetAndMetadata,
    PartitionInfo,
    Record,
    RecordMetadata,
    TopicPartition,
)

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import RecordParts
    from aioproducer.runtime.send.pending import PendingParts
    from aioproducer.runtime.tasks.transactions import TransactionTask

_INSTANCE = UUID(int=1)


class MockProducer(Producer):
    """A `Producer` whose records are not sent.

    Args:
        auto_complete: whether records are acknowledged at once, instead of by `complete_next`.
        topics: partitions per topic; any other topic has one.
        auto_start: whether the first call starts it, in any event loop, as for
            `app.dependency_overrides` of FastAPI. Otherwise calls before `start()` raise, as those
            of `Producer` do.
        **options: those of `Producer`, except `bootstrap_servers`. `transactional_id`, serializers,
            interceptors, the partitioner and the limit of a record's size have an effect.

    Attributes:
        auto_complete: see above; may be changed at any time.
        history: records sent, in order; those of a transaction once it has committed.
        uncommitted: records of the open transaction.
        errors: what a call is to raise, by its name, until it is taken away again.
        flushes: how often `flush` was called.
    """

    @hides_arguments
    def __init__(
        self,
        *,
        auto_complete: bool = True,
        topics: Mapping[str, int] | None = None,
        auto_start: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**{"bootstrap_servers": "mock.invalid:9092", **options})
        self.auto_complete: bool = auto_complete
        self.history: list[MockRecord] = []
        self.uncommitted: list[MockRecord] = []
        self.errors: dict[MockCall, Exception] = {}
        self.flushes: int = 0
        self._auto_start = auto_start
        self._started_itself = False
        self._failures_raised = 0
        self._topics = dict(topics or {})
        self._waiting: WaitingRecords | None = None
        self._is_fenced = False
        self._mock_transactions = (
            None if self._config.transactional_id is None else MockTransactions(self)
        )

    # -- what a test does ------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of records that wait for `complete_next` or `error_next`."""
        return 0 if self._waiting is None else len(self._waiting)

    def complete_next(self) -> bool:
        """Acknowledge the record that waits longest; False if none waits."""
        if not self._waiting:
            return False
        self._waiting.end_next(None)
        return True

    def complete_all(self) -> None:
        """Acknowledge everything that waits."""
        while self.complete_next():
            pass

    def error_next(self, error: KafkaError) -> bool:
        """Let the record that waits longest fail; False if none waits."""
        if not self._waiting:
            return False
        record = self._waiting.end_next(error)
        for records in (self.history, self.uncommitted):
            if record in records:
                records.remove(record)
        if self._mock_transactions is not None:
            self._mock_transactions.on_failure(error)
        return True

    def fence(self) -> None:
        """Fence this producer, as if another one of its id had started: calls raise from now on.

        Raises:
            IllegalStateError: the producer is not transactional, or not running.
        """
        if self._config.transactional_id is None or self._state is not State.RUNNING:
            raise IllegalStateError("only a running transactional producer can be fenced")
        self._is_fenced = True

    def clear(self) -> None:
        """Clear the history, what waits, and offsets that were sent; not the transaction."""
        self.history.clear()
        self.uncommitted.clear()
        self._fail_waiting(RecordsPurgedError("the mock producer was cleared"))
        self._failures_raised = 0 if self._waiting is None else self._waiting.failures
        if self._mock_transactions is not None:
            self._mock_transactions.clear()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._state is State.CLOSED

    @property
    def commits(self) -> int:
        """The number of committed transactions."""
        return 0 if self._mock_transactions is None else self._mock_transactions.commits

    @property
    def aborts(self) -> int:
        """The number of aborted transactions."""
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

    async def start(self, *, init_transactions: bool = True, wait: bool = True) -> None:
        """Connect to nothing; the states are those of a producer."""
        if self._state is not State.NEW:
            raise IllegalStateError(f"a producer starts once; this one is {self._state.value}")
        self._begin_in(asyncio.get_running_loop())
        if self._mock_transactions is not None and init_transactions:
            try:
                await self._mock_transactions.init()
            except BaseException:
                self._state = State.CLOSED
                raise

    async def close(self, timeout: float | None = None) -> None:
        """Acknowledge what waits, or fails it with `timeout=0`; abort an open transaction."""
        timeout_of(timeout)
        if self._state is State.CLOSED:
            return
        if self._state is State.RUNNING:
            self._running()
            self._raise_scripted("close")
            self._serializing.close(ProducerClosedError("the producer is being closed"))
            if self._mock_transactions is not None:
                self._mock_transactions.end_for_close()
            if timeout == 0:
                self._fail_sent(ProducerClosedError("the producer was closed"))
            self.complete_all()
            self._interceptor_chain.close()
            self._state = State.CLOSED
            await self._user_objects.close()
        self._state = State.CLOSED

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
        transaction_epoch = self._admit()
        record = Record(value, key, headers, timestamp_ms, partition, topic)
        made = self._interceptor_chain.show(record, self._prepare)
        parts = made if isinstance(made, tuple) else made.known
        if parts is not made or self._serializing.is_queued(parts[0]):
            with self._interceptor_chain.reporting_errors(parts):
                parts = await self._finished(parts[0], made, transaction_epoch)
        delivery = self._take(parts)
        if self._config.producer_type == "sync":
            await delivery
        return delivery

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
        record = Record(value, key, headers, timestamp_ms, partition, topic)
        parts = self._interceptor_chain.show(record, self._prepare)
        if not isinstance(parts, tuple):
            parts.close()
            with self._interceptor_chain.reporting_errors(parts.known):
                raise WouldBlockError(f"the {parts.part}_serializer has to wait", topic=topic)
        with self._interceptor_chain.reporting_errors(parts):
            self._serializing.check_free(parts[0])
        return self._take(parts, waits=False)

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
        self._admit()
        return await send_many(
            self.send,
            self._on_row_refused,
            self._interceptor_chain,
            topic,
            items,
            partition,
            partitioner=self._config.partitioner,
        )

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
        """See `Producer.send_arrow`; without `auto_complete` some other task completes the rows."""
        self._admit()
        columns = ArrowColumns(value, key, headers, partition, timestamp, topic_column)
        return await send_arrow(
            self._take_row,
            self._on_row_refused,
            self._interceptor_chain,
            topic,
            data,
            columns,
            partitioner=self._config.partitioner,
        )

    async def flush(self, timeout: float | None = None, *, raise_failures: bool = False) -> int:
        """Acknowledge everything that waits, as Java's mock does; raise what failed before."""
        timeout_of(timeout)
        self._running()
        self._raise_scripted("flush")
        self.flushes += 1
        self.complete_all()
        failed = self._accepting().failures - self._failures_raised
        if raise_failures and failed:
            self._failures_raised += failed
            raise RecordsFailedError(f"{failed} record(s) have failed", count=failed)
        return 0

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Fail what waits."""
        self._running()
        count = self.pending if queued else 0
        if count:
            self._fail_sent(RecordsPurgedError("the record was purged"))
        return count

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """Return the partitions that `topics` gives it, or one."""
        self._running()
        self._raise_scripted("partitions_for")
        check_topic_name(topic)
        count = self._topics.get(topic, 1)
        return [PartitionInfo(topic, number, 0, 0, (0,), (0,)) for number in range(count)]

    async def warm_up(self, topics: Sequence[str]) -> None:
        """Check the names, in the right states."""
        if isinstance(topics, str):
            raise TypeError(f"warm_up takes a sequence of topic names, such as [{topics!r}]")
        self._running()
        for topic in topics:
            check_topic_name(topic)

    def health(self) -> Health:
        """Return that it is ready, until it is closed or fenced.

        One that starts with its first call is ready before that.
        """
        if self._is_fenced and self._state is State.RUNNING:
            return Health(ready=False, state="failed", error=str(_fenced()))
        starts = self._auto_start and self._state is State.NEW
        if starts or self._state is State.RUNNING:
            return Health(ready=True, state=State.RUNNING.value)
        return Health(ready=False, state=self._state_name)

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return always the same id: a mock has no telemetry."""
        if timeout is not None:
            seconds_of(timeout, "timeout")
        self._running()
        return _INSTANCE

    # -- private ---------------------------------------------------------------------------------

    async def _committed_offset(
        self, group: str, place: TopicPartition
    ) -> OffsetAndMetadata | None:
        """Return the offset that the last of the committed transactions has written."""
        self._running()
        found = (each.get(group, {}).get(place) for each in reversed(self.sent_offsets))
        return next((offset for offset in found if offset is not None), None)

    def _transactions(self) -> TransactionTask:
        self._running()
        if self._mock_transactions is None:
            raise IllegalStateError(
                "the producer is not transactional", advice="give it a transactional_id"
            )
        return cast("TransactionTask", self._mock_transactions)

    def raise_scripted(self, call: MockCall) -> None:
        """Raise what the test wants a call of transactions to raise."""
        if self._is_fenced:
            raise _fenced()
        self._raise_scripted(call)

    def drop_transaction(self) -> None:
        """Drop the records of the open transaction."""
        self._fail_waiting(TransactionAbortedError("the transaction was aborted"))
        self.uncommitted.clear()

    def _raise_scripted(self, call: MockCall) -> None:
        error = self.errors.get(call)
        if error is not None:
            raise error

    def _begin_in(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config
        self._loop = loop
        self._waiting = WaitingRecords(config, self._topics, loop)
        self._user_objects = UserObjects(config)
        self._serializing = SerializationQueue(loop, config.max_block_ms / 1000)
        self._interceptor_chain = InterceptorChain(
            config.interceptor_classes, (config.key_serializer, config.value_serializer), loop
        )
        self._state = State.RUNNING

    def _follow(self) -> None:
        """Start in the loop that runs, or goes on in it."""
        loop = asyncio._get_running_loop()
        if loop is None or loop is self._loop:
            return
        if self._waiting is None:
            self._begin_in(loop)
            self._started_itself = True
            if self._mock_transactions is not None:
                self._mock_transactions.initialize()
        else:
            self._loop = loop
            self._waiting.bind(loop)
            self._interceptor_chain.bind(loop)
            self._serializing = SerializationQueue(loop, self._config.max_block_ms / 1000)

    def _warn_of_being_unclosed(self) -> None:
        if not self._started_itself:
            super()._warn_of_being_unclosed()

    def _running(self) -> None:
        if self._started_itself or (self._auto_start and self._state is State.NEW):
            self._follow()
        if self._state is not State.RUNNING:
            self._refuse()
        self._check_loop()

    def _admit(self) -> int:
        """Return the number of the transaction that a record belongs to."""
        self._running()
        if self._is_fenced:
            raise _fenced()
        with self._failing_transaction():
            self._raise_scripted("send")
        return 0 if self._mock_transactions is None else self._mock_transactions.check_send()

    @contextmanager
    def _failing_transaction(self) -> Iterator[None]:
        """Fail the open transaction if a record is refused that it would lack."""
        try:
            yield
        except Exception as error:
            if self._mock_transactions is not None:
                self._mock_transactions.on_refused(error)
            raise

    def _on_row_refused(self, error: KafkaError) -> None:
        if self._mock_transactions is not None:
            self._mock_transactions.on_row_refused(error)

    def _accepting(self) -> WaitingRecords:
        if self._waiting is None:
            self._refuse()
        return self._waiting

    def _fail_waiting(self, error: KafkaError) -> None:
        if self._waiting is not None:
            self._waiting.end_all(error)

    def _fail_sent(self, error: KafkaError) -> None:
        """Fail what waits, as `error_next` does for one record."""
        failed: list[MockRecord] = []
        while self._waiting:
            failed.append(self._waiting.end_next(error))
        gone = {id(record) for record in failed}
        for records in (self.history, self.uncommitted):
            records[:] = [record for record in records if id(record) not in gone]
        if failed and self._mock_transactions is not None:
            self._mock_transactions.on_failure(error)

    async def _finished(
        self, topic: str, made: RecordParts | PendingParts, transaction_epoch: int
    ) -> RecordParts:
        with self._serializing.enter(topic) as place:
            parts = await self._serializing.finish(place, made)
        if self._admit() != transaction_epoch:
            raise IllegalStateError("the record's transaction ended while send() waited")
        return parts

    def _take_row(self, parts: RecordParts) -> Delivery:
        if self._mock_transactions is not None:
            self._mock_transactions.check_send()
        return self._take(parts)

    def _take(self, parts: RecordParts, *, waits: bool = True) -> Delivery:
        with self._interceptor_chain.reporting_errors(parts), self._failing_transaction():
            record, delivery = self._accepting().accept(*parts, waits=waits)
        (self.history if self._mock_transactions is None else self.uncommitted).append(record)
        self._interceptor_chain.accepted(delivery, parts)
        if self.auto_complete:
            self.complete_all()
        return delivery


def _fenced() -> ProducerFencedError:
    return ProducerFencedError("the test has fenced this producer")
