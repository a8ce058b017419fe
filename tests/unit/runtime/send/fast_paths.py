"""A producer without a cluster: both paths of `send()` over a real accumulator, and no sender."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack, contextmanager
from random import Random
from types import SimpleNamespace
from unittest import mock
from uuid import UUID

from aioproducer import Producer
from aioproducer._util.backoff import ExponentialBackoff
from aioproducer.client.lifecycle import State, warned_of_by_owner
from aioproducer.client.producer import NATIVE_SENDS
from aioproducer.core.batching.accumulator import AccumulatorSettings, RecordAccumulator
from aioproducer.core.batching.batch import BatchOutcome, ProducerBatch
from aioproducer.core.batching.buffer_pool import BufferPool
from aioproducer.core.batching.partitioners import (
    BuiltInPartitioner,
    NodeLatencies,
    StickyPartitioners,
)
from aioproducer.core.metadata.metadata import Metadata
from aioproducer.core.sending.idempotence import Sequencer
from aioproducer.metrics.totals import ProducerStats
from aioproducer.partitioners import partition_chooser
from aioproducer.records.batch import HEADER_SIZE
from aioproducer.runtime import engine
from aioproducer.runtime.delivery import WakeUps
from aioproducer.runtime.observability.interceptors import InterceptorChain
from aioproducer.runtime.send import batch_appender, fast_path
from aioproducer.runtime.send.appender import RecordAppender
from aioproducer.runtime.send.batch_appender import SendPath
from aioproducer.runtime.send.memory import BufferMemory
from aioproducer.runtime.send.validation import PartitionChoice, RecordCheck
from aioproducer.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NOW_MS = 1_700_000_000_000


class Waits:
    """Metadata that never come."""

    async def wait_for_topic(self, topic, deadline):
        raise TimeoutError(topic)

    async def wait_for_partition(self, topic, partition, deadline):
        raise TimeoutError(topic)


class Bench:
    """A started producer whose batches go nowhere until `complete_oldest` ends one.

    Args:
        fast: whether the fast path is open.
        options: of `ProducerConfig`.
    """

    def __init__(self, *, fast: bool = True, producer_type=Producer, **options) -> None:
        # It is dropped in a running state, as no engine closes it.
        self.producer = warned_of_by_owner(producer_type(bootstrap_servers="nowhere:1", **options))
        self.config = config = self.producer.config
        self.loop = asyncio.get_running_loop()
        self.now_ms = NOW_MS
        self.metadata = Metadata(
            max_age_s=300,
            max_idle_s=300,
            backoff=ExponentialBackoff(0.1, 1.0),
            allow_auto_create=True,
            rng=Random(1),
        )
        self.pool = BufferPool(
            config.buffer_memory, config.batch_size, HEADER_SIZE, config.buffer_max_records
        )
        self.accumulator = RecordAccumulator(
            AccumulatorSettings(
                config.batch_size,
                5.0,
                120.0,
                config.max_request_size,
                False,
                config.batch_max_records,
            ),
            self.pool,
            self.metadata,
            Sequencer(5, idempotent=False),
            owner=WakeUps(self.loop),
        )
        self.batches: dict[ProducerBatch, None] = {}
        self.sender_task = SimpleNamespace(
            sleeping_until=float("-inf"),
            turn_at=lambda at, now: None,
            give_way=lambda: None,
            try_send_directly=lambda batch, now: False,
        )
        self.appender = self._appender()
        self.fast_path = self.appender.fast_path
        if not fast:
            self.fast_path.close()
        self.producer._engine = SimpleNamespace(
            appender=self.appender,
            failure=None,
            is_connecting=False,
            closing=False,
            close_soon=lambda: None,
            interceptor_chain=InterceptorChain((), (), self.loop),
        )
        self.producer._loop = self.loop
        self.producer._state = State.RUNNING
        self.producer._opened(self.producer._engine)

    def _appender(self) -> RecordAppender:
        config, stats, rng = self.config, ProducerStats(), Random(2)
        self.stats = stats
        choose = partition_chooser(
            config.partitioner, rng, ignore_keys=config.partitioner_ignore_keys
        )
        path = SendPath(
            config=config,
            loop=self.loop,
            wall_ms=lambda: self.now_ms,
            metadata=self.metadata,
            waits=Waits(),
            check=RecordCheck(
                config.max_request_size, self.pool, PartitionChoice(choose), lambda: self.now_ms
            ),
            sticky_partitioners=StickyPartitioners(
                # Not adaptive: that reads the real clock, which no two runs share.
                lambda: BuiltInPartitioner(config.batch_size, False, rng),
                self.accumulator,
                NodeLatencies(0),
            ),
            accumulator=self.accumulator,
            memory=BufferMemory(self.pool, self.loop, stats, lambda: None),
            sender_task=self.sender_task,
            stats=stats,
        )
        return RecordAppender(path)

    def know(self, **partition_counts: int) -> None:
        """New metadata: these topics, led by one node."""
        for name in partition_counts:
            self.metadata.add_topic(name, self.loop.time())
        self.metadata.on_response(
            MetadataResponse(
                brokers=[MetadataResponseBroker(0, "nowhere", 1, None)],
                cluster_id="c",
                controller_id=0,
                topics=[
                    MetadataResponseTopic(
                        name=name,
                        topic_id=UUID(int=7),
                        partitions=[
                            MetadataResponsePartition(
                                partition_index=index, leader_id=0, leader_epoch=1
                            )
                            for index in range(count)
                        ],
                    )
                    for name, count in partition_counts.items()
                ],
            ),
            self.loop.time(),
        )

    def incomplete(self) -> list[ProducerBatch]:
        return list(self.accumulator.incomplete())

    def complete_oldest(self, base_offset: int = 0) -> ProducerBatch | None:
        """Drains and acknowledges the oldest batch; returns it."""
        for batch in self.incomplete():
            queue = self.accumulator.queue(*batch.topic_partition)
            batch.close()
            queue.batches.remove(batch)
            self.accumulator.complete(batch, BatchOutcome(base_offset=base_offset))
            return batch
        return None

    def contents(self) -> list[tuple[str, int, bytes, int, int, int]]:
        """The records of the batches, oldest first."""
        return [
            (
                *batch.topic_partition,
                bytes(batch.builder.body()),
                batch.builder.count,
                batch.builder.base_timestamp,
                batch.builder.max_timestamp,
            )
            for batch in self.incomplete()
        ]

    def end(self) -> None:
        """Leave nothing that would complain when it is collected."""
        self.producer._state = State.CLOSED


@contextmanager
def form(fast_path_module, delivery_module):
    """Producers made meanwhile use this form of fast path, calls and delivery."""
    with ExitStack() as stack:
        for target, name, value in (
            (batch_appender, "FastPath", fast_path_module.FastPath),
            (fast_path, "install_native_send", fast_path_module.install_native_send),
            (engine, "WakeUps", delivery_module.WakeUps),
            (sys.modules[__name__], "WakeUps", delivery_module.WakeUps),
            *((Producer, name, function) for name, function, _ in NATIVE_SENDS),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield
