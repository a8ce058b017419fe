"""Every kind of broker people run: what was sent is what its own console consumer prints.

The short form takes two old brokers and a few records; all of them, with 10,000 records for each
combination, run with AIOPRODUCER_TEST_MATRIX=1 (`make cluster-matrix`).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest
from support.console_consumer import Row, consume

from aioproducer import Producer, ProducerConfig
from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing.kafka import DEFAULT_VERSION, KafkaCluster, LegacyKafkaCluster

FULL = bool(os.environ.get("AIOPRODUCER_TEST_MATRIX"))
RECORDS = 10_000 if FULL else 200
SHORT = ("0.8.2.2", "0.10.2.2")
OLD = ("0.8.2.2", "0.9.0.1", "0.10.2.2")
LATER = ("0.11.0.3", "2.8.2", "3.9.1", DEFAULT_VERSION)
BEFORE_ZSTD = (*OLD, "0.11.0.3")
ACKS = ("all", "1", "0")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]


class Combination(NamedTuple):
    """One way to send. Topics are new to acks=all, so that acks=0 finds leaders that serve."""

    codec: str
    keyed: bool
    acks: str

    @property
    def topic(self) -> str:
        return f"matrix-{self.codec}-{'keyed' if self.keyed else 'unkeyed'}"

    def rows(self) -> Iterator[Row]:
        for number in range(RECORDS):
            yield (
                f"key-{number % 97}" if self.keyed else "null",
                f"{self.topic}-{self.acks}-{number}",
            )


def open_cluster(version: str) -> KafkaCluster:
    kind = KafkaCluster if version.startswith(("3.", "4.")) else LegacyKafkaCluster
    return kind(version, brokers=1, heap_mb=384)


@pytest.fixture(scope="module", params=[*OLD, *LATER] if FULL else SHORT)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with open_cluster(request.param) as cluster:
        yield cluster


def producer_for(cluster: KafkaCluster, **options: Any) -> Producer:
    if cluster.release.version.startswith("0.9"):
        # It leaves ApiVersions out in silence: unasked, every producer would wait 10 s for it.
        options["broker_version_fallback"] = "0.9.0"
    return Producer(bootstrap_servers=cluster.bootstrap_servers, **options)


async def send(cluster: KafkaCluster, combination: Combination) -> None:
    async with producer_for(
        cluster,
        compression_type=combination.codec,
        acks=combination.acks,
        enable_idempotence=False,
        linger_ms=20,
    ) as producer:
        deliveries = [
            await producer.send(
                combination.topic, value.encode(), key=key.encode() if combination.keyed else None
            )
            for key, value in combination.rows()
        ]
        for delivery in deliveries:
            await delivery
        if combination.acks == "0" and cluster.release.version.startswith("0.9"):
            # Unlike others, it drops requests it has read when their connection is closed.
            await asyncio.sleep(1)


@pytest.mark.slow
async def test_what_was_sent_is_what_the_brokers_own_consumer_prints(
    cluster: KafkaCluster,
) -> None:
    codecs = CODECS[:-1] if cluster.release.version in BEFORE_ZSTD else CODECS
    combinations = [Combination(*each) for each in product(codecs, (True, False), ACKS)]
    for combination in combinations:
        await send(cluster, combination)
    expected = Counter(row for combination in combinations for row in combination.rows())
    read = await asyncio.to_thread(
        consume, cluster, "matrix-.*", expected.total(), 600 if FULL else 120
    )
    assert Counter(read) == expected


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"compression_type": "zstd"}, "zstd"),
        ({"enable_idempotence": True}, "idempotence"),
        ({"transactional_id": "t"}, "transactions"),
    ],
)
async def test_what_old_brokers_lack_is_refused_at_the_start(cluster, options, what) -> None:
    if cluster.release.version not in OLD:
        pytest.skip("these brokers lack nothing, or not that")
    with pytest.raises(UnsupportedVersionError, match=what):
        async with producer_for(cluster, **options):
            pass


async def test_headers_are_refused_by_the_call_and_cost_no_other_record(cluster) -> None:
    if cluster.release.version not in OLD:
        pytest.skip("these brokers store headers")
    async with producer_for(cluster) as producer:
        for _ in range(2):
            before = await producer.send("headers", b"without")
            with pytest.raises(UnsupportedVersionError, match="headers"):
                await producer.send("headers", b"with", headers=[("a", b"b")])
            assert (await before).offset is not None


async def test_a_file_of_the_0_8_producer_is_enough(cluster) -> None:
    """The fewest words there are, acknowledged: also at 0.9, which is found out by its silence."""
    config = ProducerConfig.from_properties(
        {
            "metadata.broker.list": cluster.bootstrap_servers,
            "serializer.class": "kafka.serializer.StringEncoder",
            "request.required.acks": "1",
        }
    )
    async with Producer(config) as producer:
        for number in range(3):
            delivery = await producer.send("words", f"{number}", "key")
            assert delivery.result().offset == number
