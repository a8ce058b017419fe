"""One scenario from a fresh topic to the verdict.

Owns: the order of things, and reading what is visible with other people's consumers. Not here:
what a fault does.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, TopicPartition

from aioproducer.testing.reader import end_offsets
from support.clusters import unique_topic
from support.confluent import read_all_confluent
from support.faults.ground import PARTITIONS, FaultGround
from support.foreign import ForeignRecord, ReaderMissingError, digest_partitions
from support.java_consumer import digest_topics_java
from support.transactions.client import Work
from support.transactions.history import Entry, Verdict, entry_of, judge
from support.transactions.scenarios import Scenario
from support.transactions.stage import Stage

BROKER_CONFIG = {
    # Kafka searches for timed-out transactions each 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
_DECISION_TIMEOUT_S = 60.0
_LIMIT_S = 540.0


@dataclass(frozen=True, slots=True)
class Load:
    """The least number of transactions to commit, and the consumers that read them."""

    transactions: int = 500
    java: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict, and other results.

    Attributes:
        uncommitted: The verdict on what a read_uncommitted consumer sees: a control.
        producers: How many producers, one after the other, did the work.
        slowest_s: The longest transaction, faults and repeated calls included.
        java_agrees: Whether a Java consumer saw the same bytes; None if it was not asked.
        reasons: Errors that clients met, and how often.
        events: What was done, in seconds since the beginning.
    """

    verdict: Verdict
    uncommitted: Verdict
    producers: int
    slowest_s: float
    seconds: float
    java_agrees: bool | None
    reasons: tuple[tuple[str, int], ...]
    events: tuple[str, ...]


async def run(scenario: Scenario, ground: FaultGround, load: Load) -> Result:
    """Let a client live through the scenario, and judge."""
    topic = unique_topic()
    await ground.create_topic(topic)
    await ground.wait_in_sync(topic)
    bootstrap = (
        ground.proxied_bootstrap_servers if scenario.through_proxy else ground.bootstrap_servers
    )
    work = Work(bootstrap, topic, PARTITIONS, topic, topic, transactions=load.transactions)
    stage = Stage(ground, replace(work, **scenario.work))
    began, known = time.monotonic(), len(ground.events)
    async with asyncio.timeout(_LIMIT_S):
        await _live_through(scenario, stage)
    seconds = time.monotonic() - began
    events = tuple(f"{at - began:.0f} {event}" for at, event in ground.events[known:])
    result = await _result(stage, load, seconds, events)
    await ground.delete_topic(topic)
    return result


async def _live_through(scenario: Scenario, stage: Stage) -> None:
    if scenario.own_clients:
        await scenario.fault(stage)
        return
    async with asyncio.TaskGroup() as group:
        client = group.create_task(stage.run_client())
        await scenario.fault(stage)
        stage.fault_is_over = True
        await client


async def _result(stage: Stage, load: Load, seconds: float, events: tuple[str, ...]) -> Result:
    bootstrap, topic = stage.ground.bootstrap_servers, stage.work.topic
    stuck = await _wait_decided(bootstrap, topic)
    position = await asyncio.to_thread(_position, bootstrap, stage.work.group, topic)
    committed = await read_all_confluent(bootstrap, topic)
    uncommitted = await read_all_confluent(bootstrap, topic, "read_uncommitted")
    agrees = await _java_agrees(bootstrap, topic, committed) if load.java else None
    history = stage.history
    return Result(
        judge(history, map(_entry, committed), position, stuck=stuck),
        judge(history, map(_entry, uncommitted), position),
        stage.producers,
        stage.slowest_s,
        seconds,
        agrees,
        tuple(sorted(history.reasons.items())),
        events,
    )


def _entry(record: ForeignRecord) -> Entry:
    return entry_of(record.partition, record.offset, record.value)


async def _wait_decided(bootstrap: str, topic: str) -> int:
    """Return how many partitions have an undecided transaction after enough time for all."""
    deadline = time.monotonic() + _DECISION_TIMEOUT_S
    while True:
        ends = await end_offsets(bootstrap, topic)
        stable = await end_offsets(bootstrap, topic, isolation_level="read_committed")
        stuck = sum(stable[partition] < end for partition, end in ends.items())
        if not stuck or time.monotonic() > deadline:
            return stuck
        await asyncio.sleep(0.1)


def _position(bootstrap: str, group: str, topic: str) -> int | None:
    """Return the group's position, undecided transactions left out."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    )
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=_DECISION_TIMEOUT_S)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


async def _java_agrees(bootstrap: str, topic: str, read: list[ForeignRecord]) -> bool | None:
    try:
        digests = await digest_topics_java(bootstrap, [topic])
    except ReaderMissingError:
        return None
    return digests[topic] == digest_partitions(read)
