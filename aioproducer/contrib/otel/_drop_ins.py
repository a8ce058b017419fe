"""Wrappers for the drop-ins, in addition to those of both producers.

confluent-kafka's interface passes records to a thread: a record's span begins in `produce()`.
aiokafka's batches are gathered record by record before their topic is given: a batch's span begins
with its first record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary

from aioproducer._checks.extras import required
from aioproducer.client.producer import Producer
from aioproducer.compat.aiokafka._batch import BatchBuilder
from aioproducer.compat.aiokafka._connection import Connection
from aioproducer.compat.aiokafka.producer import AIOKafkaProducer
from aioproducer.compat.confluent._loop_side import LoopSide
from aioproducer.compat.confluent._reports import Record, Reports
from aioproducer.contrib.otel._spans import Carried, SendSpan, Tracing

with required("aioproducer.contrib.otel", "otel"):
    from opentelemetry import propagate

__all__ = ["CALLS"]

Wrapper = Callable[..., Any]

_gathered: Final[WeakKeyDictionary[BatchBuilder, SendSpan]] = WeakKeyDictionary()
"""Spans of batches that are not sent yet."""


def _put(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def put(self: LoopSide, record: Record) -> None:
        engine = None if self.producer is None else self.producer._engine
        span, headers = tracing.begin(
            self._config,
            engine,
            record.topic,
            record.value,
            record.key,
            record.headers,
            record.partition,
            is_drop_in=True,
        )
        with nullcontext() if span is None else span.failing():
            original(self, record._replace(headers=headers))

    return put


def _report_when_done(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def report_when_done(self: Reports, record: Record, delivery: Any) -> None:
        if type(record.headers) is Carried and record.headers.span is not None:
            record.headers.span.end_with(delivery)
        original(self, record, delivery)

    del tracing
    return report_when_done


def _failed(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def failed(self: Reports, record: Record, error: Any) -> None:
        if type(record.headers) is Carried and record.headers.span is not None:
            record.headers.span.fail(error)
        original(self, record, error)

    del tracing
    return failed


def _append(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def append(
        self: BatchBuilder, *, timestamp: float | None, key: Any, value: Any, headers: Any = None
    ) -> Any:
        span = _gathered.get(self)
        if span is None and not self.record_count() and not self.closed():
            span = tracing.begin_gathered()
            if span is not None:
                _gathered[self] = span
        if span is not None and isinstance(headers, list | None):
            headers = span.shared(headers)
        return original(self, timestamp=timestamp, key=key, value=value, headers=headers)

    return append


def _send_gathered(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    async def send_gathered(
        producer: Producer, batch: BatchBuilder, topic: str, partition: int | None
    ) -> Any:
        engine = producer._engine
        span = _gathered.pop(batch, None)
        if span is None:  # sent before, or gathered without spans
            span = tracing.begin_many(producer.config, engine, topic)
        if span is None:
            return await original(producer, batch, topic, partition)
        span.name_batch(producer.config, engine, topic, batch.record_count())
        if engine is not None and not engine.appender.takes_headers:
            batch = _without_context(batch)
        with span.failing():
            future = await original(producer, batch, topic, partition)
        future.add_done_callback(lambda future: _finish(span, future))
        return future

    return send_gathered


def _without_context(batch: BatchBuilder) -> BatchBuilder:
    """Return a copy for brokers that store no headers."""
    names = propagate.get_global_textmap().fields
    copy = BatchBuilder(0)
    copy._records = [
        (key, value, tuple(pair for pair in pairs if pair[0] not in names), stamp)
        for key, value, pairs, stamp in batch.parts()
    ]
    return copy


def _finish(span: SendSpan, future: asyncio.Future[Any]) -> None:
    """End a batch's span without marking its failure as seen."""
    error = None if future.cancelled() else getattr(future, "_exception", None)
    metadata = None if future.cancelled() or error is not None else future.result()
    if metadata is None:
        span.fail(error)
    else:
        span.finish(metadata.topic, metadata.partition, metadata.offset)


def _never_at_once(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    """Have each record of aiokafka's interface pass through `Producer.send`."""
    del tracing, original

    def accept_at_once(self: AIOKafkaProducer, *arguments: Any, **named: Any) -> None:
        del self, arguments, named

    return accept_at_once


CALLS: Final[tuple[tuple[type, str, Callable[[Tracing, Callable[..., Any]], Wrapper]], ...]] = (
    (LoopSide, "put", _put),
    (Reports, "report_when_done", _report_when_done),
    (Reports, "failed", _failed),
    (AIOKafkaProducer, "_own_accept_at_once", _never_at_once),
    (BatchBuilder, "append", _append),
    (Connection, "send_gathered", _send_gathered),
)
