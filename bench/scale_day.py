"""A day of a large cluster in virtual time: rolling restarts, topics that come and go.

Method: production code of the producers, with the network, clock and brokers of
`aioproducer.testing.world`. Each producer sends bursts to its own partitions in a hundred
topics. One broker after the other is killed and comes back, all of them within the day. Each hour a
producer gets a new topic, which is deleted when the next one is created. In the end the history of
all calls is compared with all logs.

Not here: what grows with what, see `bench.scale`. Its caller has made the tools of the tests
importable, see `bench.machine.find_tests`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simulation.faults.brokers import Crash
from support.checker import Anomaly, History, Logged, Place, check

from aioproducer.errors import KafkaError
from aioproducer.records.batch import read_batches
from aioproducer.runtime.delivery import Delivery
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.world.cluster import ReplicationTiming, TracedPartition
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.producer import SimProducer
from aioproducer.testing.world.spec import Chance, WorldSpec
from aioproducer.testing.world.world import SimWorld
from aioproducer.types import Persistence, TopicPartition

_HOUR_S = 3600.0
_NEW_PARTITIONS = 4
_NEW_RECORDS = 20
_SETTLING_S = 300.0
_OPTIONS = {"client_id": "scale", "linger_ms": 5, "metadata_max_age_ms": 3_600_000}


@dataclass(frozen=True, slots=True)
class Day:
    """The events of a day.

    Attributes:
        brokers: Each is killed once.
        topics: Of `partitions` partitions, three replicas each.
        active: Partitions that get records.
        bursts_per_hour: Bursts of each producer, to all its active partitions.
        records: Records of a burst to one partition.
        down_s: How long a killed broker is away.
    """

    brokers: int = 100
    topics: int = 1_000
    partitions: int = 100
    active: int = 1_000
    producers: int = 10
    hours: float = 24.0
    bursts_per_hour: int = 6
    records: int = 3
    down_s: float = 60.0

    def active_of(self, producer: int) -> list[TopicPartition]:
        """Return the partitions that a producer sends to, spread over its own topics."""
        topics = range(producer, self.topics, self.producers)
        count = self.active // self.producers
        return [
            TopicPartition(_topic(topics[i % len(topics)]), i * 7 % self.partitions)
            for i in range(count)
        ]


@dataclass(slots=True)
class DayResult:
    """The outcome of a day.

    Attributes:
        anomalies: Contradictions between what calls returned and the logs.
        errors: Failures of records, which nothing that happens here excuses.
        failures: Exceptions in callbacks and tasks.
    """

    day: Day
    records: int = 0
    requests: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    anomalies: list[Anomaly] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """All that should not have happened."""
        return [*(str(each) for each in self.anomalies), *self.errors, *self.failures]


def run_day(day: Day, seed: int = 1, **options: Any) -> DayResult:
    """Run the day, and judge it; `options` are those of the producers."""
    began = time.process_time()
    chance = Chance(seed)
    loop = VirtualLoop(chance.of("executor"))
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(_Play(day, chance, loop, options).run())
        result.failures += loop.failures
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    result.cpu_s = time.process_time() - began
    return result


class _Play:
    def __init__(
        self, day: Day, chance: Chance, loop: VirtualLoop, options: dict[str, Any]
    ) -> None:
        self._day = day
        self._loop = loop
        nodes = tuple(range(1, day.brokers + 1))
        servers = [f"broker-{node}.sim:9092" for node in nodes[:3]]
        self._world = SimWorld(
            chance,
            loop,
            WorldSpec(
                nodes,
                {_topic(i): TopicSpec(day.partitions, 3) for i in range(day.topics)},
                {"bootstrap_servers": servers, **_OPTIONS, **options},
                ReplicationTiming(),
                window=1 << 20,
                base_latency_s=0.001,
                unclean_elections=False,
            ),
        )
        self._world.network.fragments = False
        self._history = History()
        self._result = DayResult(day)

    async def run(self) -> DayResult:
        day, world = self._day, self._world
        lasts_s = day.hours * _HOUR_S
        apart_s = lasts_s / day.brokers
        world.expect([Crash((i + 0.5) * apart_s, i + 1, day.down_s) for i in range(day.brokers)])
        producers = [SimProducer(world, purpose=f"producer {i}") for i in range(day.producers)]
        for producer in producers:
            await producer.start()
        await asyncio.gather(
            self._topics_come_and_go(producers),
            *(self._send_all_day(number, each) for number, each in enumerate(producers)),
        )
        world.heal()
        await asyncio.sleep(_SETTLING_S)
        for producer in producers:
            await producer.close()
        self._result.records = self._history.offered
        self._result.requests = sum(int(each.metrics()["request_total"]) for each in producers)
        self._result.virtual_s = self._loop.time()
        self._result.anomalies = check(self._history, self._logs())
        return self._result

    async def _send_all_day(self, number: int, producer: SimProducer) -> None:
        day = self._day
        places = day.active_of(number)
        every_s = _HOUR_S / day.bursts_per_hour
        for burst in range(round(day.hours * day.bursts_per_hour)):
            due = burst * every_s + every_s * number / day.producers
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            self._world.trace.lines.clear()
            wanted = [place for _ in range(day.records) for place in places]
            await self._send(producer, f"{number}/{burst}", wanted)

    async def _topics_come_and_go(self, producers: list[SimProducer]) -> None:
        cluster = self._world.cluster
        before: str | None = None
        for hour in range(round(self._day.hours)):
            await asyncio.sleep(max(0.0, hour * _HOUR_S - self._loop.time()))
            name = f"new-{hour}"
            cluster.create_topic(name, TopicSpec(_NEW_PARTITIONS, 3))
            if before is not None:
                cluster.delete_topic(before)
            before = name
            wanted = [TopicPartition(name, i % _NEW_PARTITIONS) for i in range(_NEW_RECORDS)]
            await self._send(producers[hour % len(producers)], name, wanted)

    async def _send(self, producer: SimProducer, label: str, wanted: list[TopicPartition]) -> None:
        sent: list[tuple[bytes, Delivery]] = []
        for number, place in enumerate(wanted):
            name = f"{label}/{number}".encode()
            self._history.offer(name, writer=producer)
            try:
                delivery = await producer.send(place.topic, name, partition=place.partition)
            except KafkaError as error:
                self._history.refuse(name)
                self._result.errors.append(f"{name!r}: {error!r}")
                continue
            self._history.accept(name)
            sent.append((name, delivery))
        for name, delivery in sent:
            try:
                metadata = await delivery
            except KafkaError as error:
                absent = error.persistence is Persistence.NOT_PERSISTED
                self._history.fail(name, not_persisted=absent)
                self._result.errors.append(f"{name!r}: {error!r}")
            else:
                assert metadata.offset is not None
                where = Place(metadata.topic_partition, metadata.offset)
                self._history.acknowledge(name, where)

    def _logs(self) -> Iterator[Logged]:
        cluster = self._world.cluster
        for topic in (*cluster.topics.values(), *cluster.deleted):
            for partition in topic.partitions:
                assert isinstance(partition, TracedPartition)
                where = TopicPartition(topic.name, partition.index)
                for stored in partition.log.batches:
                    for batch in read_batches(stored.data):
                        for record in batch.records():
                            place = Place(where, record.offset)
                            yield Logged(place, bytes(record.value or b""))


def _topic(number: int) -> str:
    return f"topic-{number:04}"
