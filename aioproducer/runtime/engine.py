"""`ProducerEngine`, the tasks and objects of one started producer.

    start() -> running -> close() -> closed
                  \\---- sender task ends by itself ---> failed

Invariants
- After `close()` returned or `start()` raised, no task, socket, timer or waiter is left.
- When the sender task ends, for any reason, everything pending fails with that reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aioproducer._util import log
from aioproducer._util.tasks import HOOK_ERRORS, start_later
from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.partitioners import (
    BuiltInPartitioner,
    NodeLatencies,
    RackPreference,
    StickyPartitioners,
)
from aioproducer.core.driver import Driver, Turns
from aioproducer.core.metadata.cluster import ZERO_ID
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.reasons import Reason
from aioproducer.core.sending.sender import Sender
from aioproducer.core.transactions.coordinators import CoordinatorSession
from aioproducer.errors import (
    KafkaError,
    KafkaTimeoutError,
    NotConnectedError,
    ProducerClosedError,
    ProducerFailedError,
    RecordsFailedError,
    RecordsPurgedError,
)
from aioproducer.interceptors import ClusterInfo
from aioproducer.metrics.totals import ProducerStats
from aioproducer.net.client import NetworkClient
from aioproducer.net.dial.dialer import Dialer
from aioproducer.partitioners import partition_chooser
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.records.message_set import MESSAGE_GROWTH
from aioproducer.runtime import settings
from aioproducer.runtime.delivery import WakeUps
from aioproducer.runtime.delivery.unhandled import UnretrievedFailures
from aioproducer.runtime.legacy_brokers import are_old, refuse_what_they_lack
from aioproducer.runtime.observability.interceptors import InterceptorChain
from aioproducer.runtime.observability.registry import MetricsRegistry
from aioproducer.runtime.observability.telemetry import TelemetryReporter
from aioproducer.runtime.security_settings import principal_of
from aioproducer.runtime.send.appender import RecordAppender
from aioproducer.runtime.send.batch_appender import SendPath
from aioproducer.runtime.send.fast_path import wall_clock_ms
from aioproducer.runtime.send.memory import BufferMemory
from aioproducer.runtime.send.validation import PartitionChoice, RecordCheck
from aioproducer.runtime.tasks.closing import UserObjects, silence, tasks_named
from aioproducer.runtime.tasks.flush import Flushing
from aioproducer.runtime.tasks.metadata import MetadataTask
from aioproducer.runtime.tasks.sender import SenderTask
from aioproducer.runtime.tasks.transactions import TransactionTask
from aioproducer.runtime.tasks.turns import cause_of_end
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.sending.idempotence import ExpiredProducer, LostRecords
    from aioproducer.runtime.observability.reporters import MetricsReporting

_log = log.get("runtime")

_CLOSE_GRACE_S = 1.0
_TASKS = "aioproducer-"
"""Prefix of the names of a producer's tasks."""


def _is_interrupt(cause: KafkaError) -> bool:
    """Return whether a task was ended by an unexpected exception, not by a cancellation."""
    return isinstance(cause, ProducerFailedError) and cause.__cause__ is not None


def _was_cut_off(closer: asyncio.Task[None]) -> bool:
    """Return whether a closer was cancelled, or ended by an exception (KeyboardInterrupt)."""
    return closer.done() and (closer.cancelled() or closer.exception() is not None)


class ProducerEngine:
    """The implementation of a started `Producer`.

    `dialer` and `registry` are made from the options when left out. A seeded `rng`, for jitter and
    the choice of partitions, makes a run repeatable. `wall_ms` is the clock for record timestamps.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        dialer: Dialer | None = None,
        rng: random.Random | None = None,
        wall_ms: Callable[[], int] = wall_clock_ms,
        registry: MetricsRegistry | None = None,
    ) -> None:
        self.config = config
        self.loop = loop
        self.stats: ProducerStats = ProducerStats(sampling=settings.sampling(config))
        self.started_at_ms: int = wall_ms()
        self.failure: KafkaError | None = None
        self.closing: bool = False
        self.memory_left: int = 0
        """Bytes of the pool that were not given back at the end of `close()`."""
        self._started_at = loop.time()
        self._closer: asyncio.Task[None] | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[None] | None = None
        self._connector: asyncio.Task[None] | None = None
        self._start_error: KafkaError | None = None
        self._drain_is_cut = False
        self._failures_raised = 0
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)
        self._make_core(rng or random.Random())
        self._make_network(dialer or settings.make_dialer(config))
        self._make_user_objects()
        self._make_sender_task()
        self._make_appender(wall_ms)
        registry = registry or MetricsRegistry()
        self.telemetry: TelemetryReporter | None = None
        if config.enable_metrics_push:
            self.telemetry = self._make_telemetry(registry, wall_ms)
        self._reporting = self._make_reporting(registry)

    def _make_core(self, rng: random.Random) -> None:
        config = self.config
        self._rng = rng
        self.metadata: Metadata = settings.make_metadata(config, rng)
        self._latencies = NodeLatencies(config.partitioner_availability_timeout_ms / 1000)
        self._transactions = settings.make_transactions(config, self._topic_ids)
        sequencer = settings.make_sequencer(config, self._transactions)
        self._wake_ups = WakeUps(self.loop)
        self.unretrieved: UnretrievedFailures = UnretrievedFailures(
            self.loop, self.stats, config.on_delivery_error, config.client_id
        )
        self.pool: BufferPool = BufferPool(
            config.buffer_memory, config.batch_size, HEADER_SIZE, config.buffer_max_records
        )
        self.accumulator: RecordAccumulator = RecordAccumulator(
            settings.accumulator_settings(config),
            self.pool,
            self.metadata,
            sequencer,
            owner=self._wake_ups,
            on_unretrieved=self.unretrieved.on_unretrieved,
        )
        self.sender: Sender = Sender(
            self.accumulator,
            self.metadata,
            sequencer,
            settings.sender_settings(config),
            rng=rng,
            stats=self.stats,
            latencies=self._latencies,
            on_data_loss=self._on_data_loss,
            on_producer_expired=self._on_producer_expired,
            transactions=self._transactions,
        )
        self.driver: Driver = Driver(
            self.sender, settings.make_metadata_requests(config, self.metadata)
        )

    def _topic_ids(self) -> Mapping[str, UUID]:
        topics = self.metadata.cluster.topics.items()
        return {name: topic.topic_id for name, topic in topics if topic.topic_id != ZERO_ID}

    def _make_network(self, dialer: Dialer) -> None:
        config, loop = self.config, self.loop
        self.client: NetworkClient = NetworkClient(
            settings.net_settings(config),
            dialer=dialer,
            loop_time=loop.time,
            rng=self._rng,
            on_event=self._on_network_event,
        )
        self.metadata_task: MetadataTask = MetadataTask(
            self.metadata,
            self.driver.metadata,
            self.client,
            config,
            loop=loop,
            on_update=self._on_metadata_update,
            on_end=self._on_task_end,
        )

    def _make_user_objects(self) -> None:
        config = self.config
        self.interceptor_chain: InterceptorChain = InterceptorChain(
            config.interceptor_classes,
            (config.key_serializer, config.value_serializer, *config.metric_reporters),
            self.loop,
        )
        self._user_objects = UserObjects(config)
        # Interceptors are called before awaiters are resumed, as in Java.
        in_turn = self.interceptor_chain.sees_records
        self._resumed_at_once = None if in_turn else self._wake_ups

    def _make_sender_task(self) -> None:
        config = self.config
        self._encoder = settings.make_encoder(config)
        self.sender_task: SenderTask = SenderTask(
            self.sender,
            self.client,
            self.metadata,
            self._encoder,
            config,
            loop=self.loop,
            after_turn=self._after_sender_turn,
            on_event=self._on_event,
            on_end=self._on_task_end,
            transactions=self._transactions,
            wake_ups=self._resumed_at_once,
        )

    def _make_appender(self, wall_ms: Callable[[], int]) -> None:
        config, loop = self.config, self.loop
        self.memory: BufferMemory = BufferMemory(self.pool, loop, self.stats, self._on_memory_wait)
        choose = partition_chooser(
            config.partitioner, self._rng, ignore_keys=config.partitioner_ignore_keys
        )
        path = SendPath(
            config=config,
            loop=loop,
            wall_ms=wall_ms,
            metadata=self.metadata,
            waits=self.metadata_task.waits,
            check=RecordCheck(config.max_request_size, self.pool, PartitionChoice(choose), wall_ms),
            sticky_partitioners=StickyPartitioners(
                self._make_sticky, self.accumulator, self._latencies
            ),
            accumulator=self.accumulator,
            memory=self.memory,
            sender_task=self.sender_task,
            stats=self.stats,
        )
        self.appender: RecordAppender = RecordAppender(path)
        self._flushing = Flushing(self.accumulator, self.metadata, loop, self.sender_task.wake)
        self.transactions: TransactionTask | None = self._make_transaction_task()
        if self.transactions is not None:
            self.appender.use_transactions(self.transactions)

    def _make_transaction_task(self) -> TransactionTask | None:
        if self._transactions is None:
            return None
        session = self.driver.transactions = CoordinatorSession(
            self._transactions,
            settings.retry_backoff(self.config),
            self._rng,
            self.metadata,
            self.accumulator,
            principal=principal_of(self.config),
        )
        return TransactionTask(
            self._transactions,
            session,
            self.client,
            self.accumulator,
            self.config,
            loop=self.loop,
            on_event=self._on_event,
            open_gate=self.appender.open_gate,
            on_end=self._on_task_end,
        )

    def _make_telemetry(
        self, registry: MetricsRegistry, wall_ms: Callable[[], int]
    ) -> TelemetryReporter:
        config = self.config
        resource = {"client_rack": config.client_rack, "transactional_id": config.transactional_id}
        return TelemetryReporter(
            self.client,
            lambda: registry.collect(self),
            resource={name: value for name, value in resource.items() if value},
            loop=self.loop,
            wall_ms=wall_ms,
            rng=self._rng,
        )

    def _make_reporting(self, registry: MetricsRegistry) -> MetricsReporting | None:
        if not self.config.metric_reporters:
            return None
        # Imported only if it is used.
        from aioproducer.runtime.observability.reporters import MetricsReporting

        return MetricsReporting(
            self.config.metric_reporters, lambda: registry.sources(self), self.loop
        )

    def _make_sticky(self) -> BuiltInPartitioner:
        config = self.config
        rack = config.client_rack if config.partitioner_rack_aware else ""
        return BuiltInPartitioner(
            max(1, config.batch_size),
            adaptive=config.partitioner_adaptive_partitioning_enable,
            rng=self._rng,
            rack_preference=RackPreference(rack, lambda: self.metadata.cluster.nodes),
        )

    # -- life ------------------------------------------------------------------------------------

    async def start(self, *, init_transactions: bool) -> None:
        """Start the tasks and wait until a broker has answered.

        That takes at most `call_timeout_ms`, or `bootstrap_resolve_timeout_ms` if that is longer.
        With `init_transactions`, a transactional producer is initialized as well, which takes at
        most another `call_timeout_ms`. Errors that a longer wait would not change are raised at
        once.
        """
        self._begin(in_background=False)
        timeout_ms = max(self.config.call_timeout_ms, self.config.bootstrap_resolve_timeout_ms)
        try:
            initialize = self._init_transactions if init_transactions else None
            await self._connect(self.loop.time() + timeout_ms / 1000, initialize)
        except BaseException:
            await self.close(0)
            raise

    def start_in_background(self, *, init_transactions: bool) -> None:
        """Start the tasks; one of them does the rest of `start`, without a time limit."""
        if self.transactions is None:
            self._accept_early()
        self._begin(in_background=True)
        initialize = self._keep_initializing if init_transactions else None
        self._connector = start_later(
            self.loop, self._connect(None, initialize), name="aioproducer-connect"
        )
        self._connector.add_done_callback(self._on_connector_done)

    def _accept_early(self) -> None:
        """Let `send()` accept records before their topics have metadata."""
        early = self.appender.early_records()
        self.appender.early = early
        self.metadata_task.waits.also_wanted = early.topics
        self.metadata_task.on_fatal_error = early.fail

    def _begin(self, *, in_background: bool) -> None:
        if self._reporting is not None:
            self._reporting.start(self.config)
        self.client.set_bootstrap(self.config.bootstrap)
        self.metadata_task.start(in_background=in_background)
        self.sender_task.start()

    async def _connect(
        self,
        deadline: float | None,
        initialize: Callable[[TransactionTask], Awaitable[None]] | None,
    ) -> None:
        await self.metadata_task.waits.wait_for_bootstrap(deadline)
        refuse_what_they_lack(self.config, self.client.highest_version(ApiKey.PRODUCE))
        if self.transactions is not None:
            self.transactions.start()
            if initialize is not None:
                await initialize(self.transactions)
        if self.telemetry is not None and not self.closing:
            self.telemetry.start()

    async def _keep_initializing(self, transactions: TransactionTask) -> None:
        """Initialize a transactional producer, without a time limit."""
        while True:
            try:
                return await transactions.init()
            except KafkaTimeoutError as error:
                self.warnings.warning(self.loop.time(), None, "initialization", "%s", error)
            except ProducerClosedError:
                raise
            except KafkaError as error:
                # Calls of a transaction raise it as well; init_transactions() may be repeated.
                self._start_error = error
                _log.error(
                    "the transactional producer could not be initialized; call init_transactions() "
                    "once the cause is corrected: %s",
                    error,
                )
                return None

    def _on_connector_done(self, task: asyncio.Task[None]) -> None:
        cause = cause_of_end(task, "start")
        if not self.closing:
            self._on_task_end(cause)

    @property
    def is_connecting(self) -> bool:
        """Whether a start in the background has not ended yet."""
        return self._connector is not None and not self._connector.done()

    @property
    def obstacle(self) -> KafkaError | None:
        """The error for which a start in the background has not ended; None without one."""
        if self._start_error is not None:
            return self._start_error.with_context()
        if not self.is_connecting:
            return None
        if self.metadata.version:
            doing = self.transactions.waiting_for if self.transactions else None
            return NotConnectedError(f"the producer waits for {doing or 'the first answers'}")
        lasting, reason = self.metadata.fatal_error, self.metadata.explain_failures()
        if lasting is not None:
            reason = Reason(lasting.message, lasting.advice)
        error = NotConnectedError(
            "the producer is not connected to the cluster yet: "
            f"{reason.text or 'no broker has answered yet'}",
            advice=reason.advice,
        )
        error.__cause__ = lasting
        return error

    def refuse_unconnected(self) -> None:
        """Make calls raise `NotConnectedError` instead of waiting for a start in the background."""
        self.appender.early = None
        self.appender.refuse_unconnected = self._raise_obstacle

    def _raise_obstacle(self) -> None:
        if self.obstacle is not None:
            raise self.obstacle

    async def wait_until_started(self, *, initialized: bool = True) -> None:
        """Wait for a start in the background, at most `call_timeout_ms`.

        `initialized`: until a transactional producer is initialized, too.
        """
        if self._connector is None:
            return
        if self.appender.refuse_unconnected is not None:
            self.appender.refuse_unconnected()
        deadline = self.loop.time() + self.config.call_timeout_ms / 1000
        await self.metadata_task.waits.wait_for_bootstrap(deadline)
        if not initialized:
            return
        await asyncio.wait([self._connector], timeout=deadline - self.loop.time())
        self.check_usable()
        self._raise_obstacle()

    async def init_transactions(self, transactions: TransactionTask) -> None:
        """See `Producer.init_transactions`."""
        await self.wait_until_started(initialized=False)
        await transactions.init()
        self._start_error = None

    @staticmethod
    async def _init_transactions(transactions: TransactionTask) -> None:
        try:
            await transactions.init()
        except KafkaTimeoutError as error:
            raise error.with_context(
                advice="create a new Producer, with a larger max_block_ms where the coordinator "
                "is slow; this one is closed"
            ) from error.__cause__

    async def warm_up_later(self, topics: Sequence[str]) -> None:
        """Call `warm_up` after a start in the background, which requests the topics in any case."""
        topics = tuple(topics)
        for topic in topics:
            self.metadata.add_topic(topic, self.loop.time())
        if self._connector is not None:
            await asyncio.wait([self._connector])
        if not self.closing and self.failure is None:
            await self.warm_up(topics, self.loop.time() + self.config.call_timeout_ms / 1000)

    async def warm_up(self, topics: Sequence[str], deadline: float) -> None:
        """Wait until every topic has metadata, then connect to their leaders."""
        topics = tuple(topics)  # an iterator, too, is read once
        for topic in topics:
            self.metadata.add_topic(topic, self.loop.time())
        self.metadata_task.wake()
        leaders: dict[int, None] = {}
        for topic in topics:
            meta = await self.metadata_task.waits.wait_for_topic(topic, deadline)
            leaders.update((p.leader, None) for p in meta.partitions if p.leader >= 0)
        now = self.loop.time()
        for node_id in leaders:
            self.client.maybe_connect(node_id, now)

    def uptime(self) -> float:
        """Return the seconds since the engine was made."""
        return self.loop.time() - self._started_at

    def buffer_wait_ratio(self) -> float:
        """Return the part of the time since the start in which calls waited for memory."""
        elapsed = self.uptime()
        return self.stats.buffer_wait_time / elapsed if elapsed > 0 else 0.0

    async def flush(self, timeout: float | None = None, *, raise_failures: bool = False) -> int:
        """Send everything appended so far without linger and wait for it.

        Returns the number of records still pending: 0 unless `timeout` seconds have passed. With
        `raise_failures`, raises `RecordsFailedError` if records have failed since the last such
        call.
        """
        began = self.loop.time()
        raised = self._failures_raised
        try:
            left = await self._flushing.flush(timeout)
        finally:
            self.stats.flush_time += self.loop.time() - began
        if raise_failures:
            self._raise_failures(raised)
        return left

    def _raise_failures(self, raised: int) -> None:
        """Raise if there are failures beyond the first `raised`.

        That is their number when the call began, so that each of several concurrent calls raises.
        """
        stats = self.stats
        failed = stats.records_failed - raised
        if not failed:
            return
        self._failures_raised = stats.records_failed
        last = stats.recent_failures[-1]
        partition = last.topic_partition.partition
        raise RecordsFailedError(
            f"{failed} record(s) have failed since the start or the last such flush(); the last: "
            f"{last.error}",
            count=failed,
            topic=last.topic_partition.topic,
            partition=None if partition == NO_PARTITION else partition,
        )

    async def close(self, timeout: float | None = None) -> None:
        """Refuse new records, deliver accepted ones, then end everything.

        Records undelivered after `timeout` seconds fail with `ProducerClosedError`. Of several
        waiting calls, the shortest timeout counts. Cancelling a call ends the delivery of records;
        cleaning up goes on, and another call waits for it.
        """
        if timeout == 0:
            self._cut_drain()
        if not self.closing:
            self._refuse_records()
        cut = None if timeout is None else self.loop.call_later(timeout, self._cut_drain)
        try:
            await self._closed()
        except asyncio.CancelledError:
            self._cut_drain()
            raise
        finally:
            if cut is not None:
                cut.cancel()

    def close_soon(self) -> None:
        """Close without a waiting caller, as the producer was dropped; callable in any thread."""
        try:
            if asyncio._get_running_loop() is self.loop:
                self.loop.call_soon(self._start_close)
            else:
                self.loop.call_soon_threadsafe(self._start_close)
        except RuntimeError:  # the loop is closed
            self.drop()

    def _start_close(self) -> None:
        if all(task.cancelling() for task in self.tasks()):
            # The loop is ending: asyncio.run() cancels all tasks and waits for no new one.
            self._encoder.close()
            if self.telemetry is not None:
                self.telemetry.close()
        else:
            self._close_task = start_later(self.loop, self.close(), name="aioproducer-close")

    def drop(self) -> None:
        """Give everything up at once: the loop is closed."""
        left = sum(batch.count for batch in self.accumulator.incomplete())
        if left and not self.closing:
            _log.error("%d record(s) are given up, as the event loop is closed", left)
        self.closing = True
        for batch in (*self.accumulator.incomplete(), *self.accumulator.pinned):
            batch.listeners.clear()  # native deliveries, which the garbage collector does not see
        self.client.drop()
        self._encoder.close()
        silence(self.tasks())

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the producer's pending tasks."""
        return tasks_named(self.loop, _TASKS)

    def _cut_drain(self) -> None:
        self._drain_is_cut = True
        if self._drain is not None:
            self._drain.cancel()

    def _refuse_records(self) -> None:
        self.closing = True
        error = ProducerClosedError("the producer is being closed")
        self.appender.close(error)
        self.pool.close(error)
        self.metadata_task.waits.fail(error)
        if not self._drain_is_cut:
            self.accumulator.closing = True
            self.accumulator.readiness.expedite()

    async def _closed(self) -> None:
        """Wait until a closer has ended, even if closers are cancelled meanwhile."""
        while True:
            if self._closer is None or _was_cut_off(self._closer):
                self._closer = start_later(self.loop, self._close(), name="aioproducer-close")
            try:
                return await asyncio.shield(self._closer)
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if not self._closer.cancelled() or (caller is not None and caller.cancelling()):
                    raise
                # A framework that cancels all tasks has cancelled the closer, not the caller.

    async def _close(self) -> None:
        """Do the work of `close`; it can be repeated after a cancellation."""
        try:
            if self.failure is None and not self._drain_is_cut:
                self._drain = start_later(
                    self.loop, self._finish_for_close(), name="aioproducer-drain"
                )
                (ended,) = await asyncio.gather(self._drain, return_exceptions=True)
                if isinstance(ended, Exception) and not isinstance(ended, KafkaError):
                    _log.error("close() goes on after an unexpected exception", exc_info=ended)
        finally:
            if self.telemetry is not None:
                self.telemetry.close()
            # The traceback of a cancelled task keeps the batches that flush() waited for.
            self._drain = None
            self.sender.abort(
                ProducerClosedError("the producer was closed before the record was acknowledged")
            )
            if self._connector is not None:
                self._connector.cancel()
                await asyncio.wait([self._connector])
            if self.transactions is not None:
                await self.transactions.stop()
            await self.sender_task.stop()
            await self.metadata_task.close()
            # Without acknowledgements, only this wait ensures that the last bytes are sent.
            in_peace = self.config.acks_value == 0 and not self._drain_is_cut
            await self.client.close(_CLOSE_GRACE_S if in_peace else 0)
            await asyncio.sleep(0)  # the ends of the last requests are handled by now
            self._end_what_is_left()
            self._encoder.close()
            self.interceptor_chain.close()
            if self._reporting is not None:
                self._reporting.close()
            await self._user_objects.close()
            await asyncio.sleep(0)  # what the end of the sender made fail is reported by now
            self._flush_logs()

    def _end_what_is_left(self) -> None:
        """End batches that an exception has left inconsistent; all transports are closed."""
        cause = self.sender_task.interrupt or self.failure
        if cause is None or not _is_interrupt(cause):
            self.memory_left = self.pool.total - self.pool.available
            if self.accumulator.is_idle and not self.memory_left:
                return
            cause = ProducerFailedError("an exception came in the middle of something")
            _log.error(
                "batches, or %d bytes of memory, were left when the producer was closed",
                self.memory_left,
                exc_info=cause,
            )
        self.sender_task.end_all(cause)

    def _flush_logs(self) -> None:
        """Write pending summaries of rate-limited logs."""
        now = self.loop.time()
        self.unretrieved.close()
        for each in (
            self.sender_task,
            self.metadata_task,
            self._flushing,
            self.transactions,
            self.telemetry,
            self.interceptor_chain,
            self._reporting,
        ):
            if each is not None:
                each.warnings.flush(now)
        self.warnings.flush(now)

    async def _finish_for_close(self) -> None:
        """Abort an open transaction, flush, and push telemetry a last time."""
        if self.transactions is not None:
            await self.transactions.end_for_close()
        await self.flush()
        if self.telemetry is not None:
            await self.telemetry.push_last()

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fail pending records; see `Producer.purge`."""
        error = RecordsPurgedError("the record was purged before it was acknowledged")
        count = self.sender.abort(error, queued=queued, in_flight=in_flight)
        self._on_event()
        return count

    def check_usable(self) -> None:
        """Raise the error of `send()` if the engine has failed or is closing."""
        if self.failure is not None:
            raise self.failure.with_context()
        if self.closing:
            raise ProducerClosedError

    # -- events ----------------------------------------------------------------------------------

    def _on_network_event(self) -> None:
        wake_ups = self._resumed_at_once
        if wake_ups is not None and wake_ups.run_now is not None:
            wake_ups.run_now()
        acknowledged, self.sender_task.acknowledged = self.sender_task.acknowledged, None
        if acknowledged is not None and not self.sender.waits_for_capacity(self.loop.time()):
            if self.accumulator.is_idle:  # else the next record is not likely to be sent directly
                self.appender.batch_appender.install_spare(acknowledged)
            return
        self._request_update_if_disconnected()
        self._on_event()

    def _request_update_if_disconnected(self) -> None:
        """Request metadata without a live connection: `health()` shows whether brokers are left."""
        if self.client.has_no_live_connections():  # Java's client asks after any disconnect
            self.metadata.request_update()

    def _on_event(self) -> None:
        """Set the next turn of every task after an event."""
        now = self.loop.time()
        self._set_timers(self.driver.after_event(now, self.client), now)

    def _after_sender_turn(self) -> None:
        """Set the next turns of the other tasks: a transaction may wait for batches that ended."""
        if self.transactions is not None:
            now = self.loop.time()
            turns = self.driver.after_event(now, self.client)
            self._set_timers(turns._replace(sender=inf), now)

    def _set_timers(self, turns: Turns, now: float) -> None:
        self.sender_task.turn_at(turns.sender, now)
        self.metadata_task.turn_at(turns.metadata, now)
        if self.transactions is not None:
            self.transactions.turn_at(turns.transactions, now)

    def _on_metadata_update(self) -> None:
        self._latencies.retain(self.metadata.cluster.nodes)
        old = are_old(self.client.highest_version(ApiKey.PRODUCE))
        self.appender.takes_headers = not old
        self.accumulator.growth_per_record = MESSAGE_GROWTH if old else 0
        cluster = self.metadata.cluster
        self.interceptor_chain.on_cluster(ClusterInfo(cluster.cluster_id, cluster.nodes))
        if self.metadata.last_answer_is_full:
            # Only a full response shows which topics have expired.
            self.appender.batch_appender.drop_expired_topics()
            self.stats.retain(cluster.topics)
            self.accumulator.drop_expired_topics()
        self.accumulator.on_metadata_update(self.loop.time())
        if self.appender.early is not None:
            self.appender.early.on_metadata()
            if not self.appender.early.topics:
                self.appender.early = None  # from now on `send()` waits for metadata as usual
        self._request_update_if_disconnected()  # the last connected broker may have left
        self._on_event()

    def _on_memory_wait(self) -> None:
        self.accumulator.readiness.expedite()
        self.sender_task.wake()

    def _on_task_end(self, cause: KafkaError | None) -> None:
        if cause is None or self.failure is not None:
            return
        self.failure = cause
        if not self.closing and not self._ends_with_the_loop():
            _log.error("%s", cause, exc_info=cause.__cause__)
        self.appender.close(cause)
        self.pool.close(cause)
        self.metadata_task.waits.fail(cause)
        if self._transactions is not None:
            self._transactions.fail(cause)
        if _is_interrupt(cause):
            self.sender_task.end_all(cause)
        else:
            self.sender.abort(cause)
        self.unretrieved.close_soon()

    def _ends_with_the_loop(self) -> bool:
        """Return whether `asyncio.run()` cancels all tasks, and no record is lost by that."""
        is_ending = all(task.cancelling() for task in tasks_named(self.loop))
        return is_ending and self.accumulator.is_idle

    def _on_producer_expired(self, expired: ExpiredProducer) -> None:
        self.warnings.warning(self.loop.time(), None, "expired producer id", "%s", expired)

    def _on_data_loss(self, lost: LostRecords) -> None:
        """Log the loss of acknowledged records at a broker, and schedule `on_data_loss`."""
        _log.error("%s", lost)
        if self.config.on_data_loss is not None:
            # Deferred: the callback may purge or send, but the sender is handling a response.
            where = lost.topic_partition
            self.loop.call_soon(self._report_data_loss, self.config.on_data_loss, where)

    @staticmethod
    def _report_data_loss(
        callback: Callable[[TopicPartition], object], topic_partition: TopicPartition
    ) -> None:
        try:
            callback(topic_partition)
        except HOOK_ERRORS:
            _log.exception("on_data_loss raised")
