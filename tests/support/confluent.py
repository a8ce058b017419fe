"""Reads and creates topics with confluent-kafka (librdkafka), the compulsory foreign client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from aioproducer.types import TimestampType
from support.foreign import ForeignRecord

DEFAULT_TIMEOUT_S = 60.0
_QUIET: dict[str, str | int | float | bool] = {"log_level": 2}
_POLL_S = 0.2
_CHUNK = 1000


async def read_all_confluent(
    bootstrap: str,
    topic: str,
    isolation: str = "read_committed",
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> list[ForeignRecord]:
    """Read a topic from its beginning to its present end, CRCs checked by librdkafka.

    Raises:
        TimeoutError: The ends of all partitions were not reached in time.
        KafkaException: What the broker or librdkafka found wrong.
    """
    return await asyncio.to_thread(
        read_all_blocking, bootstrap, topic, isolation, timeout_s=timeout_s
    )


def read_all_blocking(
    bootstrap: str,
    topic: str,
    isolation: str = "read_committed",
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> list[ForeignRecord]:
    """`read_all_confluent` for the calling thread."""
    deadline = time.monotonic() + timeout_s
    consumer = Consumer(
        _QUIET
        | {
            "bootstrap.servers": bootstrap,
            "group.id": "foreign-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,  # an end is reported after this, not after half a second
        }
    )
    try:
        unread = _end_offsets(consumer, topic, deadline)
        consumer.assign([TopicPartition(topic, id_, OFFSET_BEGINNING) for id_ in sorted(unread)])
        records: list[ForeignRecord] = []
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{topic}: the ends of {sorted(unread)} not reached within {timeout_s} s; "
                    f"{len(records)} records read"
                )
            for message in consumer.consume(_CHUNK, _POLL_S):
                error = message.error()
                if error is None:
                    records.append(_foreign(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= unread.get(message.partition(), 0):
                        unread.pop(message.partition(), None)
                else:
                    raise KafkaException(error)
        return records
    finally:
        consumer.close()


async def create_topic_confluent(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> None:
    """Create a topic and wait until every partition has a leader."""
    await asyncio.to_thread(
        _create_topic,
        bootstrap,
        NewTopic(topic, partitions, replication_factor, config=dict(configs or {})),
        timeout_s,
    )


async def grow_topic_confluent(
    bootstrap: str, topic: str, partitions: int, *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> None:
    """Let a topic grow to that many partitions."""

    def grow() -> None:
        admin = AdminClient(_QUIET | {"bootstrap.servers": bootstrap})
        wanted = [NewPartitions(topic, partitions)]
        for grown in admin.create_partitions(wanted, operation_timeout=timeout_s).values():
            grown.result(timeout_s)

    await asyncio.to_thread(grow)


def _create_topic(bootstrap: str, topic: NewTopic, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    admin = AdminClient(_QUIET | {"bootstrap.servers": bootstrap})
    for created in admin.create_topics([topic], operation_timeout=timeout_s).values():
        created.result(timeout_s)
    while True:
        described = admin.list_topics(topic.topic, timeout=timeout_s).topics[topic.topic]
        leaders = [partition.leader for partition in described.partitions.values()]
        if len(leaders) == topic.num_partitions and min(leaders) >= 0:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic.topic} has the leaders {leaders} after {timeout_s} s")
        time.sleep(_POLL_S)


def _partitions(consumer: Consumer, topic: str, deadline: float) -> set[int]:
    """The topic's partitions; a broker that has not heard of a new topic yet is asked again."""
    while True:
        timeout = max(_POLL_S, deadline - time.monotonic())
        described = consumer.list_topics(topic, timeout=timeout).topics[topic]
        if described.error is None:
            return set(described.partitions)
        is_unheard_of = described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        if not is_unheard_of or time.monotonic() > deadline:
            raise KafkaException(described.error)
        time.sleep(_POLL_S)


def _end_offsets(consumer: Consumer, topic: str, deadline: float) -> dict[int, int]:
    """The end of each partition, by the isolation level of the consumer.

    A fetch does not show the end reliably: a leader that has just been elected answers it with a
    high watermark that may be below acknowledged records. It refuses ListOffsets until its
    high watermark is current (KIP-207).
    """
    return {
        id_: _end_offset(consumer, TopicPartition(topic, id_), deadline)
        for id_ in _partitions(consumer, topic, deadline)
    }


def _end_offset(consumer: Consumer, partition: TopicPartition, deadline: float) -> int:
    """Ask again until the leader has it; librdkafka does so a few times only."""
    while True:
        timeout = max(_POLL_S, deadline - time.monotonic())
        try:
            return consumer.get_watermark_offsets(partition, timeout=timeout)[1]
        except KafkaException as error:
            is_unknown = error.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE
            if not is_unknown or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def _foreign(message: Message) -> ForeignRecord:
    kind, timestamp = message.timestamp()
    appended = kind == TIMESTAMP_LOG_APPEND_TIME
    return ForeignRecord(
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp=timestamp,
        timestamp_type=TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME,
    )
