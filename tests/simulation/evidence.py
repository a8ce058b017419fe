"""Facts about a run that no call returns: log lines, what is left on the loop, calm times.

Owns: how each is found out, and the bundle of all there is to judge a run by. Not here: what
any of it proves.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

from aioproducer.config import ProducerConfig
from aioproducer.errors import BrokerError, RecordsPurgedError
from aioproducer.metrics.totals import ProducerStats
from aioproducer.records.batch import DecodedRecord, read_batches
from aioproducer.testing.broker.log import StoredBatch
from aioproducer.testing.world.cluster import SimCluster, TracedPartition
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.network import SimNetwork
from aioproducer.types import TopicPartition
from simulation.ledger import Entry, Ledger
from simulation.liveness import RecoveryBound

if TYPE_CHECKING:
    from simulation.transactions.book import TransactionBook


class Log(NamedTuple):
    """A log: of a partition, and of which topic among those that have had its name."""

    where: TopicPartition
    number: int

    def __str__(self) -> str:
        return f"{self.where}" + (f" of topic #{self.number + 1}" if self.number else "")


class Place(NamedTuple):
    """One copy of a record in a log."""

    log: Log
    record: DecodedRecord

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return self.log.where


class Counts(NamedTuple):
    """The counters of all producers of a run, added up."""

    records_appended: int
    records_acknowledged: int
    records_failed: int
    unretrieved_failures: int

    @classmethod
    def of(cls, counted: Sequence[ProducerStats]) -> Self:
        """The sums."""
        return cls(*(sum(getattr(stats, name) for stats in counted) for name in cls._fields))


@dataclass
class Evidence:
    """All there is to judge a run by.

    Attributes:
        may_lose: Whether the cluster may lose what it acknowledged.
        writes_by_id: See `Scenario`.
        calm: From when to when nothing was wrong.
        idle: From when to when no task sent and nothing waited.
        opened: When connections were opened.
        early_speakers: Connections on which the producer did not keep quiet.
        leftovers: What the producer left on the loop, in words.
        complaints: What brokers found wrong with requests.
        reports: Exceptions logged or reported to the loop.
        transactions: The books of the transactions, in a run that has some.
        healed_at: When everything was healed.
        recovery_bound: How soon after that everything pending has to be done.
        stalls: Pending work that nothing would have ended.
        scripted_codes: Codes that brokers were made to answer.
        leaves_out_offsets: Whether brokers acknowledged batches without their offsets.
        logins_were_refused: Whether brokers refused logins.
        refusals: When dials to each broker were refused.
        restarts: When a producer started over from its bootstrap servers.
        expirations: What it said of batches that a broker acknowledged and does not have.
        described: When brokers were asked for metadata, where topics are few.
        failures: Why producers ended that no caller had closed.
        logged_unread: The sums of the failures in the log that no task has read.
    """

    config: ProducerConfig
    ledger: Ledger
    cluster: SimCluster
    stats: Sequence[ProducerStats]
    may_lose: bool
    writes_by_id: bool = True
    memory_missing: int = 0
    places_missing: int = 0
    calm: list[tuple[float, float]] = field(default_factory=list)
    idle: Sequence[tuple[float, float]] = ()
    opened: Sequence[float] = ()
    early_speakers: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    transactions: TransactionBook | None = None
    healed_at: float | None = None
    recovery_bound: RecoveryBound | None = None
    stalls: list[str] = field(default_factory=list)
    scripted_codes: frozenset[int] = frozenset()
    leaves_out_offsets: bool = False
    logins_were_refused: bool = False
    refusals: Mapping[int, Sequence[float]] = field(default_factory=dict)
    restarts: Sequence[float] = ()
    expirations: Sequence[str] = ()
    described: Sequence[float] = ()
    failures: Sequence[BaseException] = ()
    logged_unread: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """The sums of the counters of all producers so far."""
        return Counts.of(self.stats)

    @cached_property
    def logs(self) -> dict[Log, dict[int, DecodedRecord]]:
        """Every log by offset."""
        return {
            log: {each.offset: each for each in _records(partition.log.batches)}
            for log, partition in self.traced_partitions
        }

    @cached_property
    def lost(self) -> dict[Log, list[DecodedRecord]]:
        """Records that leaders had and their successors did not have."""
        return {log: _records(partition.lost) for log, partition in self.traced_partitions}

    @cached_property
    def copies(self) -> dict[bytes, list[Place]]:
        """Every record in the logs by its name."""
        found: dict[bytes, list[Place]] = defaultdict(list)
        for log, records in self.logs.items():
            for record in records.values():
                found[name_of(record)].append(Place(log, record))
        return found

    @cached_property
    def first_logs(self) -> dict[bytes, int]:
        """The number of the topic from which on there may be one copy of a record, by its name.

        What has no acknowledgement when a topic is deleted, or a cluster replaced, is written anew:
        a copy counts if it was acknowledged, or if no later topic has one.
        """
        first = {
            name: max(place.log.number for place in places) for name, places in self.copies.items()
        }
        for entry in self.ledger.entries:
            log = self.log_of(entry)
            if log is not None and entry.name in first:
                first[entry.name] = min(first[entry.name], log.number)
        return first

    def log_of(self, entry: Entry) -> Log | None:
        """The log in which a record was acknowledged; the latest if none had it at its offset."""
        metadata = entry.metadata
        if metadata is None or metadata.offset is None:
            return None
        logs = self._logs_of.get(metadata.topic_partition) or [Log(metadata.topic_partition, 0)]
        at = (metadata.offset, entry.name)
        for log in reversed(logs):
            record = self.logs.get(log, {}).get(metadata.offset)
            if record is not None and name_of(record) == entry.name:
                return log
            if any((each.offset, name_of(each)) == at for each in self.lost.get(log, ())):
                return log
        return logs[-1]

    @cached_property
    def _logs_of(self) -> dict[TopicPartition, list[Log]]:
        """The logs of each partition, the oldest first."""
        found: dict[TopicPartition, list[Log]] = defaultdict(list)
        for log in self.logs:
            found[log.where].append(log)
        return found

    def append_times(self, topic: str, partition: int | None) -> Sequence[float]:
        """Times at which something was appended to a partition."""
        found = None if partition is None else self.cluster.partition(topic, partition)
        return found.append_times if isinstance(found, TracedPartition) else ()

    def partitions(self) -> Iterator[tuple[TopicPartition, TracedPartition]]:
        """Every partition by its name, those of deleted topics too."""
        for log, partition in self.traced_partitions:
            yield log.where, partition

    @cached_property
    def deleted_logs(self) -> frozenset[Log]:
        """The logs of deleted topics."""
        partition_at = self.cluster.partition
        return frozenset(
            log for log, each in self.traced_partitions if partition_at(*log.where) is not each
        )

    @cached_property
    def traced_partitions(self) -> list[tuple[Log, TracedPartition]]:
        """Every partition with its log, the oldest topics first."""
        numbers: Counter[str] = Counter()
        found: list[tuple[Log, TracedPartition]] = []
        for topic in (*self.cluster.deleted, *self.cluster.topics.values()):
            for partition in topic.partitions:
                if isinstance(partition, TracedPartition):
                    where = TopicPartition(topic.name, partition.index)
                    found.append((Log(where, numbers[topic.name]), partition))
            numbers[topic.name] += 1
        return found


def names_lost(cluster: SimCluster, where: TopicPartition) -> frozenset[bytes]:
    """The records that leaders of a partition had and their successors did not, so far.

    Also in earlier topics of the name: a loss can be noticed after its topic was deleted.
    """
    topics = [each for each in cluster.deleted if each.name == where.topic]
    found = [*(topic.partition(where.partition) for topic in topics), cluster.partition(*where)]
    return frozenset(
        name_of(record)
        for partition in found
        if isinstance(partition, TracedPartition)
        for record in _records(partition.lost)
    )


def names_deleted(cluster: SimCluster, where: TopicPartition) -> frozenset[bytes]:
    """The records of a partition that were deleted with earlier topics of its name, so far."""
    topics = [each for each in cluster.deleted if each.name == where.topic]
    partitions = [topic.partition(where.partition) for topic in topics]
    return frozenset(
        name_of(record)
        for partition in partitions
        if partition is not None
        for record in _records(partition.log.batches)
    )


def name_of(record: DecodedRecord) -> bytes:
    """The name a record carries in its value, or in its key where it has no value."""
    content = bytes(record.value if record.value is not None else record.key or b"")
    return content[: content.find(b">") + 1]


def _records(batches: list[StoredBatch] | tuple[StoredBatch, ...]) -> list[DecodedRecord]:
    return [
        record
        for stored in batches
        for batch in read_batches(stored.data)
        if not batch.is_control
        for record in batch.records()
    ]


_UNREAD = {
    "record(s) of a batch failed and their deliveries": ("while running", 1),
    "more record(s) failed and their deliveries": ("while running", 0),
    "the producer is closed; %d record(s) failed": ("at the end", 0),
}
"""Lines of the log with a count of failures: which sum it is a part of, and which argument."""


@dataclass
class LogWatch(logging.Handler):
    """Collects exceptions that the package logs.

    Attributes:
        restarts: When it logged that it starts over from the bootstrap servers.
        expirations: What it logged of batches that a broker acknowledged and does not have.
        unread: How many failures it logged that no task has read, and how many at the end.
    """

    now: Callable[[], float]
    reports: list[str] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    expirations: list[str] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(logging.WARNING)

    def __hash__(self) -> int:
        return id(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what carries an exception, unless a broker's answer or a purge was one."""
        if record.getMessage().startswith("starting over from the bootstrap servers"):
            self.restarts.append(self.now())
        if "does not have the last batch that it acknowledged" in record.getMessage():
            self.expirations.append(f"at {self.now():.3f}: {record.getMessage()}")
        for text, (when, place) in _UNREAD.items():
            if text in record.msg and isinstance(record.args, tuple):
                self.unread[when] += int(str(record.args[place]))
        error = record.exc_info[1] if record.exc_info and record.levelno >= logging.ERROR else None
        if error is not None and not isinstance(error, BrokerError | RecordsPurgedError):
            self.reports.append(f"{record.getMessage()}: {error!r}")


def leftovers(loop: VirtualLoop, network: SimNetwork) -> list[str]:
    """Describe what the producer has on the loop; the rest is recognized by its module."""
    current = asyncio.current_task()
    left = [f"task {task.get_name()}" for task in asyncio.all_tasks() if task is not current]
    for connection in network.connections:
        transport = connection.transport
        if transport is not None and not transport.is_lost:
            left.append(f"connection {connection}")
    for timer in loop.pending_timers():
        owner = _owner(timer)
        if owner is not None and not owner.startswith(("aioproducer.testing.", "simulation.")):
            left.append(f"timer of {owner} in {timer.when() - loop.time():.3f} s")
    return sorted(left)


def calm_times(
    disturbances: Sequence[tuple[float, float]], healed_at: float, ended_at: float
) -> list[tuple[float, float]]:
    """The times between the disturbances, and after the healing."""
    calm, quiet_since = [], 0.0
    for start, end in sorted(disturbances):
        if start > quiet_since:
            calm.append((quiet_since, start))
        quiet_since = max(quiet_since, min(end, healed_at))
    return [*calm, (quiet_since, ended_at)]


def _owner(timer: asyncio.TimerHandle) -> str | None:
    """The module a timer belongs to."""
    callback = timer._callback  # type: ignore[attr-defined]
    target = getattr(callback, "__self__", None)
    if target is not None and not isinstance(target, asyncio.Future):
        return type(target).__module__
    return getattr(callback, "__module__", None)
