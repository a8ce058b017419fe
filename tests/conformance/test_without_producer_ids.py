"""Services that implement Kafka's protocol and give no producer ids."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from aioproducer import Producer
from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing.broker import ClusterSettings
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    settings = ClusterSettings(api_versions={ApiKey.INIT_PRODUCER_ID: None})
    async with EmbeddedCluster(brokers=1, topics={"t": 1}, settings=settings) as cluster:
        yield cluster


async def test_idempotence_that_was_only_the_default_is_done_without(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "aioproducer"):
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(20):
                await producer.send_and_wait("t", b"%d" % number)
    warnings = [r for r in caplog.records if "going on without idempotence" in r.getMessage()]
    assert len(warnings) == 1
    read = await read_topic(cluster.bootstrap_servers, "t", timeout_s=20)
    assert [record.value for record in read[0]] == [b"%d" % number for number in range(20)]


async def test_idempotence_that_was_asked_for_is_not_done_without(
    cluster: EmbeddedCluster,
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True)
    with pytest.raises(UnsupportedVersionError, match="INIT_PRODUCER_ID"):
        await producer.start()
