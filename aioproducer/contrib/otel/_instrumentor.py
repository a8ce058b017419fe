"""The instrumentor: replaces the calls that send by calls that make spans, and restores them.

Every interface of this package sends through `Producer`, so most need no separate wrapper: the
drop-in for aiokafka calls `Producer.send` in the caller's task, that for kafka-python
`blocking.Producer.send` in the caller's thread. Where records are passed to a thread or gathered
first (confluent-kafka, `send_batch`), the span begins in the call of the program, and the headers
mark that for the inner calls (`Carried`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from aioproducer import blocking
from aioproducer.client import producer as asynchronous
from aioproducer.client.bulk import BulkSendMixin
from aioproducer.compat.aiokafka._connection import Connection as AiokafkaConnection
from aioproducer.compat.kafka._connection import Connection as KafkaConnection
from aioproducer.contrib.otel import _drop_ins as drop_ins
from aioproducer.contrib.otel._spans import Carried, SendSpan, Tracing
from aioproducer.errors import WouldBlockError

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["AioproducerInstrumentor"]

Wrapper = Callable[..., Any]


class AioproducerInstrumentor:
    """Traces what this package sends, with the methods of OpenTelemetry's instrumentors.

    Covered are `Producer`, `blocking.Producer` and the drop-ins, also those made before: `send`,
    `send_nowait` and `send_and_wait` have a span per record; `send_many`, `send_arrow` and
    `send_batch` one per call, whose context is on each of its records. A `MockProducer` has none.
    There is one instance.
    """

    _instance: ClassVar[Self | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _replaced: list[tuple[type, str, Any]]

    def __new__(cls) -> Self:
        with cls._lock:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
                cls._instance._replaced = []
            return cls._instance

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether `instrument()` is in force."""
        return bool(self._replaced)

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return what has to be installed: nothing else."""
        return ()

    def instrument(
        self, *, tracer_provider: TracerProvider | None = None, **options: object
    ) -> None:
        """Begin to make spans; a second call does nothing.

        Args:
            tracer_provider: The global one when left out.
            **options: Those of other instrumentors; no effect.
        """
        del options
        with self._lock:
            if self._replaced:
                return
            tracing = Tracing(tracer_provider)
            for owner, name, make in (*_CALLS, *drop_ins.CALLS):
                original = owner.__dict__[name]
                wrapper = make(tracing, original)
                wrapper.__name__, wrapper.__doc__ = name, original.__doc__
                if isinstance(original, staticmethod):
                    wrapper = staticmethod(wrapper)
                setattr(owner, name, wrapper)
                self._replaced.append((owner, name, original))

    def uninstrument(self, **options: object) -> None:
        """Make no spans any more; those begun end with their records."""
        del options
        with self._lock:
            while self._replaced:
                owner, name, original = self._replaced.pop()
                setattr(owner, name, original)


def _awaited(end: Callable[[SendSpan, Any], None], tracing: Tracing, original: Wrapper) -> Wrapper:
    """Wrap `send` or `send_and_wait`; `end` takes the span and the result."""

    async def send(
        self: asynchronous.Producer,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        inner = isinstance(self, AiokafkaConnection)
        span, headers = _begun(tracing, self, topic, value, key, headers, partition, inner)
        place = {"headers": headers, "partition": partition, "timestamp_ms": timestamp_ms}
        if span is None:
            return await original(self, topic, value, key, **place)
        with span.failing():
            result = await original(self, topic, value, key, **place)
        end(span, result)
        return result

    return send


def _send_nowait(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def send_nowait(
        self: asynchronous.Producer,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        inner = isinstance(self, AiokafkaConnection)
        span, headers = _begun(tracing, self, topic, value, key, headers, partition, inner)
        place = {"headers": headers, "partition": partition, "timestamp_ms": timestamp_ms}
        if span is None:
            return original(self, topic, value, key, **place)
        with span.failing(ignored=(WouldBlockError,)):
            delivery = original(self, topic, value, key, **place)
        span.end_with(delivery)
        return delivery

    return send_nowait


def _send_many(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    async def send_many(
        self: asynchronous.Producer, topic: str, items: Any, *, partition: int | None = None
    ) -> Any:
        span = tracing.begin_many(self.config, self._engine, topic)
        if span is None:
            return await original(self, topic, items, partition=partition)
        with span.failing_many():
            result = await original(self, topic, span.carried_by(items), partition=partition)
        span.finish_many(result)
        return result

    return send_many


def _send_arrow(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    async def send_arrow(
        self: asynchronous.Producer,
        topic: str | None,
        data: object,
        *,
        value: str | None = "value",
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        topic_column: str | None = None,
    ) -> Any:
        from aioproducer.records.arrow import ArrowColumns  # heavy, and not needed to instrument
        from aioproducer.runtime.bulk.send_arrow import send_arrow as send_columns

        engine = self._usable()
        columns = ArrowColumns(value, key, headers, partition, timestamp, topic_column)
        span = tracing.begin_many(self.config, engine, topic)
        if span is None:
            return await send_columns(engine, topic, data, columns)
        with span.failing_many():
            result = await send_columns(engine, topic, data, columns, span.added)
        span.finish_many(result)
        return result

    del original
    return send_arrow


def _blocking_send(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def send(
        self: blocking.Producer,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        inner, producer = isinstance(self, KafkaConnection), self._producer
        span, headers = _begun(tracing, producer, topic, value, key, headers, partition, inner)
        if span is None:
            return original(self, topic, value, key, headers, partition, timestamp_ms)
        with span.failing(ignored=(WouldBlockError,)):
            handle = original(self, topic, value, key, headers, partition, timestamp_ms)
        span.end_with_handle(handle)
        return handle

    return send


def _blocking_send_many(tracing: Tracing, original: Callable[..., Any]) -> Wrapper:
    def send_many(
        self: blocking.Producer, topic: str, items: Any, *, partition: int | None = None
    ) -> Any:
        span = tracing.begin_many(self.config, self._producer._engine, topic)
        if span is None:
            return original(self, topic, items, partition=partition)
        with span.failing_many():
            result = original(self, topic, span.carried_by(items), partition=partition)
        span.finish_many(result)
        return result

    return send_many


def _begun(
    tracing: Tracing,
    producer: asynchronous.Producer,
    topic: Any,
    value: Any,
    key: Any,
    headers: Any,
    partition: Any,
    is_drop_in: bool,
) -> tuple[SendSpan | None, Any]:
    """Begin a record's span unless it has one; return it, and the headers to send."""
    engine = producer._engine
    if type(headers) is Carried:
        if headers.span is not None:
            headers.span.engine = engine
        is_kept = engine is None or engine.appender.takes_headers
        return None, headers if is_kept else headers.given
    return tracing.begin(
        producer.config, engine, topic, value, key, headers, partition, is_drop_in=is_drop_in
    )


_CALLS: tuple[tuple[type, str, Callable[[Tracing, Callable[..., Any]], Wrapper]], ...] = (
    (asynchronous.Producer, "send", partial(_awaited, SendSpan.end_with)),
    (asynchronous.Producer, "send_nowait", _send_nowait),
    (asynchronous.Producer, "send_and_wait", partial(_awaited, SendSpan.finish_record)),
    (BulkSendMixin, "send_many", _send_many),
    (BulkSendMixin, "send_arrow", _send_arrow),
    (blocking.Producer, "send", _blocking_send),
    (blocking.Producer, "send_many", _blocking_send_many),
)
