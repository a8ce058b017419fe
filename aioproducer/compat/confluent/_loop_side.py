"""The part of the producer that runs in the loop of its thread: starting, handing over, flushing.

Nothing here waits for another thread, and no thread waits for the cluster in `produce()`. Records
of a topic whose metadata is unknown, or that find no memory, wait in a queue of that topic.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import randrange
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from zlib import crc32

from aioproducer._util import log
from aioproducer._util.clock import SystemClock
from aioproducer._util.printable import exception_without_data
from aioproducer.client import producer as asynchronous
from aioproducer.client.lifecycle import warned_of_by_owner
from aioproducer.compat.confluent._cluster import ClusterMetadata, cluster_of
from aioproducer.compat.confluent._reports import Record, Reports
from aioproducer.compat.confluent._settings import Settings
from aioproducer.compat.confluent._translation import translating
from aioproducer.config import ProducerConfig
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.errors import (
    BootstrapError,
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidPartitionError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    RecordsPurgedError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.runtime.observability.health import without_brokers
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine

_log = log.get("producer")
_PER_TURN: Final = 1000
_RETRY_S: Final = 1.0
_SILENCE_S: Final = 2.0
_POLL_S: Final = 0.02
_WATCH_S: Final = 0.5

T = TypeVar("T")


class Poster(Protocol):
    """The interface to the loop for other threads; a `LoopThread` is one."""

    def post(self, callback: Callable[[], object]) -> bool:
        """Run a callback in the loop, soon; False when the loop has ended."""

    def check_alive(self) -> None:
        """Raise when the loop will never answer."""


class LoopSide:
    """An asynchronous producer that is being started until a broker answers.

    Attributes:
        producer: The producer; None until it has started, and when it is closed.
        check_send: Raises unless a transaction is open; None until the producer has started.
        lost: Why a record of this transaction was not handed on.
    """

    def __init__(self, settings: Settings, thread: Poster, reports: Reports) -> None:
        self.producer: asynchronous.Producer | None = None
        self.lost: KafkaError | None = None
        self.check_send: Callable[[], object] | None = None
        self._config = settings.config
        self._has_servers = settings.has_servers
        self._is_watched = settings.error_cb is not None
        self._crc32_keys = settings.crc32_keys
        self._closing: asynchronous.Producer | None = None
        self._metadata: Metadata | None = None
        self._thread = thread
        self._reports = reports
        self._inbox: deque[Record] = deque()
        self._waiting: dict[str, deque[Record]] = {}
        self._feeders: set[asyncio.Task[None]] = set()
        self._draining = False
        self._started = asyncio.Event()
        self._starter: asyncio.Task[None] | None = None

    # -- called in other threads -----------------------------------------------------------------

    def put(self, record: Record) -> None:
        """Hand a record over; raise BufferError if there are too many."""
        self._reports.admit(record, self._inbox)
        # `_drain` reads the records and clears the flag the other way round: one sees the other.
        if not self._draining:
            self._wake(record)

    def _wake(self, record: Record) -> None:
        self._draining = True
        try:
            is_posted = self._thread.post(self._drain)
        except BaseException:  # a KeyboardInterrupt: the next record tries again
            self._draining = False
            raise
        if not is_posted:
            self._draining = False  # the next record is refused as well
            self._inbox.clear()
            self._reports.release(record)
            with translating():
                self._thread.check_alive()
                raise ProducerClosedError("the producer is closed")

    def after_fork_in_child(self) -> None:
        """Have every record refused in a forked child, whose loop is the parent's."""
        self._draining = False
        self._inbox.clear()
        self._reports.after_fork_in_child()

    def run_soon(self, callback: Callable[[], object]) -> None:
        """Run a callback in the loop, unless that has ended."""
        self._thread.post(callback)

    def check_partition(self, topic: str, partition: int) -> None:
        """Raise `InvalidPartitionError` if a known topic has no such partition; in any thread."""
        count = self._partition_count(topic)
        if count and not 0 <= partition < count:
            raise InvalidPartitionError(
                f"there is no partition {partition}: the topic has {count}", topic=topic
            )

    # -- in the loop -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start connecting."""
        if not self._has_servers:
            _log.warning("no `bootstrap.servers` given: nothing can be delivered")
            return
        self._starter = asyncio.ensure_future(self._start())

    async def usable(self) -> asynchronous.Producer:
        """Return the producer, once it has started and has what was handed over before."""
        await self._started.wait()
        await self._fed()
        if self.producer is None:
            raise ProducerClosedError("the producer is closed")
        return self.producer

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        await (await self.usable()).begin_transaction()
        self.lost = None

    async def send_offsets(self, offsets: list[Any], group_metadata: Any) -> None:
        """Make positions part of the transaction."""
        producer = await self.usable()
        if offsets:
            await producer.send_offsets_to_transaction(offsets, group_metadata)

    async def run(self, work: Callable[[asynchronous.Producer], Coroutine[Any, Any, T]]) -> T:
        """Run a call of the producer after what was handed over before."""
        return await work(await self.usable())

    async def flush(self) -> None:
        """Return when what was handed over has its outcome."""
        await (await self.usable()).flush()
        await asyncio.sleep(0)  # its callbacks

    async def abort(self) -> None:
        """Abort the transaction; what waits for metadata fails as well."""
        await self._started.wait()
        self.fail_waiting(RecordsPurgedError("the record's transaction was aborted"))
        await (await self.usable()).abort_transaction()
        self.lost = None
        await asyncio.sleep(0)  # callbacks of its records

    async def list_topics(self, topic: str | None, asked: list[int]) -> ClusterMetadata:
        """Ask a broker for one topic, or for all; `asked` gets the broker's id."""
        await self._started.wait()
        if self.producer is None:
            raise ProducerClosedError("the producer is closed")
        engine, loop = self.producer._usable(), asyncio.get_running_loop()
        request = MetadataRequest(
            topics=None if topic is None else [MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=self._config.allow_auto_create_topics,
        )
        while True:
            now = loop.time()
            node = engine.client.least_loaded_node(now)
            if node is not None and engine.client.can_ask(node, now):
                asked.append(node)
                if topic is None and not engine.client.api_version(node, MetadataRequest):
                    request.topics = []  # in version 0, of brokers before 0.10: all
                answer = await engine.client.send(
                    node, request, timeout_s=self._config.request_timeout_ms / 1000, now=now
                )
                assert isinstance(answer, MetadataResponse)
                return cluster_of(answer, engine.metadata.cluster.cluster_id, node)
            if node is not None:
                engine.client.maybe_connect(node, now)
            await asyncio.sleep(_POLL_S)

    async def cluster_id(self) -> str | None:
        """Return the cluster's id; None where the brokers are too old to have one."""
        await self._started.wait()
        return None if self._metadata is None else self._metadata.cluster.cluster_id

    async def purge(self, queued: bool, in_flight: bool) -> None:
        """Give records up."""
        if queued:
            self.fail_waiting(RecordsPurgedError("the record was purged before it was sent"))
        if self.producer is not None:
            self.producer.purge(queued=queued, in_flight=in_flight)
        await asyncio.sleep(0)  # their callbacks

    def fail_waiting(self, error: KafkaError) -> None:
        """Fail the records that no producer has yet."""
        self._empty_inbox(len(self._inbox))
        for feeder in self._feeders:
            feeder.cancel()
        queues = list(self._waiting.values())
        self._waiting.clear()
        for queue in queues:
            while queue:
                self._fail(queue.popleft(), error)

    async def close(self, timeout: float | None) -> None:
        """Deliver what was handed over, at most for `timeout` seconds, then release everything."""
        with suppress(TimeoutError, ProducerClosedError):
            async with asyncio.timeout(timeout):
                while self._inbox or self._feeders:
                    await self._fed()
        if self._starter is not None:
            self._starter.cancel()
            await asyncio.wait({self._starter})
        self.fail_waiting(ProducerClosedError("the producer was closed before the record was sent"))
        if self.producer is not None:
            self._closing, self.producer = self.producer, None
        self._started.set()
        if self._closing is not None:  # of several calls, each waits for the deliveries
            await self._closing.close(timeout)
        await asyncio.sleep(0)  # the last callbacks

    # -- private ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        while True:
            producer = warned_of_by_owner(asynchronous.Producer(self._config))
            starting = asyncio.ensure_future(producer.start(init_transactions=False))
            try:
                done, _ = await asyncio.wait({starting}, timeout=_SILENCE_S)
                if not done:
                    self._reports.error(_silence(self._config))
                await starting
            except KafkaError as error:
                _log.warning("no connection to the cluster yet: %s", error)
                self._reports.error(error)
                await asyncio.sleep(_RETRY_S)
            except asyncio.CancelledError:
                starting.cancel()
                await asyncio.wait({starting})
                await producer.close(0)  # it may have started nevertheless
                raise
            else:
                transactions = producer._usable().transactions
                if transactions is not None:
                    self.check_send = transactions.check_send
                self._metadata = producer._usable().metadata
                self.producer = producer
                self._started.set()
                if self._is_watched:
                    await self._watch(producer._usable())
                return

    async def _watch(self, engine: ProducerEngine) -> None:
        """Report that all brokers are down each time that two checks in a row find none."""
        checks = 0
        while True:
            await asyncio.sleep(_WATCH_S)
            error = without_brokers(engine)
            checks = 0 if error is None else checks + 1
            if error is not None and checks == 2:
                self._reports.error(error)

    def _drain(self) -> None:
        """Take what was handed over, in turns that leave time for the network."""
        self._empty_inbox(_PER_TURN)
        if not self._inbox:
            self._draining = False
            if not self._inbox:
                return
            self._draining = True
        asyncio.get_running_loop().call_soon(self._drain)

    def _empty_inbox(self, count: int) -> None:
        """Hand records on, those that need no wait without a trip through the general path."""
        inbox, waiting, producer, reports = self._inbox, self._waiting, self.producer, self._reports
        fast_path = None if producer is None else producer._fast_path
        groups, crc32_keys = reports.groups, self._crc32_keys
        counts: dict[str, int] = {}
        for _ in range(min(count, len(inbox))):
            record = inbox.popleft()
            topic, value, key, headers, partition, timestamp_ms, size, _, on_delivery = record
            delivery, is_placed = None, True
            if partition is None and key is not None and crc32_keys:
                known = counts.get(topic)
                if known is None:
                    known = counts[topic] = self._partition_count(topic)
                is_placed = known > 0
                if is_placed:
                    partition = crc32(key) % known if key else randrange(known)
            if is_placed and fast_path is not None and topic not in waiting:
                try:
                    delivery = fast_path.append_nowait(
                        topic, value, key, headers, partition, timestamp_ms
                    )
                except Exception as error:
                    self._fail(record, _own(error))
                    continue
            if delivery is None:
                self._append_or_queue(record)
            else:
                group = groups.get(delivery._batch) or reports.group(delivery)
                if on_delivery is None:
                    group.silent += 1
                    group.silent_bytes += size
                else:
                    group.pairs.append((record, delivery))

    def _append_or_queue(self, record: Record) -> None:
        """Hand a record on, or let it wait after those of its topic."""
        queue = self._waiting.get(record.topic)
        if queue is not None:
            queue.append(record)
        elif self.producer is None or not self._sent(self.producer, record):
            queue = self._waiting[record.topic] = deque((record,))
            feeder = asyncio.ensure_future(self._feed(record.topic, queue))
            self._feeders.add(feeder)
            feeder.add_done_callback(partial(self._end_feeder, record.topic, queue))

    def _sent(self, producer: asynchronous.Producer, record: Record) -> bool:
        """Hand a record on without waiting, or return False."""
        partition = record.partition
        if partition is None and self._crc32_keys and record.key is not None:
            partition = self._partition_of(record.topic, record.key)
            if partition is None:
                return False
        try:
            if partition is not None:
                self.check_partition(record.topic, partition)
            delivery = producer.send_nowait(
                record.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
            )
        except WouldBlockError:
            return False
        except Exception as error:
            self._fail(record, _own(error))
        else:
            self._reports.report_when_done(record, delivery)
        return True

    async def _feed(self, topic: str, queue: deque[Record]) -> None:
        """Hand on a topic's records, each when the producer takes it."""
        try:
            handed_on = 0
            while queue:
                record = queue[0]
                if self.producer is not None and self._sent(self.producer, record):
                    queue.popleft()
                    handed_on += 1
                    if not handed_on % _PER_TURN:
                        await asyncio.sleep(0)
                    continue
                error = await self._hand_on(record)
                if isinstance(error, MetadataTimeoutError):
                    # The others wait for the same: they do not wait as long once more.
                    for each in list(queue):
                        if error.partition in (None, each.partition):
                            queue.remove(each)
                            self._fail(each, error)
                else:
                    queue.popleft()
                    if error is not None:
                        self._fail(record, error)
        finally:
            if self._waiting.get(topic) is queue:
                del self._waiting[topic]

    def _end_feeder(self, topic: str, queue: deque[Record], feeder: asyncio.Task[None]) -> None:
        """Fail what is left: `asyncio.run()` cancels all tasks, also before their first step."""
        self._feeders.discard(feeder)
        if self._waiting.get(topic) is queue:
            del self._waiting[topic]
        while queue:
            self._fail(queue.popleft(), ProducerClosedError("the event loop is ending"))

    async def _hand_on(self, record: Record) -> KafkaError | None:
        """Return None when the producer has the record, or why it cannot have it."""
        limit = self._config.delivery_timeout_ms / 1000
        left = record.since + limit - SystemClock.monotonic()
        try:
            async with asyncio.timeout(max(0.0, left)):
                await self._started.wait()
                while (producer := self.producer) is not None:
                    partition = record.partition
                    try:
                        if partition is not None:
                            await producer.warm_up([record.topic])
                            self.check_partition(record.topic, partition)
                        elif self._crc32_keys and record.key is not None:
                            await producer.warm_up([record.topic])
                            partition = self._partition_of(record.topic, record.key)
                        delivery = await producer.send(
                            record.topic,
                            record.value,
                            record.key,
                            headers=record.headers,
                            partition=partition,
                            timestamp_ms=record.timestamp_ms,
                        )
                    except MetadataTimeoutError as error:
                        if producer.health().ready:
                            return error
                    except BufferExhaustedError:
                        continue
                    else:
                        self._reports.report_when_done(record, delivery)
                        return None
        except KafkaError as error:  # of which some are a `TimeoutError`
            return error
        except TimeoutError:
            return DeliveryTimeoutError(
                f"not sent within message.timeout.ms={limit * 1000:.0f}: the topic's metadata or "
                "memory did not come",
                topic=record.topic,
            )
        except Exception as error:
            return _own(error)
        return ProducerClosedError("the producer is closed")

    def _partition_of(self, topic: str, key: bytes) -> int | None:
        """Return librdkafka's choice for a key; None while the topic is unknown."""
        count = self._partition_count(topic)
        if not count:
            return None
        return crc32(key) % count if key else randrange(count)

    def _partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 while it is unknown."""
        meta = None if self._metadata is None else self._metadata.topic(topic)
        return 0 if meta is None else len(meta.partitions)

    def _fail(self, record: Record, error: KafkaError) -> None:
        """Fail a record that the producer never had; its transaction must not be committed."""
        self.lost = error
        self._reports.failed(record, error)

    async def _fed(self) -> None:
        """Return when what was handed over until now is the producer's."""
        self._empty_inbox(len(self._inbox))
        if self._feeders:
            await asyncio.wait(list(self._feeders))


def _own(error: Exception) -> KafkaError:
    """Return why a record is not handed on; a partitioner of the application may raise anything."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, TypeError | ValueError):
        return SerializationError(str(error))
    made = KafkaError(f"the record could not be handed on: {exception_without_data(error)}")
    made.__cause__ = error
    return made


def _silence(config: ProducerConfig) -> KafkaError:
    servers = ", ".join(config.bootstrap_servers)
    return BootstrapError(f"no broker of {servers} has answered yet")
