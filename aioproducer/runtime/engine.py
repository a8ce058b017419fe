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
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aioproducer import log
from aioproducer.core.accumulator import RecordAccumulator
from aioproducer.core.buffer_pool import BufferPool
from aioproducer.core.metadata import Metadata
from aioproducer.core.partitioners import BuiltInPartitioner, NodeLatencies
from aioproducer.core.producer_batch import ProducerBatch
from aioproducer.core.sender import Sender
from aioproducer.core.stats import ProducerStats
from aioproducer.errors import KafkaError, ProducerClosedError, RecordsPurgedError
from aioproducer.net.client import NetworkClient
from aioproducer.net.dialer import Dialer
from aioproducer.partitioners import partition_chooser
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime import settings
from aioproducer.runtime.appender import RecordAppender
from aioproducer.runtime.memory import BufferMemory
from aioproducer.runtime.metadata_task import MetadataTask
from aioproducer.runtime.sender_task import SenderTask
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    from aioproducer.config import ProducerConfig

_log = log.get("runtime")

_FAREWELL_S = 1.0


def wall_clock_ms() -> int:
    """Milliseconds since the epoch: the timestamp of records that bring none."""
    return time.time_ns() // 1_000_000


class ProducerEngine:
    """Everything behind a started `Producer`.

    Args:
        config: the producer's options.
        loop: the loop it lives in.
        dialer: how connections are made; TCP when left out.
        rng: for jitter and partition choice; a seeded one makes a run repeatable.
        wall_ms: the clock for record timestamps, ms.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        dialer: Dialer | None = None,
        rng: random.Random | None = None,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.config = config
        self.loop = loop
        self.stats: ProducerStats = ProducerStats()
        self.failure: KafkaError | None = None
        self.closing: bool = False
        self._started_at = loop.time()
        self._closer: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[int] | None = None
        self._hurry = False
        self._warnings = log.RateLimitedLog(_log)
        self._make_core(rng or random.Random())
        self._make_runtime(dialer or settings.make_dialer(config), wall_ms)

    def _make_core(self, rng: random.Random) -> None:
        config = self.config
        self._rng = rng
        self.metadata: Metadata = settings.make_metadata(config, rng)
        self._latencies = NodeLatencies(config.partitioner_availability_timeout_ms / 1000)
        sequencer = settings.make_sequencer(config)
        self.pool: BufferPool = BufferPool(config.buffer_memory, config.batch_size, HEADER_SIZE)
        self.accumulator: RecordAccumulator = RecordAccumulator(
            settings.accumulator_settings(config),
            self.pool,
            self.metadata,
            sequencer,
            owner=self.loop,
            on_unretrieved=self._on_unretrieved,
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
        )

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
            self.client,
            config,
            loop=loop,
            on_update=self._on_metadata_update,
            on_end=self._on_task_end,
        )
        self._encoder = settings.make_encoder(config)
        self.memory: BufferMemory = BufferMemory(self.pool, loop, self.stats, self._on_memory_wait)
        self.sender_task: SenderTask = SenderTask(
            self.sender,
            self.client,
            self.metadata,
            self._encoder,
            acks=config.acks_value,
            request_timeout=config.request_timeout_ms / 1000,
            loop=loop,
            wake_metadata=self.metadata_task.wake,
            on_end=self._on_task_end,
        )
        self.appender: RecordAppender = RecordAppender(
            settings.appender_settings(config),
            accumulator=self.accumulator,
            memory=self.memory,
            metadata=self.metadata,
            waits=self.metadata_task,
            sender_task=self.sender_task,
            choose_partition=partition_chooser(config, self._rng),
            make_sticky=self._make_sticky,
            latencies=self._latencies,
            loop=loop,
            wall_ms=wall_ms,
            stats=self.stats,
        )

    def _make_sticky(self, topic: str) -> BuiltInPartitioner:
        return BuiltInPartitioner(
            topic,
            max(1, self.config.batch_size),
            adaptive=self.config.partitioner_adaptive_partitioning_enable,
            rng=self._rng,
        )

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the tasks and waits, at most `max_block_ms`, until a broker has answered.

        Raises:
            BootstrapError: no bootstrap server could be reached in time.
            AuthenticationError, UnsupportedVersionError: waiting longer would not help.
        """
        self.client.set_bootstrap(self.config.bootstrap)
        self.metadata_task.start()
        self.sender_task.start()
        try:
            await self.metadata_task.wait_for_bootstrap(
                self.loop.time() + self.config.max_block_ms / 1000
            )
        except BaseException:
            await self.close(0)
            raise

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

    def buffer_wait_ratio(self) -> float:
        """The share of the time since the start in which somebody waited for memory."""
        elapsed = self.loop.time() - self._started_at
        return min(1.0, self.stats.buffer_wait_time / elapsed) if elapsed > 0 else 0.0

    async def flush(self, timeout: float | None = None) -> int:
        """Sends everything appended so far without lingering and waits for it.

        Returns how many records are still undelivered: 0 unless `timeout` seconds ran out.
        """
        waiting = {object(): batch for batch in self.accumulator.incomplete()}
        if not waiting:
            return 0
        done = self.loop.create_future()

        def on_done(key: object) -> None:
            del waiting[key]
            if not waiting and not done.done():
                done.set_result(None)

        for key, batch in waiting.items():
            batch.add_listener(key, on_done)
        self.accumulator.begin_flush()
        self.sender_task.wake()
        try:
            async with asyncio.timeout(timeout):
                await done
        except TimeoutError:
            pass
        finally:
            self.accumulator.end_flush()
            for key, batch in waiting.items():
                batch.remove_listener(key)
        return sum(batch.count for batch in waiting.values())

    async def close(self, timeout: float | None = None) -> None:
        """Refuses new records, delivers what was accepted, then ends everything.

        What is undelivered after `timeout` seconds fails with `ProducerClosedError`. A caller that
        is cancelled cuts the time short; the rest is cleaned up all the same, and calling again
        waits for it.
        """
        if self._closer is None:
            self.closing = True
            error = ProducerClosedError("the producer is being closed")
            self.pool.close(error)
            self.metadata_task.fail_waiters(error)
            if timeout != 0:
                self.accumulator.closing = True
                self.accumulator.expedite()
            self._closer = self.loop.create_task(self._close(timeout), name="aioproducer-close")
        try:
            await asyncio.shield(self._closer)
        except asyncio.CancelledError:
            self._hurry = True
            if self._drain is not None:
                self._drain.cancel()
            raise

    async def _close(self, timeout: float | None) -> None:
        try:
            if timeout != 0 and self.failure is None and not self._hurry:
                self._drain = self.loop.create_task(self.flush(timeout))
                await asyncio.gather(self._drain, return_exceptions=True)
        finally:
            self.sender.abort(
                ProducerClosedError("the producer was closed before the record was acknowledged")
            )
            await self.sender_task.stop()
            await self.metadata_task.close()
            # Without acknowledgements nothing else tells that the last bytes have left.
            farewell = _FAREWELL_S if self.config.acks_value == 0 and timeout != 0 else 0
            await self.client.close(farewell)
            self._encoder.close()

    def purge(self, *, queued: bool, in_flight: bool) -> int:
        """Fails what waits; see `Producer.purge`."""
        error = RecordsPurgedError("the record was purged before it was acknowledged")
        return self.sender.abort(error, queued=queued, in_flight=in_flight)

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
        self.sender_task.wake()
        self.metadata_task.wake()

    def _on_metadata_update(self) -> None:
        self._latencies.retain(self.metadata.cluster.nodes)
        self.appender.forget_topics()
        self.accumulator.on_metadata_update(self.loop.time())
        self.sender_task.wake()

    def _on_memory_wait(self) -> None:
        self.accumulator.expedite()
        self.sender_task.wake()

    def _on_task_end(self, cause: KafkaError | None) -> None:
        if cause is None or self.failure is not None:
            return
        self.failure = cause
        if not self.closing:
            _log.error("%s", cause, exc_info=cause.__cause__)
        self.pool.close(cause)
        self.metadata_task.fail_waiters(cause)
        self.sender.abort(cause)

    def _on_data_loss(self, topic_partition: TopicPartition) -> None:
        """A broker no longer holds what it has acknowledged."""
        _log.error("%s-%d: the broker has lost acknowledged records", *topic_partition)
        if self.config.on_data_loss is not None:
            try:
                self.config.on_data_loss(topic_partition)
            except Exception:
                _log.exception("on_data_loss raised")

    def _on_unretrieved(self, batch: ProducerBatch) -> None:
        """A failed batch is being forgotten with deliveries nobody looked at.

        Garbage is collected in whatever thread comes by: the loop does the rest.
        """
        outcome = batch.outcome
        if outcome is None or outcome.error is None:
            return
        count = batch.count - batch.retrieved
        try:
            self.loop.call_soon_threadsafe(
                self._report_failure, batch.topic_partition, count, outcome.error
            )
        except RuntimeError:  # the loop is closed
            self._report_failure(batch.topic_partition, count, outcome.error)

    def _report_failure(
        self, topic_partition: TopicPartition, count: int, error: KafkaError
    ) -> None:
        self.stats.unretrieved_failures += count
        self._warnings.warning(
            self.loop.time(),
            error.node_id,
            type(error).__name__,
            "%d delivery(ies) failed and nobody looked: %s",
            count,
            error,
        )
        if self.config.on_delivery_error is not None:
            try:
                self.config.on_delivery_error(topic_partition, count, error)
            except Exception:
                _log.exception("on_delivery_error raised")
