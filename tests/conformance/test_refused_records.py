"""Brokers refuse some records of a batch: those fail, the others are written, on real Kafka too."""

from __future__ import annotations

import time

import pytest
from support.clusters import ClusterUnderTest

from aioproducer import Persistence, Producer, Record
from aioproducer.errors import (
    BatchRefusedError,
    BrokerError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from aioproducer.testing.reader import read_topic

HOUR = 3_600_000


async def values(cluster: ClusterUnderTest, topic: str) -> list[int]:
    found = await read_topic(cluster.bootstrap_servers, topic, timeout_s=20)
    return [int(bytes(record.value or b"")[:4]) for record in found[0]]


async def check_that_only_these_fail(
    cluster: ClusterUnderTest,
    topic: str,
    records: list[Record],
    bad: set[int],
    kind: type[BrokerError],
    **options: bool,
) -> None:
    """Sends records, whose values are their numbers, in one batch."""
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=50, **options
    ) as producer:
        result = await producer.send_many(topic, records)
        more = await producer.send_and_wait(topic, b"%04d" % len(records), key=b"key")
    assert {each.index for each in result.failed} == bad
    for each in result.failed:
        assert isinstance(each.error, kind)
        assert each.error.persistence is Persistence.NOT_PERSISTED
    good = [number for number in range(len(records)) if number not in bad]
    assert more.offset == len(good)
    assert await values(cluster, topic) == [*good, len(records)]


@pytest.mark.parametrize("enable_idempotence", [True, False])
async def test_only_timestamps_out_of_range_are_refused(
    cluster: ClusterUnderTest, enable_idempotence: bool
) -> None:
    configs = {
        "message.timestamp.before.max.ms": str(HOUR),
        "message.timestamp.after.max.ms": str(HOUR),
    }
    topic = await cluster.create_topic(1, configs=configs)
    now = time.time_ns() // 1_000_000
    times = [now, now - 2 * HOUR, now - HOUR // 2, now + 2 * HOUR, now + HOUR // 2, now]
    records = [Record(b"%04d" % n, timestamp_ms=at) for n, at in enumerate(times)]
    await check_that_only_these_fail(
        cluster,
        topic,
        records,
        {1, 3},
        InvalidTimestampError,
        enable_idempotence=enable_idempotence,
    )


async def test_only_records_without_a_key_are_refused_by_a_compacted_topic(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1, configs={"cleanup.policy": "compact"})
    bad = {0, 500, 501, 999}
    records = [Record(b"%04d" % n, None if n in bad else b"k%d" % n) for n in range(1000)]
    await check_that_only_these_fail(cluster, topic, records, bad, InvalidRecordError)


async def test_only_records_that_are_too_large_are_refused(cluster: ClusterUnderTest) -> None:
    topic = await cluster.create_topic(1, configs={"max.message.bytes": "4000"})
    bad = {3, 4, 17}
    records = [Record((b"%04d" % n) * (1500 if n in bad else 1)) for n in range(20)]
    await check_that_only_these_fail(cluster, topic, records, bad, RecordTooLargeError)


async def test_a_transaction_fails_with_the_blamed_record_and_the_others_say_so(
    cluster: ClusterUnderTest,
) -> None:
    topic = await cluster.create_topic(1, configs={"cleanup.policy": "compact"})
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic, linger_ms=50
    ) as producer:
        await producer.begin_transaction()
        sent = [await producer.send(topic, b"0000", key) for key in (b"a", None, b"c")]
        await producer.flush()
        with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        errors = [each.exception() for each in sent]
    assert [type(error) for error in errors] == [
        BatchRefusedError,
        InvalidRecordError,
        BatchRefusedError,
    ]
    assert {error.persistence for error in errors if error} == {Persistence.NOT_PERSISTED}
    assert await values(cluster, topic) == []
