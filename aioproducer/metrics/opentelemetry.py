"""OpenTelemetry: a span per record, its context in the record's headers; metrics for a meter.

Needs the extra `aioproducer[otel]`; nothing else imports this module, so it costs nothing when it
is not used.

    producer = Producer(interceptor_classes=[TracingInterceptor()], ...)
    observe(producer)

Invariant: every span that was begun ends: with the record's outcome, or when too many are open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary, ref

from aioproducer._checks.extras import required
from aioproducer._version import __version__
from aioproducer.config.option import plain
from aioproducer.metrics import Metric, MetricKind
from aioproducer.metrics.reading import Measured, read
from aioproducer.serializers.calling import header_pairs
from aioproducer.types import HeaderPairs, Record, RecordMetadata

with required(__name__, "otel"):
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

__all__ = ["TracingInterceptor", "observe"]

NAME: Final = "aioproducer"
SENDING: Final = {
    "messaging.system": "kafka",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}
"""Attributes of every span, by the conventions for messaging."""
_CORRELATION = "traceparent"
_MOST_OPEN = 100_000
_FRESH_S, _LONGEST_COLLECTION_S = 0.5, 10.0
_UNNAMEABLE: Final = re.compile(r"[^-_./a-zA-Z0-9]")
"""Characters that OpenTelemetry refuses in the name of an instrument."""
_LONGEST_NAME: Final = 255


class TracingInterceptor:
    """Begins a span when a record is sent and ends it with the outcome.

    The current span is its parent; its context goes into the record's headers, for consumers to
    continue. Propagators that write no `traceparent` make spans end when the record is handed over.

    Args:
        tracer_provider: the global one when left out.
        attributes: set on every span besides those of the conventions.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(NAME, __version__, tracer_provider)
        self._attributes = dict(attributes or {})
        self._open: dict[bytes, Span] = {}

    def on_send(self, record: Record) -> Record:
        """Begin the span, and put its context into the headers.

        Raises:
            SerializationError: the record has no pairs as headers; no span has begun.
        """
        pairs = header_pairs(record.topic or "", record.headers)
        attributes: dict[str, str | int] = {
            **SENDING,
            "messaging.destination.name": record.topic or "",
            **self._attributes,
        }
        if isinstance(record.key, str):
            attributes["messaging.kafka.message.key"] = record.key
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        span = self._tracer.start_span(
            f"send {plain(record.topic)}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        context = {name: value.encode() for name, value in carrier.items()}
        if _CORRELATION in context and span.is_recording():
            if len(self._open) >= _MOST_OPEN:
                # A later interceptor removes our headers: their records cannot be distinguished.
                self._open.pop(next(iter(self._open))).end()
            self._open[context[_CORRELATION]] = span
        else:
            span.end()
        return Record(
            record.value,
            record.key,
            (*(pair for pair in pairs if pair[0] not in context), *context.items()),
            record.timestamp_ms,
            record.partition,
            record.topic,
        )

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
    ) -> None:
        """End the span with what became of the record."""
        marks = (value for name, value in headers if name == _CORRELATION and value is not None)
        span = self._open.pop(next(marks, b""), None)
        if span is None:
            return
        if metadata.partition >= 0:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
        if metadata.offset is not None:
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    def close(self) -> None:
        """End the open spans."""
        while self._open:
            self._open.popitem()[1].end()


def observe(producer: Measured, meter_provider: MeterProvider | None = None) -> None:
    """Offer every metric the producer has now, and will have under the same names, to a meter.

    Call it when the producer has started, and after metrics of the application were registered; for
    the metrics of topics after the first record, or again. Names are those of KIP-714, attributes
    the metric's tags and `client_id`. The producer is held weakly; of several with the same
    `client_id`, the last is observed.
    """
    meter = metrics.get_meter(NAME, __version__, meter_provider)
    observed = _globally
    if meter_provider is not None:
        observed = _everywhere.setdefault(meter_provider, _Observed())
    observed.add(producer, meter)


class _Observed:
    """The producers that one meter provider observes.

    All of them share an instrument for each name: a meter ignores the callbacks of a second one.
    """

    def __init__(self) -> None:
        self._snapshots: dict[str, _Snapshot] = {}
        """Snapshots by client id; replaced as a whole, since other threads read it."""
        self._names: set[str] = set()

    def add(self, producer: Measured, meter: Meter) -> None:
        """Observe a producer, once, and the names of all metrics that it has now.

        It replaces one with the same `client_id`, to whose counts its own would be added.
        """
        snapshot = _Snapshot(producer)
        known = {name: x for name, x in self._snapshots.items() if x.producer() is not None}
        self._snapshots = known | {producer.client_id: snapshot}
        for name, (metric, *_) in snapshot.read().items():
            if name not in self._names:
                self._names.add(name)
                create = (
                    meter.create_observable_counter
                    if metric.kind is MetricKind.COUNTER
                    else meter.create_observable_gauge
                )
                create(name, [self._callback(name)], description=metric.description)

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observations(_: CallbackOptions) -> Iterable[Observation]:
            for snapshot in self._snapshots.values():
                yield from snapshot.observations(name)

        return observations


_everywhere: Final[WeakKeyDictionary[MeterProvider, _Observed]] = WeakKeyDictionary()
_globally: Final = _Observed()
"""The producers of the global provider, which may be set after the first call."""


class _Snapshot:
    """The metrics of one producer, read once for all instruments of one collection.

    A collection, which may take seconds, asks for each name once.
    """

    def __init__(self, producer: Measured) -> None:
        self.producer: ref[Measured] = ref(producer)
        self.client_id: str = producer.client_id
        self._read_at = float("-inf")
        self._metrics: Mapping[str, Sequence[Metric]] = {}
        self._collected: set[str] = set()

    def read(self) -> Mapping[str, Sequence[Metric]]:
        """Read the metrics now; return them by their names."""
        producer = self.producer()
        found: dict[str, list[Metric]] = {}
        for metric in () if producer is None else read(producer):
            name = _UNNAMEABLE.sub("_", metric.telemetry_name)[:_LONGEST_NAME]
            found.setdefault(name, []).append(metric)
        return found

    def observations(self, name: str) -> Iterable[Observation]:
        """Yield the values of one metric, as read for this collection."""
        age = time.monotonic() - self._read_at
        is_used = name in self._collected or age >= _LONGEST_COLLECTION_S
        if is_used and age >= _FRESH_S:
            self._metrics, self._collected = self.read(), set()
            self._read_at = time.monotonic()
        self._collected.add(name)
        for metric in self._metrics.get(name, ()):
            tags = {key.replace("-", "_"): value for key, value in metric.tags}
            yield Observation(metric.value, {"client_id": self.client_id, **tags})
