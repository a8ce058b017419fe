"""Prometheus and OpenTelemetry: what they show of a producer, and that they cost nothing unused."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.stage import Stage, play

from aioproducer import Producer, Record, blocking
from aioproducer.errors import KafkaError, SerializationError
from aioproducer.metrics import ApplicationMetric, Metric, MetricKind
from aioproducer.metrics.opentelemetry import TracingInterceptor, observe
from aioproducer.metrics.prometheus import ProducerCollector
from aioproducer.testing.broker import ErrorAnswer, Fault
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey

ROOMY = {"buffer_memory": 1 << 20}


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """The values Prometheus would read, by name and labels."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_prometheus_reads_every_metric_from_any_thread() -> None:
    registry, collector = CollectorRegistry(), ProducerCollector()
    registry.register(collector)
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers}
        async with Producer(client_id="a", **options) as a, Producer(client_id="b", **options) as b:
            collector.add(a)
            collector.add(b)
            a.register_metric(ApplicationMetric("size", "shop.cart", lambda: 7))
            await a.send_many("t", [b"v"] * 3)
            for read in (samples(registry), await asyncio.to_thread(samples, registry)):
                assert read["kafka_producer_record_send_total", "client_id=a"] == 3
                assert read["kafka_producer_record_send_total", "client_id=b"] == 0
                assert read["kafka_producer_topic_record_send_total", "client_id=a,topic=t"] == 3
                assert read["kafka_shop_cart_size", "client_id=a"] == 7
                nodes = [labels for name, labels in read if name.startswith("kafka_producer_node")]
                assert any("node_id=node-1" in labels for labels in nodes)
    assert samples(registry)["kafka_producer_record_send_total", "client_id=a"] == 3
    del a, b
    gc.collect()
    assert not samples(registry)


async def test_prometheus_reads_a_producer_in_place_of_an_earlier_one_with_its_client_id() -> None:
    registry, collector = CollectorRegistry(), ProducerCollector()
    registry.register(collector)
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "a"}
        async with Producer(**options) as earlier:
            collector.add(earlier)
            await earlier.send_and_wait("t", b"v")
        async with Producer(**options) as later:
            collector.add(later)
            lines = generate_latest(registry).decode().splitlines()
    sent = [line for line in lines if line.startswith("kafka_producer_record_send_total{")]
    assert sent == ['kafka_producer_record_send_total{client_id="a"} 0.0']


def test_prometheus_gets_one_family_for_a_name_whatever_the_tags() -> None:
    producer, registry = Producer(client_id="a", bootstrap_servers="a:1"), CollectorRegistry()
    registry.register(ProducerCollector(producer))
    for tags in ({}, {"queue": "in"}, {"queue": "in", "shard": "3"}):
        producer.register_metric(ApplicationMetric("jobs", "shop", lambda: 1, tags=tags))
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith("# TYPE")] == ["# TYPE kafka_shop_jobs gauge"]
    labels = {labels for name, labels in samples(registry) if name == "kafka_shop_jobs"}
    assert labels == {"client_id=a", "client_id=a,queue=in", "client_id=a,queue=in,shard=3"}


def test_prometheus_gets_one_value_of_metrics_whose_names_become_equal() -> None:
    producer, registry = Producer(client_id="a", bootstrap_servers="a:1"), CollectorRegistry()
    registry.register(ProducerCollector(producer))
    for name, value in (("jobs.open", 1), ("jobs-open", 2)):
        producer.register_metric(ApplicationMetric(name, "shop", partial(float, value)))
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'kafka_shop_jobs_open{client_id="a"} 2.0'
    ]


def test_prometheus_gets_names_of_letters_digits_and_underscores():
    producer, registry = Producer(client_id="a", bootstrap_servers="a:1"), CollectorRegistry()
    registry.register(ProducerCollector(producer))
    producer.register_metric(
        ApplicationMetric("jobs open", "shop é", lambda: 1, tags={"at 1": "x", "2nd": "y"})
    )
    (family,) = registry.collect()
    (sample,) = family.samples
    assert sample.name == "kafka_shop___jobs_open"
    assert sample.labels == {"client_id": "a", "at_1": "x", "_2nd": "y"}


def test_prometheus_gets_one_value_of_counters_with_and_without_the_suffix():
    producer, registry = Producer(client_id="a", bootstrap_servers="a:1"), CollectorRegistry()
    registry.register(ProducerCollector(producer))
    for name, value in (("jobs", 1), ("jobs-total", 2)):
        metric = ApplicationMetric(name, "shop", partial(float, value), MetricKind.COUNTER)
        producer.register_metric(metric)
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'kafka_shop_jobs_total{client_id="a"} 2.0'
    ]


async def test_prometheus_reads_a_blocking_producer() -> None:
    def work(servers: str) -> dict[tuple[str, str], float]:
        registry = CollectorRegistry()
        with blocking.Producer(bootstrap_servers=servers, client_id="c") as producer:
            collector = ProducerCollector(producer)
            registry.register(collector)
            producer.send("t", b"v").result()
            assert producer.statistics().records_queued == 0
            return samples(registry)

    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        read = await asyncio.to_thread(work, cluster.bootstrap_servers)
    assert read["kafka_producer_record_acknowledged_total", "client_id=c"] == 1


def tracing() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider, spans


async def test_a_span_follows_the_record_and_its_context_travels_in_the_headers() -> None:
    provider, spans = tracing()
    tracer = provider.get_tracer("test")
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            interceptor_classes=[TracingInterceptor(provider, {"service": "shop"})],
            key_serializer=str.encode,
        ) as producer,
    ):
        with tracer.start_as_current_span("request") as request:
            old = b"00-11111111111111111111111111111111-1111111111111111-01"
            headers = [("own", b"1"), ("traceparent", old)]
            delivery = await producer.send("t", None, "key", headers=headers)
            assert not spans.get_finished_spans()
            metadata = await delivery
            await asyncio.sleep(0)
        (record,) = (await read_topic(cluster.bootstrap_servers, "t"))[0]
    span, parent = spans.get_finished_spans()
    assert (span.name, span.kind, parent.name) == ("send t", SpanKind.PRODUCER, "request")
    assert span.parent == request.get_span_context()
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "key",
        "messaging.kafka.message.tombstone": True,
        "messaging.kafka.offset": metadata.offset,
        "service": "shop",
    }
    context = span.get_span_context()
    assert context is not None
    mark = f"00-{trace.format_trace_id(context.trace_id)}-{trace.format_span_id(context.span_id)}-"
    (own, traceparent) = record.headers
    assert own == ("own", b"1")
    assert traceparent[0] == "traceparent"
    assert traceparent[1].startswith(mark.encode())


def test_a_span_of_a_record_that_fails_says_so():
    provider, spans = tracing()

    async def act(stage: Stage) -> None:
        stage.faults.add(Fault(ErrorAnswer(87), api=ApiKey.PRODUCE))
        async with stage.producer as producer:
            with pytest.raises(KafkaError):
                await producer.send_and_wait("t", b"v")
            with pytest.raises(KafkaError):
                await producer.send("t", b"v" * (2 << 20))
        for span, error in zip(
            spans.get_finished_spans(), ("InvalidRecordError", "RecordTooLargeError"), strict=True
        ):
            assert span.status.status_code is StatusCode.ERROR
            assert (span.attributes or {})["error.type"] == error

    play(act, interceptor_classes=(TracingInterceptor(provider),), **ROOMY)


def test_records_that_are_not_serialized_end_their_spans():
    provider, spans = tracing()

    async def reading(value: str) -> bytes:
        await asyncio.sleep(1)
        raise LookupError(value)

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            with pytest.raises(SerializationError):
                await producer.send("t", "v")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await producer.send("t", "v")
            for headers in (5, [("own",)]):  # no span begins
                with pytest.raises(SerializationError):
                    await producer.send("t", "v", headers=headers)  # type: ignore[arg-type]
            ended = spans.get_finished_spans()
            errors = [(span.attributes or {})["error.type"] for span in ended]
            assert errors == ["SerializationError", "CancelledError"]
        assert len(spans.get_finished_spans()) == 2

    interceptor = TracingInterceptor(provider)
    play(act, interceptor_classes=(interceptor,), value_serializer=reading, **ROOMY)


def test_spans_whose_records_lose_their_headers_end_all_the_same():
    provider, spans = tracing()

    class Stripper:
        def on_send(self, record: Record) -> Record:
            return Record(record.value, topic=record.topic)

    async def act(stage: Stage) -> None:
        async with stage.producer as producer:
            for _ in range(5):
                await producer.send_and_wait("t", b"v")
            assert not spans.get_finished_spans()
        assert len(spans.get_finished_spans()) == 5

    play(act, interceptor_classes=(TracingInterceptor(provider), Stripper()), **ROOMY)


def values(reader: InMemoryMetricReader) -> dict[str, list[tuple[Any, dict[str, Any]]]]:
    data = reader.get_metrics_data()
    found: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name] = [
                    (point.value, dict(point.attributes)) for point in metric.data.data_points
                ]
    return found


async def test_a_meter_observes_the_metrics_under_their_telemetry_names() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    async with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="d") as producer,
    ):
        await producer.send_many("t", [b"v"] * 3)
        observe(producer, provider)
        read = await asyncio.to_thread(values, reader)
    provider.shutdown()
    sent = "org.apache.kafka.producer.record.send.total"
    assert read[sent] == [(3, {"client_id": "d"})]
    topic = "org.apache.kafka.producer.topic.record.send.total"
    assert read[topic] == [(3, {"client_id": "d", "topic": "t"})]


async def test_a_meter_observes_every_producer_also_one_that_replaces_another() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    sent = "org.apache.kafka.producer.record.send.total"
    async with EmbeddedCluster(topics={"t": 1}) as cluster:

        async def observed(client_id: str, records: int) -> Producer:
            servers = cluster.bootstrap_servers
            producer = Producer(bootstrap_servers=servers, client_id=client_id)
            await producer.start()
            await producer.send_many("t", [b"v"] * records)
            observe(producer, provider)
            return producer

        first, second = await observed("a", 1), await observed("b", 2)
        observe(first, provider)
        read = await asyncio.to_thread(values, reader)
        assert read[sent] == [(1, {"client_id": "a"}), (2, {"client_id": "b"})]
        await first.close()
        del first
        gc.collect()
        third = await observed("c", 3)
        read = await asyncio.to_thread(values, reader)
        for producer in (second, third):
            await producer.close()
    provider.shutdown()
    assert read[sent][-2:] == [(2, {"client_id": "b"}), (3, {"client_id": "c"})]


async def test_a_meter_observes_a_producer_in_place_of_an_earlier_one_with_its_client_id() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        options = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "a"}
        async with Producer(**options) as earlier:
            await earlier.send_many("t", [b"v"] * 5)
            observe(earlier, provider)
        async with Producer(**options) as later:
            await later.send_and_wait("t", b"v")
            observe(later, provider)
            read = values(reader)
    provider.shutdown()
    assert read["org.apache.kafka.producer.record.send.total"] == [(1, {"client_id": "a"})]


def test_a_collection_reads_a_producer_once_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counted(Producer):
        reads = 0

        def all_metrics(self) -> Sequence[Metric]:
            self.reads += 1
            return super().all_metrics()

    producer, reader = Counted(client_id="a", bootstrap_servers="a:1"), InMemoryMetricReader()
    provider = MeterProvider([reader])
    for number in range(8):
        producer.register_metric(ApplicationMetric(f"jobs-{number}", "shop", lambda: 7))
    observe(producer, provider)
    monkeypatch.setattr(time, "monotonic", count(1000.0).__next__)  # a second for each metric
    for _ in range(2):
        producer.reads = 0
        assert len(values(reader)) == 8
        assert producer.reads == 1
    provider.shutdown()


@pytest.mark.parametrize("name", ["jobs (open)", "größe", "j" * 300], ids=lambda name: name[:11])
def test_a_meter_observes_a_metric_whose_name_opentelemetry_refuses(name: str) -> None:
    producer, reader = Producer(client_id="a", bootstrap_servers="a:1"), InMemoryMetricReader()
    provider = MeterProvider([reader])
    producer.register_metric(ApplicationMetric(name, "shop", lambda: 7))
    observe(producer, provider)
    (points,) = values(reader).values()
    provider.shutdown()
    assert points == [(7, {"client_id": "a"})]


def test_a_producer_that_is_not_exported_imports_no_exporter() -> None:
    program = (
        "import sys, aioproducer.runtime.engine, aioproducer.metrics\n"
        "print([m for m in sys.modules if m.partition('.')[0] in "
        "('prometheus_client', 'opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
