"""ProducerEngine: one started producer's machinery, wired together and taken apart.

Owns: the life of the tasks and what connects the rooms (core decides, net moves bytes). Must not
know: users' argument shapes, serializers; that is the facade's.

    start() -> running -> close() -> closed
                  \\---- sender task ends by itself ---> failed

Invariants
- After `close()` returned or `start()` raised, no task, socket, timer or waiter is left.
- When the sender task ends, for whatever reason, everything pending fails with that reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer._util import log
from aioproducer.core.batching.accumulator import RecordAccumulator
from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.partitioners import BuiltInPartitioner, Neighbourhood, NodeLatencies
from aioproducer.core.driver import Driver, Turns
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.reasons import Reason
from aioproducer.core.sending.sender import Sender
from aioproducer.core.stats import ProducerStats
from aioproducer.core.transactions.coordinator_requests import CoordinatorRequests
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
from aioproducer.net.client import NetworkClient
from aioproducer.net.dial.dialer import Dialer
from aioproducer.partitioners import partition_chooser
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.records.message_set import MESSAGE_GROWTH
from aioproducer.runtime import settings
from aioproducer.runtime.delivery import WakeUps
from aioproducer.runtime.delivery.unhandled import UnretrievedFailures
from aioproducer.runtime.legacy_brokers import are_old, refuse_what_they_lack
from aioproducer.runtime.observability.interceptors import Interception
from aioproducer.runtime.observability.registry import MetricsRegistry
from aioproducer.runtime.observability.telemetry import TelemetryReporter
from aioproducer.runtime.send.fast_path import wall_clock_ms
from aioproducer.runtime.send.memory import BufferMemory
from aioproducer.runtime.send.whole_batch import WholeBatchAppender
from aioproducer.runtime.tasks.closing import UserObjects, silence, tasks_named
from aioproducer.runtime.tasks.flush import Flushing
from aioproducer.runtime.tasks.metadata import MetadataTask
from aioproducer.runtime.tasks.sender import SenderTask
from aioproducer.runtime.tasks.transactions import TransactionTask
from aioproducer.types import TopicPartition
from aioproducer.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig
    from aioproducer.core.sending.acknowledged import ForgottenProducer, LostRecords
    from aioproducer.runtime.observability.reporters import MetricsReporting

_log = log.get("runtime")

_FAREWELL_S = 1.0
_TASKS = "aioproducer-"
"""How the names of a producer's tasks begin."""


def _nothing() -> None:
    """Where there is nothing to do."""


def _is_interrupt(cause: KafkaError) -> bool:
    """Whether a task ended by an exception in the middle of something, not by a cancellation."""
    return isinstance(cause, ProducerFailedError) and cause.__cause__ is not None


def _was_cut_off(closer: asyncio.Task[None]) -> bool:
    """Whether a closer was cancelled, or ended by an exception such as KeyboardInterrupt."""
    return closer.done() and (closer.cancelled() or closer.exception() is not None)


class ProducerEngine:
    """Everything behind a started `Producer`.

    Args:
        config: the producer's options.
        loop: the loop it lives in.
        dialer: how connections are made; TCP when left out.
        rng: for jitter and partition choice; a seeded one makes a run repeatable.
        wall_ms: the clock for record timestamps, ms.
        registry: what is pushed as telemetry and told to reporters; the producer's own metrics
            when left out.
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
        """Bytes that had not come back when everything had ended, before they were written off."""
        self._started_at = loop.time()
        self._closer: asyncio.Task[None] | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[None] | None = None
        self._connector: asyncio.Task[None] | None = None
        self._start_error: KafkaError | None = None
        self._hurry = False
        self._failures_raised = 0
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)
        self._make_core(rng or random.Random())
        self._make_runtime(dialer or settings.make_dialer(config), wall_ms)
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
            on_forgotten=self._on_forgotten,
            transactions=self._transactions,
        )
        self.driver: Driver = Driver(
            self.sender, settings.make_metadata_requests(config, self.metadata)
        )

    def _topic_ids(self) -> Mapping[str, UUID]:
        return {name: topic.topic_id for name, topic in self.metadata.cluster.topics.items()}

    def _make_runtime(self, dialer: Dialer, wall_ms: Callable[[], int]) -> None:
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
        self._encoder = settings.make_encoder(config)
        self.interception: Interception = Interception(
            config.interceptor_classes,
            (config.key_serializer, config.value_serializer, *config.metric_reporters),
            loop,
        )
        self._user_objects = UserObjects(config)
        # Interceptors are told before whoever awaits a record, as in Java.
        in_turn = self.interception.sees_records
        self._before_answer = _nothing if in_turn else self._wake_ups.hold
        self._resume = _nothing if in_turn else self._wake_ups.run_now
        self.memory: BufferMemory = BufferMemory(self.pool, loop, self.stats, self._on_memory_wait)
        self.sender_task: SenderTask = SenderTask(
            self.sender,
            self.client,
            self.metadata,
            self._encoder,
            client_id=config.client_id,
            acks=config.acks_value,
            request_timeout=config.request_timeout_ms / 1000,
            loop=loop,
            after_turn=self._after_sender_turn,
            on_event=self._on_event,
            on_end=self._on_task_end,
            transactions=self._transactions,
            after_dispatch=None if config.metadata_max_age_ms else self.metadata.outdate,
            before_answer=self._before_answer,
        )
        self.appender: WholeBatchAppender = WholeBatchAppender(
            settings.appender_settings(config),
            accumulator=self.accumulator,
            memory=self.memory,
            metadata=self.metadata,
            waits=self.metadata_task,
            sender_task=self.sender_task,
            choose_partition=partition_chooser(
                config.partitioner, self._rng, ignore_keys=config.partitioner_ignore_keys
            ),
            make_sticky=self._make_sticky,
            latencies=self._latencies,
            loop=loop,
            wall_ms=wall_ms,
            stats=self.stats,
        )
        self._flushing = Flushing(self.accumulator, self.metadata, loop, self.sender_task.wake)
        self.transactions: TransactionTask | None = self._make_transaction_task()
        if self.transactions is not None:
            self.appender.admit_by(self.transactions)

    def _make_transaction_task(self) -> TransactionTask | None:
        if self._transactions is None:
            return None
        dialogue = settings.make_dialogue(self.config, self._transactions, self._rng)
        requests = self.driver.transactions = CoordinatorRequests(
            self._transactions, dialogue, self.metadata, self.accumulator
        )
        return TransactionTask(
            self._transactions,
            dialogue,
            requests,
            self.client,
            self.accumulator,
            patience=self.config.call_timeout_ms / 1000,
            bound=self.config.call_bound,
            request_timeout=self.config.request_timeout_ms / 1000,
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
            request_timeout=config.request_timeout_ms / 1000,
            rng=self._rng,
        )

    def _make_reporting(self, registry: MetricsRegistry) -> MetricsReporting | None:
        if not self.config.metric_reporters:
            return None
        # Imported by those who have some.
        from aioproducer.runtime.observability.reporters import MetricsReporting

        return MetricsReporting(
            self.config.metric_reporters, lambda: registry.live(self), self.loop
        )

    def _make_sticky(self, topic: str) -> BuiltInPartitioner:
        return BuiltInPartitioner(
            topic,
            max(1, self.config.batch_size),
            adaptive=self.config.partitioner_adaptive_partitioning_enable,
            rng=self._rng,
            neighbourhood=self._neighbourhood(),
        )

    def _neighbourhood(self) -> Neighbourhood:
        config = self.config
        rack = config.client_rack if config.partitioner_rack_aware else ""
        return Neighbourhood(rack, lambda: self.metadata.cluster.nodes)

    # -- life ------------------------------------------------------------------------------------

    async def start(self, *, init_transactions: bool = True) -> None:
        """Starts the tasks and waits until a broker has answered.

        That takes at most `call_timeout_ms`, or `bootstrap_resolve_timeout_ms` if that is longer. A
        transactional producer is initialized as well, unless told otherwise; that takes at most
        another `call_timeout_ms`.

        Raises:
            BootstrapError: no bootstrap server could be reached in time.
            AuthenticationError, UnsupportedVersionError: waiting longer would not help.
        """
        self._begin(in_background=False)
        patience_ms = max(self.config.call_timeout_ms, self.config.bootstrap_resolve_timeout_ms)
        try:
            await self.metadata_task.wait_for_bootstrap(self.loop.time() + patience_ms / 1000)
            refuse_what_they_lack(self.config, self.client.highest_version(ApiKey.PRODUCE))
            if self.transactions is not None:
                self.transactions.start()
                if init_transactions:
                    await self._init_transactions(self.transactions)
        except BaseException:
            await self.close(0)
            raise
        if self.telemetry is not None and not self.closing:
            self.telemetry.start()

    def start_in_background(self, *, init_transactions: bool = True) -> None:
        """Starts the tasks, one of which does the rest of `start` however long that takes."""
        if self.transactions is None:
            self._accept_early()
        self._begin(in_background=True)
        self._connector = self.loop.create_task(
            self._connect(init_transactions), name="aioproducer-connect"
        )
        self._connector.add_done_callback(self._on_connector_done)

    def _accept_early(self) -> None:
        """Lets `send()` accept records before their topics are known."""
        early = self.appender.early_records()
        self.appender.early = early
        self.metadata_task.want_also(early.topics)
        self.metadata_task.on_refusal = early.fail

    def _begin(self, *, in_background: bool) -> None:
        if self._reporting is not None:
            self._reporting.start(self.config)
        self.client.set_bootstrap(self.config.bootstrap)
        self.metadata_task.start(in_background=in_background)
        self.sender_task.start()

    async def _connect(self, init_transactions: bool) -> None:
        await self.metadata_task.wait_for_bootstrap(None)
        refuse_what_they_lack(self.config, self.client.highest_version(ApiKey.PRODUCE))
        if self.transactions is not None:
            self.transactions.start()
            if init_transactions:
                await self._keep_initializing(self.transactions)
        if self.telemetry is not None and not self.closing:
            self.telemetry.start()

    async def _keep_initializing(self, transactions: TransactionTask) -> None:
        """Initializes a transactional producer, however long the coordinator takes."""
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
                _log.error("the transactional producer could not be initialized: %s", error)
                return None

    def _on_connector_done(self, task: asyncio.Task[None]) -> None:
        cause: KafkaError | None = None
        if task.cancelled():
            cause = ProducerFailedError("the producer's start was cancelled from outside")
        elif isinstance(error := task.exception(), KafkaError):
            cause = error
        elif error is not None:
            cause = ProducerFailedError(f"the producer's start ended unexpectedly: {error!r}")
            cause.__cause__ = error
        if not self.closing:
            self._on_task_end(cause)

    @property
    def is_connecting(self) -> bool:
        """Whether a start in the background has not come to its end."""
        return self._connector is not None and not self._connector.done()

    @property
    def obstacle(self) -> KafkaError | None:
        """What keeps a start in the background from its end; None without such a start."""
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
        """Lets no call wait for a start in the background: they raise `NotConnectedError`."""
        self.appender.early = None
        self.appender.refuse_unconnected = self._raise_obstacle

    def _raise_obstacle(self) -> None:
        if self.obstacle is not None:
            raise self.obstacle

    async def wait_until_started(self, *, initialized: bool = True) -> None:
        """Waits for a start in the background, at most `call_timeout_ms`.

        Args:
            initialized: whether to wait until a transactional producer is initialized, too.

        Raises:
            BootstrapError: no broker has answered in time.
            KafkaError: why waiting longer would not help.
        """
        if self._connector is None:
            return
        if self.appender.refuse_unconnected is not None:
            self.appender.refuse_unconnected()
        deadline = self.loop.time() + self.config.call_timeout_ms / 1000
        await self.metadata_task.wait_for_bootstrap(deadline)
        if not initialized:
            return
        await asyncio.wait([self._connector], timeout=max(0, deadline - self.loop.time()))
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
        """`warm_up` after a start in the background, which asks for the topics in any case."""
        for topic in topics:
            self.metadata.add_topic(topic, self.loop.time())
        if self._connector is not None:
            await asyncio.wait([self._connector])
        if not self.closing and self.failure is None:
            await self.warm_up(topics, self.loop.time() + self.config.call_timeout_ms / 1000)

    async def warm_up(self, topics: Sequence[str], deadline: float) -> None:
        """Waits until every topic is known, then connects to their leaders."""
        for topic in topics:
            self.metadata.add_topic(topic, self.loop.time())
        self.metadata_task.wake()
        leaders: dict[int, None] = {}
        for topic in topics:
            meta = await self.metadata_task.wait_for_topic(topic, deadline)
            leaders.update((p.leader, None) for p in meta.partitions if p.leader >= 0)
        now = self.loop.time()
        for node_id in leaders:
            self.client.maybe_connect(node_id, now)

    def uptime(self) -> float:
        """Seconds since the engine was made."""
        return self.loop.time() - self._started_at

    def buffer_wait_ratio(self) -> float:
        """The share of the time since the start in which somebody waited for memory."""
        elapsed = self.uptime()
        return min(1.0, self.stats.buffer_wait_time / elapsed) if elapsed > 0 else 0.0

    async def flush(self, timeout: float | None = None, *, raise_failures: bool = False) -> int:
        """Sends everything appended so far without lingering and waits for it.

        Returns how many records are still pending: 0 unless `timeout` seconds ran out. May raise if
        records have failed since the last call that did or could.
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

        That is their number when the call began: of calls at the same time each raises.
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
        """Refuses new records, delivers what was accepted, then ends everything.

        What is undelivered after `timeout` seconds fails with `ProducerClosedError`; the shortest
        one counts when several calls wait. A caller that is cancelled cuts the time short; the
        rest is cleaned up all the same, and calling again waits for it.
        """
        if timeout == 0:
            self._hurry_up()
        if not self.closing:
            self._refuse_records()
        hurry = None if timeout is None else self.loop.call_later(timeout, self._hurry_up)
        try:
            await self._closed()
        except asyncio.CancelledError:
            self._hurry_up()
            raise
        finally:
            if hurry is not None:
                hurry.cancel()

    def close_soon(self) -> None:
        """Closes without a waiting caller: the producer was dropped. Call it in any thread."""
        try:
            if asyncio._get_running_loop() is self.loop:
                self.loop.call_soon(self._start_close)
            else:
                self.loop.call_soon_threadsafe(self._start_close)
        except RuntimeError:  # the loop is closed
            self.drop()

    def _start_close(self) -> None:
        if all(task.cancelling() for task in tasks_named(self.loop, _TASKS)):
            # The loop comes to its end: asyncio.run() cancels all tasks and waits for no new one.
            self._encoder.close()
            if self.telemetry is not None:
                self.telemetry.close()
        else:
            self._close_task = self.loop.create_task(self.close(), name="aioproducer-close")

    def drop(self) -> None:
        """Gives everything up at once: the loop is closed."""
        left = sum(batch.count for batch in self.accumulator.incomplete())
        if left and not self.closing:
            _log.error("%d record(s) are given up, as the event loop is closed", left)
        self.closing = True
        self.client.drop()
        self._encoder.close()
        self.silence()

    def silence(self) -> None:
        """Keeps asyncio from reporting tasks that will not run again."""
        silence(tasks_named(self.loop, _TASKS))

    def _hurry_up(self) -> None:
        self._hurry = True
        if self._drain is not None:
            self._drain.cancel()

    def _refuse_records(self) -> None:
        self.closing = True
        error = ProducerClosedError("the producer is being closed")
        self.appender.close(error)
        self.pool.close(error)
        self.metadata_task.fail_waiters(error)
        if not self._hurry:
            self.accumulator.closing = True
            self.accumulator.expedite()

    async def _closed(self) -> None:
        """Waits until a closer has come to its end, whoever cancels them meanwhile."""
        while True:
            if self._closer is None or _was_cut_off(self._closer):
                self._closer = self.loop.create_task(self._close(), name="aioproducer-close")
            try:
                return await asyncio.shield(self._closer)
            except asyncio.CancelledError:
                caller = asyncio.current_task()
                if not self._closer.cancelled() or (caller is not None and caller.cancelling()):
                    raise
                # Not the caller was cancelled but the closer, by a framework that takes all tasks.

    async def _close(self) -> None:
        """What can be repeated when it was cancelled half-way."""
        try:
            if self.failure is None and not self._hurry:
                self._drain = self.loop.create_task(self._settle(), name="aioproducer-drain")
                await asyncio.gather(self._drain, return_exceptions=True)
        finally:
            if self.telemetry is not None:
                self.telemetry.close()
            # A cancelled task keeps its traceback, and that the batches flush() waited for.
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
            # Without acknowledgements nothing else tells that the last bytes have left.
            in_peace = self.config.acks_value == 0 and not self._hurry
            await self.client.close(_FAREWELL_S if in_peace else 0)
            await asyncio.sleep(0)  # the ends of the last requests are handled by now
            self._end_what_is_left()
            self._encoder.close()
            self.interception.close()
            if self._reporting is not None:
                self._reporting.close()
            await self._user_objects.close()
            await asyncio.sleep(0)  # what the end of the sender made fail is reported by now
            self._flush_logs()

    def _end_what_is_left(self) -> None:
        """Ends what an exception has left in the middle of something: no transport is open."""
        cause = self.sender_task.interrupt or self.failure
        if cause is None or not _is_interrupt(cause):
            self.memory_left = self.pool.total - self.pool.available
            if self.accumulator.quiet and not self.memory_left:
                return
            cause = ProducerFailedError("an exception came in the middle of something")
            _log.error(
                "batches, or %d bytes of memory, were left when the producer was closed",
                self.memory_left,
                exc_info=cause,
            )
        self.sender_task.end_all(cause)

    def _flush_logs(self) -> None:
        """Writes what the logs left out so far."""
        now = self.loop.time()
        self.unretrieved.close()
        for each in (
            self.sender_task,
            self.metadata_task,
            self._flushing,
            self.transactions,
            self.telemetry,
            self.interception,
            self._reporting,
        ):
            if each is not None:
                each.warnings.flush(now)
        self.warnings.flush(now)

    async def _settle(self) -> None:
        """Waits for what is to be done before the end: an open transaction is aborted."""
        if self.transactions is not None:
            await self.transactions.end_for_close()
        await self.flush()
        if self.telemetry is not None:
            await self.telemetry.say_farewell()

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fails what waits; see `Producer.purge`."""
        error = RecordsPurgedError("the record was purged before it was acknowledged")
        count = self.sender.abort(error, queued=queued, in_flight=in_flight)
        self._on_event()
        return count

    def check_usable(self) -> None:
        """Raises what `send()` must raise when the engine takes no records any more."""
        if self.failure is not None:
            raise self.failure.with_context()
        if self.closing:
            raise ProducerClosedError(
                "the producer is closed", advice="create a new producer to send more"
            )

    # -- events ----------------------------------------------------------------------------------

    def _on_network_event(self) -> None:
        self._resume()
        if self.client.is_deserted():
            # As Java's client after any disconnect; `health()` then tells whether brokers are left.
            self.metadata.request_update(self.loop.time())
        self._on_event()
        self.appender.placing.lend_spare()

    def _on_event(self) -> None:
        """Something has happened: everybody's next turn is when the driver says."""
        now = self.loop.time()
        self._set_timers(self.driver.after_event(now, self.client), now)

    def _after_sender_turn(self) -> None:
        """Batches may have ended for which a transaction waits; to the sender that is no event."""
        if self.transactions is not None:
            now = self.loop.time()
            turns = self.driver.after_event(now, self.client)
            self._set_timers(turns._replace(sender=inf), now)

    def _set_timers(self, turns: Turns, now: float) -> None:
        self.sender_task.turn_at(turns.sender, now)
        self.metadata_task.turn_at(turns.metadata, now)
        if self.transactions is not None:
            self.transactions.turn_at(turns.transactions, now)

    @property
    def timers(self) -> Turns:
        """Until when each task sleeps, unless something happens before; -inf during a turn."""
        tasks = self.sender_task, self.metadata_task, self.transactions
        return Turns(*(-inf if task is None else task.sleeping_until for task in tasks))

    def _on_metadata_update(self) -> None:
        self._latencies.retain(self.metadata.cluster.nodes)
        old = are_old(self.client.highest_version(ApiKey.PRODUCE))
        self.appender.takes_headers = not old
        self.accumulator.growth_per_record = MESSAGE_GROWTH if old else 0
        cluster = self.metadata.cluster
        self.interception.on_cluster(ClusterInfo(cluster.cluster_id, cluster.nodes))
        if self.metadata.last_answer_is_full:
            # Reads every topic, as the answer does; what expired has no other way to be known.
            self.appender.placing.forget_topics()
            self.stats.retain(cluster.topics)
            self.accumulator.forget_topics()
        self.accumulator.on_metadata_update(self.loop.time())
        if self.appender.early is not None:
            self.appender.early.on_metadata()
            if not self.appender.early.topics:
                self.appender.early = None  # the cluster is known: the usual waits are bounded
        self._on_event()

    def _on_memory_wait(self) -> None:
        self.accumulator.expedite()
        self.sender_task.wake()

    def _on_task_end(self, cause: KafkaError | None) -> None:
        if cause is None or self.failure is not None:
            return
        self.failure = cause
        if not self.closing and not self._ends_with_the_loop():
            _log.error("%s", cause, exc_info=cause.__cause__)
        self.appender.close(cause)
        self.pool.close(cause)
        self.metadata_task.fail_waiters(cause)
        if self._transactions is not None:
            self._transactions.fail(cause)
        if _is_interrupt(cause):
            self.sender_task.end_all(cause)
        else:
            self.sender.abort(cause)
        self.unretrieved.close_soon()

    def _ends_with_the_loop(self) -> bool:
        """Whether `asyncio.run()` cancels everything, and no record is lost by that."""
        is_ending = all(task.cancelling() for task in tasks_named(self.loop))
        return is_ending and self.accumulator.quiet

    def _on_forgotten(self, forgotten: ForgottenProducer) -> None:
        self.warnings.warning(self.loop.time(), None, "forgotten producer", "%s", forgotten)

    def _on_data_loss(self, lost: LostRecords) -> None:
        """A broker no longer holds what it has acknowledged."""
        _log.error("%s", lost)
        if self.config.on_data_loss is not None:
            # Later: the user may purge or send, and the sender is in the midst of an answer.
            where = lost.topic_partition
            self.loop.call_soon(self._tell_data_loss, self.config.on_data_loss, where)

    @staticmethod
    def _tell_data_loss(
        callback: Callable[[TopicPartition], object], topic_partition: TopicPartition
    ) -> None:
        try:
            callback(topic_partition)
        except Exception:
            _log.exception("on_data_loss raised")
