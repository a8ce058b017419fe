"""Tests on virtual time, with brokers and a network that use the same clock.

Invariants
- Nothing waits: `asyncio.sleep(3600)` and a timeout of two minutes end at once, in their order.
- The producer is the real one; only connections, clock and random numbers are replaced.
- A test in which nothing can happen any more ends with `StuckError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from aioproducer._util.arguments import seconds_of
from aioproducer.client.producer import Producer
from aioproducer.records.batch import DecodedRecord, read_batches
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.faults import FaultScript
from aioproducer.testing.world.cluster import ReplicationTiming
from aioproducer.testing.world.faults import revive
from aioproducer.testing.world.loop import StuckError, VirtualLoop
from aioproducer.testing.world.producer import SimProducer
from aioproducer.testing.world.spec import Chance, WorldSpec
from aioproducer.testing.world.world import SimWorld

__all__ = ["StuckError", "VirtualKafka", "run_virtual"]

T = TypeVar("T")

_WINDOW = 256 * 1024


class VirtualKafka:
    """A Kafka cluster on virtual time; `run_virtual` makes one.

    Attributes:
        bootstrap_servers: what producers are given; the names exist there only.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        brokers: int,
        topics: Mapping[str, int | TopicSpec],
        latency_ms: float,
        seed: int,
    ) -> None:
        nodes = tuple(range(1, brokers + 1))
        self.bootstrap_servers: str = ",".join(f"broker-{node}.sim:9092" for node in nodes)
        spec = WorldSpec(
            nodes=nodes,
            topics={
                name: TopicSpec(spec) if isinstance(spec, int) else spec
                for name, spec in topics.items()
            },
            options={"bootstrap_servers": self.bootstrap_servers},
            timing=ReplicationTiming(),
            window=_WINDOW,
            base_latency_s=latency_ms / 1000,
            unclean_elections=False,
        )
        self.world: SimWorld = SimWorld(Chance(seed), loop, spec)
        self._loop = loop
        self._producers = 0

    @property
    def now(self) -> float:
        """Virtual seconds since the test began."""
        return self._loop.time()

    @property
    def faults(self) -> FaultScript:
        """The faults, to be set as `faults.next("produce").answers(...)`."""
        return FaultScript(self.world.cluster.faults)

    def producer(self, **options: Any) -> Producer:
        """Return a producer for this cluster, not started; it can only be used in this test."""
        self._producers += 1
        return SimProducer(self.world, purpose=f"producer {self._producers}", **options)

    def create_topic(self, name: str, topic: int | TopicSpec = 1) -> None:
        """Add a topic with a number of partitions, or as the `TopicSpec` says."""
        self.world.cluster.create_topic(name, TopicSpec(topic) if isinstance(topic, int) else topic)

    def records(self, topic: str, partition: int = 0) -> list[DecodedRecord]:
        """Return the log of a partition, transactions' markers left out."""
        found = self.world.cluster.partition(topic, partition)
        if found is None:
            raise LookupError(f"there is no partition {topic}-{partition}")
        return [
            record
            for stored in found.log.batches
            for batch in read_batches(stored.data)
            if not batch.is_control
            for record in batch.records()
        ]

    def stop_broker(self, node_id: int) -> None:
        """Kill a broker: its connections are reset, and the controller notices it after a while."""
        self.world.cluster.crash(node_id)
        self.world.brokers[node_id].die(silent=False)

    def unplug_broker(self, node_id: int) -> None:
        """Drop all packets of a broker: no connection is closed, and no request is answered."""
        self.world.cluster.crash(node_id)
        self.world.brokers[node_id].die(silent=True)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped or unplugged broker, with its log."""
        revive(self.world, node_id)


def run_virtual(
    test: Callable[[VirtualKafka], Awaitable[T]],
    *,
    brokers: int = 3,
    topics: Mapping[str, int | TopicSpec] | None = None,
    latency_ms: float = 1.0,
    longest_s: float = 86_400.0,
    seed: int = 1,
) -> T:
    """Run a coroutine function on virtual time, and return its result.

    Args:
        test: is given the cluster.
        brokers: how many; their ids are 1, 2, ...
        topics: what to create at once: a number of partitions or a `TopicSpec` per name.
        latency_ms: how long bytes take one way.
        longest_s: virtual seconds after which the test has failed.
        seed: decides what is left to chance; the same seed gives the same run.

    Raises:
        ValueError: `longest_s` is negative, NaN or infinite.
        TimeoutError: `longest_s` have passed.
        StuckError: nothing can ever happen any more.
        RuntimeError: called while an event loop runs, or an exception was reported to the loop.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("run_virtual() runs a new loop: call it from a plain function")
    seconds_of(longest_s, "longest_s")
    loop = VirtualLoop(Chance(seed).of("executor"))
    asyncio.set_event_loop(loop)
    try:
        kafka = VirtualKafka(
            loop, brokers=brokers, topics=topics or {}, latency_ms=latency_ms, seed=seed
        )

        async def everything() -> T:
            async with asyncio.timeout(longest_s):
                return await test(kafka)

        try:
            result = loop.run_until_complete(everything())
        finally:
            _end_tasks(loop)
        if loop.failures:
            raise RuntimeError(f"reported to the event loop: {'; '.join(loop.failures)}")
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _end_tasks(loop: VirtualLoop) -> None:
    """Cancel the tasks that the test has left, so that they do not affect the next one."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
