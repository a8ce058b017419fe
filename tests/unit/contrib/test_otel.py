"""The instrumentor for OpenTelemetry: a span for what is sent, its context on every record."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum
from typing import Any

import pandas
import pyarrow as pa
import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aioproducer import Producer, blocking
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.compat.confluent import Producer as ConfluentProducer
from aioproducer.compat.confluent.aio import AIOProducer
from aioproducer.compat.kafka import KafkaProducer
from aioproducer.contrib.otel import AioproducerInstrumentor
from aioproducer.errors import (
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    WouldBlockError,
)
from aioproducer.metrics.opentelemetry import TracingInterceptor
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.types import Record

OWN = b"00-11111111111111111111111111111111-1111111111111111-01"


class Traces:
    """A provider whose spans are kept."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def ended(self, kind: SpanKind = SpanKind.PRODUCER) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    async def wait_for(self, count: int, kind: SpanKind = SpanKind.PRODUCER) -> list[ReadableSpan]:
        async with asyncio.timeout(10):
            while len(self.ended(kind)) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)  # a span too many would be here by then
        spans = self.ended(kind)
        assert len(spans) == count
        return spans


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    AioproducerInstrumentor().instrument(tracer_provider=made.provider)
    yield made
    AioproducerInstrumentor().uninstrument()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 1}) as started:
        yield started


async def records_of(cluster: EmbeddedCluster) -> list[Any]:
    return list((await read_topic(cluster.bootstrap_servers, "t"))[0])


def mark(span: ReadableSpan) -> bytes:
    made = span.get_span_context()
    assert made is not None
    return f"00-{made.trace_id:032x}-{made.span_id:016x}-{made.trace_flags:02x}".encode()


def marks(records: list[Any]) -> list[list[bytes]]:
    """The `traceparent` headers of each record."""
    return [[value for name, value in each.headers if name == "traceparent"] for each in records]


async def through_producer(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send("t", b"1")
        producer.send_nowait("t", b"2", headers={"own": b"h"})
        await producer.send_and_wait("t", b"3", b"k", headers=[("own", b"h")], partition=0)


async def through_aiokafka(servers: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await (await producer.send("t", b"1"))
        await producer.send_and_wait("t", b"2", headers=[("own", b"h")])
        await producer.send("t", key=b"3")


async def through_confluent_aio(servers: str) -> None:
    async with AIOProducer({"bootstrap.servers": servers}) as producer:
        for number in range(3):
            await (await producer.produce("t", b"%d" % number, headers={"own": "h"}))


def through_blocking(servers: str) -> None:
    with blocking.Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"1").result(10)
        producer.send("t", b"2", headers=[("own", b"h")])
        producer.send_and_wait("t", b"3")


def through_kafka_python(servers: str) -> None:
    with KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send("t", b"1").get(10)
        producer.send("t", b"2", headers=[("own", b"h")])
        producer.send("t", b"3", partition=0)


def through_confluent(servers: str) -> None:
    producer = ConfluentProducer({"bootstrap.servers": servers})
    producer.produce("t", b"1", on_delivery=lambda error, message: None)
    producer.produce("t", b"2", headers={"own": b"h"})
    producer.produce("t", "3")
    producer.flush(10)
    producer.close()


def in_thread(work: Callable[[str], None]) -> Callable[[str], Awaitable[None]]:
    async def run(servers: str) -> None:
        await asyncio.to_thread(work, servers)

    run.__name__ = work.__name__
    return run


WAYS = [
    through_producer,
    through_aiokafka,
    through_confluent_aio,
    in_thread(through_blocking),
    in_thread(through_kafka_python),
    in_thread(through_confluent),
]


@pytest.mark.parametrize("send_three", WAYS, ids=lambda each: each.__name__)
async def test_each_record_has_one_span_and_its_context(
    send_three: Callable[[str], Awaitable[None]], traces: Traces, cluster: EmbeddedCluster
) -> None:
    with traces.tracer.start_as_current_span("request") as request:
        await send_three(cluster.bootstrap_servers)
    spans = await traces.wait_for(3)
    records = await records_of(cluster)
    assert sorted(marks(records)) == sorted([mark(span)] for span in spans)
    assert len({span.get_span_context().span_id for span in spans}) == 3  # type: ignore[union-attr]
    for span in spans:
        attributes = dict(span.attributes or {})
        assert span.name == "send t"
        assert span.parent == request.get_span_context()
        assert attributes["messaging.system"] == "kafka"
        assert attributes["messaging.operation.name"] == "send"
        assert attributes["messaging.operation.type"] == "send"
        assert attributes["messaging.destination.name"] == "t"
        assert attributes["messaging.destination.partition.id"] == "0"
        assert attributes["messaging.client.id"]
        host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
        assert attributes["server.address"] == host
        assert isinstance(attributes["server.port"], int)
        assert port
    assert sorted((span.attributes or {})["messaging.kafka.offset"] for span in spans) == [0, 1, 2]
    assert any(("own", b"h") in record.headers for record in records)


@pytest.mark.parametrize("send_three", WAYS, ids=lambda each: each.__name__)
async def test_without_the_instrumentor_nothing_is_added(
    send_three: Callable[[str], Awaitable[None]], traces: Traces, cluster: EmbeddedCluster
) -> None:
    AioproducerInstrumentor().uninstrument()
    await send_three(cluster.bootstrap_servers)
    assert not any(map(len, marks(await records_of(cluster))))
    assert not traces.ended()


def test_the_calls_are_as_before_after_uninstrumenting() -> None:
    before = {name: Producer.__dict__[name] for name in ("send", "send_nowait")}
    instrumentor = AioproducerInstrumentor()
    assert instrumentor is AioproducerInstrumentor()
    instrumentor.instrument(skip_dep_check=True)
    instrumentor.instrument()
    assert instrumentor.is_instrumented_by_opentelemetry
    assert Producer.__dict__["send"] is not before["send"]
    instrumentor.uninstrument()
    assert not instrumentor.is_instrumented_by_opentelemetry
    assert {name: Producer.__dict__[name] for name in before} == before


async def test_a_producer_that_runs_already_is_traced_and_untraced(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    instrumentor = AioproducerInstrumentor()
    instrumentor.uninstrument()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"1")
        instrumentor.instrument(tracer_provider=traces.provider)
        await producer.send_and_wait("t", b"2")
        instrumentor.uninstrument()
        await producer.send_and_wait("t", b"3")
    (span,) = await traces.wait_for(1)
    assert marks(await records_of(cluster)) == [[], [mark(span)], []]


async def test_spans_have_the_text_of_a_topic_that_is_a_member_of_an_enumeration(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    class Topic(str, Enum):  # noqa: UP042 - its members are formatted otherwise
        ORDERS = "t"

    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait(Topic.ORDERS, b"1")
    (span,) = await traces.wait_for(1)
    assert (span.name, (span.attributes or {})["messaging.destination.name"]) == ("send t", "t")


def items() -> list[Any]:
    return [
        b"value",
        (b"key", b"value"),
        (b"key", b"value", {"own": b"h"}),
        (b"key", b"value", [("own", b"h")], 1000, 0),
        Record(b"value", topic="t"),
        Record(b"value", headers=(("own", b"h"),)),
    ]


async def each(values: list[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def many(servers: str) -> Any:
    async with Producer(bootstrap_servers=servers) as producer:
        return await producer.send_many("t", items())


async def many_of_an_async_source(servers: str) -> Any:
    async with Producer(bootstrap_servers=servers) as producer:
        return await producer.send_many("t", each(items()))


async def many_blocking(servers: str) -> Any:
    def work() -> Any:
        with blocking.Producer(bootstrap_servers=servers) as producer:
            return producer.send_many("t", iter(items()))

    return await asyncio.to_thread(work)


def table() -> pa.Table:
    return pa.table({"value": [b"v"] * 6, "key": [b"k"] * 6})


async def arrow(servers: str) -> Any:
    async with Producer(bootstrap_servers=servers) as producer:
        return await producer.send_arrow("t", table(), key="key")


async def arrow_blocking(servers: str) -> Any:
    def work() -> Any:
        with blocking.Producer(bootstrap_servers=servers) as producer:
            return producer.send_arrow("t", table())

    return await asyncio.to_thread(work)


async def gathered(servers: str) -> Any:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        batch = producer.create_batch()
        for number in range(6):
            headers = [("own", b"h")] if number % 2 else None
            assert batch.append(key=None, value=b"v", timestamp=None, headers=headers)
        size = batch.size()
        await (await producer.send_batch(batch, "t", partition=0))
        assert size > 6 * len(OWN)


BULK = [many, many_of_an_async_source, many_blocking, arrow, arrow_blocking, gathered]


@pytest.mark.parametrize("send_six", BULK, ids=lambda each: each.__name__)
async def test_a_call_with_many_records_has_one_span_whose_context_is_on_each(
    send_six: Callable[[str], Awaitable[Any]], traces: Traces, cluster: EmbeddedCluster
) -> None:
    with traces.tracer.start_as_current_span("request") as request:
        result = await send_six(cluster.bootstrap_servers)
    assert result is None or (result.count, result.delivered) == (6, 6)
    (span,) = await traces.wait_for(1)
    assert marks(await records_of(cluster)) == [[mark(span)]] * 6
    assert (span.name, span.parent) == ("send t", request.get_span_context())
    assert (span.attributes or {})["messaging.batch.message_count"] == 6
    assert (span.attributes or {})["messaging.destination.name"] == "t"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_record_keeps_the_context_it_has_and_the_span_links_to_it(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"1", headers=[("traceparent", OWN)])
        await producer.send_many("t", [b"2", (None, b"3", {"traceparent": OWN})])
    (single,) = await traces.wait_for(1, SpanKind.CLIENT)
    (bulk,) = await traces.wait_for(1)
    assert marks(await records_of(cluster)) == [[OWN], [mark(bulk)], [OWN]]
    for span in (single, bulk):
        assert [f"{link.context.trace_id:032x}" for link in span.links] == ["1" * 32]


async def aiokafka_with(servers: str, name: str, context: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait("t", b"1", headers=[(name, context)])


async def kafka_python_with(servers: str, name: str, context: bytes) -> None:
    def work() -> None:
        with KafkaProducer(bootstrap_servers=servers) as producer:
            producer.send("t", b"1", headers=[(name, context)])

    await asyncio.to_thread(work)


async def confluent_with(servers: str, name: str, context: bytes) -> None:
    async with AIOProducer({"bootstrap.servers": servers}) as producer:
        await (await producer.produce("t", b"1", headers=[(name, context)]))


@pytest.mark.parametrize("send", [aiokafka_with, kafka_python_with, confluent_with])
async def test_another_instrumentation_of_the_drop_in_makes_the_only_span(
    send: Callable[[str, str, bytes], Awaitable[None]], traces: Traces, cluster: EmbeddedCluster
) -> None:
    with traces.tracer.start_as_current_span("t send", kind=SpanKind.PRODUCER):
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
    await send(cluster.bootstrap_servers, "traceparent", carrier["traceparent"].encode())
    (span,) = await traces.wait_for(1)
    assert span.name == "t send"
    assert not traces.ended(SpanKind.CLIENT)
    assert marks(await records_of(cluster)) == [[mark(span)]]


async def test_a_context_of_the_current_producer_span_is_not_linked_to(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with traces.tracer.start_as_current_span("publish", kind=SpanKind.PRODUCER):
            headers: dict[str, str] = {}
            propagate.inject(headers)
            pairs = [(name, value.encode()) for name, value in headers.items()]
            await producer.send_and_wait("t", b"1", headers=pairs)
    (span,) = await traces.wait_for(1)
    assert span.name == "publish"
    assert not traces.ended(SpanKind.CLIENT)


async def test_an_interceptor_that_traces_makes_the_only_span(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    tracing = TracingInterceptor(traces.provider)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, interceptor_classes=[tracing]
    ) as producer:
        await producer.send_and_wait("t", b"1")
    await traces.wait_for(1)


async def test_suppressed_instrumentation_makes_no_span(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    token = context.attach(context.set_value(context._SUPPRESS_INSTRUMENTATION_KEY, True))
    try:
        await through_producer(cluster.bootstrap_servers)
        await many(cluster.bootstrap_servers)
    finally:
        context.detach(token)
    assert not any(map(len, marks(await records_of(cluster))))
    assert not traces.ended()


async def test_what_fails_ends_its_span_with_the_error(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    large = b"v" * (2 << 20)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", large)
        with pytest.raises(RecordTooLargeError):
            await producer.send_and_wait("t", large)
        result = await producer.send_many("t", [b"1", large, ("wrong",)])
        assert len(result.failed) == 2
        with pytest.raises(KafkaError):
            producer.send_nowait("t", object())
    spans = await traces.wait_for(4)
    for span in spans:
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes
    assert [(span.attributes or {})["error.type"] for span in spans] == [
        "RecordTooLargeError",
        "RecordTooLargeError",
        "RecordTooLargeError",
        "SerializationError",
    ]


async def test_what_is_no_items_for_send_many_is_refused_with_spans_too(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    config = {"bootstrap_servers": cluster.bootstrap_servers, "value_serializer": str.encode}
    async with Producer(**config) as producer:
        for items in ("text", table().to_pandas()):
            with pytest.raises(TypeError, match="send_many takes an iterable of items"):
                await producer.send_many("t", items)
    assert [span.status.status_code for span in await traces.wait_for(2)] == [StatusCode.ERROR] * 2
    assert await records_of(cluster) == []


async def test_headers_without_a_truth_value_are_refused_as_without_spans(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(SerializationError, match="headers must be pairs"):
            await producer.send("t", b"1", headers=pandas.NA)
        result = await producer.send_many("t", [(b"k", b"2", pandas.NA), b"3"])
    assert (result.delivered, len(result.failed)) == (1, 1)


async def test_an_item_of_a_class_with_another_constructor_is_traced(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    class Order(Record):
        def __init__(self, number: int) -> None:
            super().__init__(b"%d" % number, topic="t")

    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert (await producer.send_many("t", [Order(1), Order(2)])).delivered == 2
    (span,) = await traces.wait_for(1)
    records = await records_of(cluster)
    assert [record.value for record in records] == [b"1", b"2"]
    assert marks(records) == [[mark(span)]] * 2


async def test_a_record_whose_await_is_cancelled_ends_its_span_with_its_outcome(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
        await producer.warm_up(["t"])
        sent = [await producer.send("t", b"%d" % number) for number in range(2)]
        for _ in range(2):
            gathered = asyncio.gather(*sent)
            gathered.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gathered
        assert not traces.ended()
        await producer.flush()
        spans = await traces.wait_for(2)
    assert {(span.attributes or {})["messaging.kafka.offset"] for span in spans} == {0, 1}
    assert reported == []


async def test_what_send_nowait_leaves_to_send_has_no_span(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(WouldBlockError):
            producer.send_nowait("t", b"1")
    assert not traces.ended()


async def test_headers_that_cannot_be_sent_are_refused_as_without_tracing(
    traces: Traces, cluster: EmbeddedCluster
) -> None:
    wrong: Any = 5
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(KafkaError, match="headers must be pairs"):
            await producer.send("t", b"1", headers=wrong)
        await producer.send_and_wait("t", b"2", headers=iter([("own", b"h")]))
    failed, _ = await traces.wait_for(2)
    assert failed.status.status_code is StatusCode.ERROR
    ((own, _),) = [record.headers for record in await records_of(cluster)]
    assert own == ("own", b"h")


async def test_a_failure_that_is_never_retrieved_is_still_logged(
    traces: Traces, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000)
    async with producer:
        await producer.warm_up(["t"])
        await producer.send("t", b"1")
        with caplog.at_level(logging.ERROR):
            producer.purge()
            (span,) = await traces.wait_for(1)
            gc.collect()
            await asyncio.sleep(0.05)
    assert (span.attributes or {})["error.type"] == "RecordsPurgedError"
    assert "t-0" in caplog.text or "t" in caplog.text
    assert caplog.records


def test_a_record_of_confluents_that_finds_no_cluster_ends_its_span(traces: Traces) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "linger.ms": 0}
    )
    errors: list[Any] = []
    producer.produce("t", b"1", on_delivery=lambda error, message: errors.append(error))
    producer.flush(10)
    producer.close()
    (span,) = traces.ended()
    assert span.status.status_code is StatusCode.ERROR
    assert trace.format_trace_id(span.get_span_context().trace_id)  # type: ignore[union-attr]
