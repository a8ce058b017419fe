"""A stage for tests on virtual time: a small simulated cluster, a producer, and no accidents.

Owns: setting it up, breaking and repairing it, finding what is left. Not here: the acts that are
played.

The producer is the simulation's: production code with another network and clock, whose memory is
overwritten when it is given back.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from simulation.evidence import leftovers

from aioproducer.records.batch import RecordBatch, read_batches
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.testing.broker.faults import Faults
from aioproducer.testing.broker.replication import ReplicatedPartition
from aioproducer.testing.world.cluster import ReplicationTiming
from aioproducer.testing.world.faults import revive
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.producer import SimProducer
from aioproducer.testing.world.server import SimBroker
from aioproducer.testing.world.spec import Chance, WorldSpec
from aioproducer.testing.world.world import SimWorld
from aioproducer.types import TopicPartition

T = TypeVar("T")

LONGEST_S = 300.0
"""Virtual seconds after which a wait counts as a hang."""

_OPTIONS: dict[str, Any] = {
    "client_id": "stage",
    "batch_size": 200,
    "buffer_memory": 1000,
    "linger_ms": 5,
    "max_block_ms": 60_000,
    "request_timeout_ms": 30_000,
}


class Stage:
    """Brokers from 1 on, the topics `t` and `u` at broker 1, a producer that is not started.

    Args:
        loop: the loop of everything.
        brokers: how many there are.
        first_node: the id of the first one; 0, or 1.
        window: bytes a connection has under way at most.
        options: the producer's, on top of small sizes and long times.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        brokers: int = 1,
        first_node: int = 1,
        window: int = 256 * 1024,
        **options: Any,
    ) -> None:
        self.loop = loop
        nodes = tuple(range(first_node, first_node + brokers))
        servers = [f"broker-{node}.sim:9092" for node in nodes]
        spec = WorldSpec(
            nodes=nodes,
            topics={},
            options={"bootstrap_servers": servers, **_OPTIONS, **options},
            timing=ReplicationTiming(),
            window=window,
            base_latency_s=0.001,
            unclean_elections=False,
        )
        self.world = SimWorld(Chance(1), loop, spec)
        self.create_topic("t")
        self.create_topic("u")
        self.producer = SimProducer(self.world)
        self._producers = 1

    @property
    def engine(self) -> ProducerEngine:
        """The machinery of the started producer."""
        return self.producer.engine

    @property
    def faults(self) -> Faults:
        """The faults that brokers are to have."""
        return self.world.cluster.faults

    @property
    def broker(self) -> SimBroker:
        """Broker 1."""
        return self.world.brokers[1]

    def create_topic(self, name: str, leaders: tuple[int, ...] = (1,)) -> None:
        """Adds a topic without replication, each partition at its broker."""
        self.world.cluster.create_topic(
            name, assignments={index: [node] for index, node in enumerate(leaders)}
        )

    def lose(self, node_id: int = 1) -> None:
        """A broker's machine goes off: data under way is lost, and its peers get no FIN or RST."""
        self.world.cluster.crash(node_id)
        self.world.brokers[node_id].die(silent=True)

    def crash(self, node_id: int = 1) -> None:
        """A broker's process dies; its connections are reset."""
        self.world.cluster.crash(node_id)
        self.world.brokers[node_id].die(silent=False)

    def revive(self, node_id: int = 1) -> None:
        """A lost or crashed broker is back with its log."""
        revive(self.world, node_id)

    def lose_records(self, topic: str, offset: int, partition: int = 0) -> None:
        """The end of a partition's log is lost, as by an unclean election."""
        found = self.world.cluster.partition(topic, partition)
        if not isinstance(found, ReplicatedPartition):
            raise LookupError(f"there is no partition {topic}-{partition}")
        found._truncate_to(offset)

    def batches(self, topic: str, partition: int = 0) -> list[RecordBatch]:
        """The log of a partition."""
        found = self.world.cluster.partition(topic, partition)
        if found is None:
            raise LookupError(f"there is no partition {topic}-{partition}")
        return [batch for stored in found.log.batches for batch in read_batches(stored.data)]

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """The values in the log of a partition."""
        batches = (batch for batch in self.batches(topic, partition) if not batch.is_control)
        return [bytes(record.value or b"") for batch in batches for record in batch.records()]

    def another_producer(self, **options: Any) -> SimProducer:
        """A second producer with the same options, and others if given; the test closes it."""
        self._producers += 1
        return SimProducer(self.world, purpose=f"producer {self._producers}", **options)

    def positions(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """A consumer group's committed offsets, each with its metadata."""
        offsets = self.world.cluster.groups.groups[group].offsets
        return {place: (found.offset, found.metadata) for place, found in offsets.items()}

    def left(self) -> list[str]:
        """Tasks, connections and timers of the producer that are still there."""
        return leftovers(self.loop, self.world.network)


def play(
    act: Callable[[Stage], Awaitable[T]], *, loop: VirtualLoop | None = None, **options: Any
) -> T:
    """Play one act on a new stage, which must end empty.

    Args:
        act: is given the stage.
        loop: the loop to play on, which is closed then; a new one when left out.
        options: the stage's.

    Raises:
        AssertionError: something was left, the loop had to report an error, or memory changed
            before a transport had sent it.
    """
    loop = loop or VirtualLoop(random.Random(1))
    asyncio.set_event_loop(loop)
    gc.freeze()  # objects from before are skipped, which makes `collect` cheap
    stage = Stage(loop, **options)
    try:

        async def all_of_it() -> T:
            async with asyncio.timeout(LONGEST_S):
                result = await act(stage)
            if left := stage.left():
                raise AssertionError(f"left on the loop: {left}")
            return result

        result = loop.run_until_complete(all_of_it())
        gc.collect()
        if loop.failures:
            raise AssertionError(f"reported to the loop: {loop.failures}")
        transports = [connection.transport for connection in stage.world.network.connections]
        if any(transport is not None and transport.memory_changed for transport in transports):
            raise AssertionError("memory changed before a transport had sent it")
        return result
    finally:
        _end(stage)
        gc.unfreeze()
        asyncio.set_event_loop(None)
        loop.close()


def _end(stage: Stage) -> None:
    """Ends what an act that failed has left, so that the next test does not hear of it."""
    stage.loop.run_until_complete(stage.producer.close(0))
    left = asyncio.all_tasks(stage.loop)
    for task in left:
        task.cancel()
    if left:
        stage.loop.run_until_complete(asyncio.wait(left))
