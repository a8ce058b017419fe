"""Telemetry taken by a real broker with a plugin, read with OpenTelemetry's own Java classes.

It needs another broker: AIOPRODUCER_TEST_SECURITY=1, which `make cluster` sets.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.foreign import ReaderMissingError
from support.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.java_consumer import find_jdk

from aioproducer import Producer
from aioproducer.core.telemetry import Telemetry
from aioproducer.metrics import ApplicationMetric
from aioproducer.records.codecs import CompressionType
from aioproducer.runtime.engine import ProducerEngine
from aioproducer.testing.admin import create_topic
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.release import DEFAULT_VERSION, KafkaRelease
from aioproducer.testing.wire_client import WireClient
from aioproducer.wire.messages.telemetry import GetTelemetrySubscriptionsRequest

PLUGIN = Path(__file__).parent.parent / "support" / "java" / "TelemetrySink.java"
CLIENT_METRICS = 16
SENT = "org.apache.kafka.producer.record.send.total"
OWN = "org.apache.kafka.shop.orders"

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not os.environ.get("AIOPRODUCER_TEST_SECURITY"),
        reason="starts another broker: AIOPRODUCER_TEST_SECURITY=1 (make cluster) runs it",
    ),
]


class Line(NamedTuple):
    """One value as the broker's plugin has seen it."""

    client: str
    terminating: str
    content_type: str
    metric: str
    kind: str
    value: str


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("telemetry") / "sink.tsv"


@pytest.fixture(scope="module")
def broker(sink: Path) -> Iterator[KafkaCluster]:
    release = KafkaRelease.parse(DEFAULT_VERSION)
    classes = sink.parent / "classes"
    try:
        jdk = find_jdk(release)
    except ReaderMissingError as error:
        pytest.skip(str(error))
    jars = os.pathsep.join(map(str, release.client_classpath()))
    subprocess.run(
        [str(jdk.tool("javac")), "-cp", jars, "-d", str(classes), str(PLUGIN)],
        check=True,
        timeout=120,
    )
    with KafkaCluster(
        brokers=1,
        config={"metric.reporters": PLUGIN.stem},
        jvm_options=[f"-Dtelemetry.sink={sink}"],
        classpath=[classes],
    ) as cluster:
        yield cluster


class Preferring(Producer):
    """A producer that has one codec only, so that the broker's order does not decide."""

    def __init__(self, codec: CompressionType, **options: str) -> None:
        super().__init__(**options)
        self._codec = codec

    def _new_engine(self, loop: asyncio.AbstractEventLoop) -> ProducerEngine:
        engine = super()._new_engine(loop)
        engine.telemetry._telemetry = Telemetry([self._codec], random.Random())
        return engine


async def subscribe(servers: str, **options: str) -> None:
    """Sets the options of a subscription, and waits until the broker goes by it."""
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in options.items()
    ]
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="test", configs=changes
    )
    async with WireClient(servers, timeout_s=30) as client:
        answer = await client.ask(None, IncrementalAlterConfigsRequest(resources=[resource]), 0, 1)
        assert [each.error_code for each in answer.responses] == [0]
        while True:
            answer = await client.ask(None, GetTelemetrySubscriptionsRequest(), 0, 0)
            if answer.requested_metrics:
                return
            await client.pause()


def lines(sink: Path) -> list[Line]:
    return [Line(*line.split("\t")) for line in sink.read_text().splitlines()]


@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec])
async def test_a_real_broker_takes_what_it_asked_for(
    broker: KafkaCluster, sink: Path, codec: CompressionType
) -> None:
    servers, topic = broker.bootstrap_servers, codec.name
    await create_topic(servers, topic, 1)
    await subscribe(servers, metrics=f"{SENT},{OWN}", interval_ms="300")
    producer = Preferring(codec, bootstrap_servers=servers)
    producer.register_metric(ApplicationMetric("orders", "shop-metrics", lambda: 4.5))
    async with producer:
        identity = await producer.client_instance_id(30)
        for _ in range(3):
            await producer.send_and_wait(topic, b"v")
            await asyncio.sleep(0.5)
        assert producer._engine.telemetry._telemetry.subscription.codec == codec
    client = base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")
    mine = [line for line in lines(sink) if line.client == client]
    sent = [line for line in mine if line.metric == SENT]
    assert sum(float(line.value) for line in sent) == 3
    assert {line.kind for line in sent} == {"delta"}
    assert {(line.kind, line.value) for line in mine if line.metric == OWN} == {("gauge", "4.5")}
    assert {line.metric for line in mine} == {SENT, OWN}
    assert {line.content_type for line in mine} == {"OTLP"}
    assert [line.terminating for line in sent] == ["false"] * (len(sent) - 1) + ["true"]
    assert len(sent) >= 3
