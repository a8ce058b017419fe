"""Spans by OpenTelemetry's conventions for messaging, and their context in the headers of records.

Invariants
- A span ends once: with the outcome of its record or call, or with an exception.
- Reading an outcome here does not count as retrieved: a failure is still reported.
- Headers that the caller gave are sent as they are; the context is added after them.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aioproducer._checks.extras import required
from aioproducer._util.arguments import is_asynchronous
from aioproducer._version import __version__
from aioproducer.config.option import plain
from aioproducer.errors import SerializationError
from aioproducer.metrics.opentelemetry import NAME, SENDING, TracingInterceptor
from aioproducer.types import Record

with required("aioproducer.contrib.otel", "otel"):
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

if TYPE_CHECKING:
    from aioproducer.blocking.handle import DeliveryHandle
    from aioproducer.config import ProducerConfig
    from aioproducer.runtime.bulk.result import Item, SendManyResult
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.runtime.engine import ProducerEngine
    from aioproducer.types import RecordMetadata

__all__ = ["Carried", "SendSpan", "Tracing"]

_LINKS: Final = 128
"""OpenTelemetry's default limit of links per span."""

Pairs = list[tuple[str, bytes | None]]
_SUPPRESSED: Final = getattr(contexts, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")


class Carried(list[tuple[str, bytes | None]]):
    """Headers of a record of which it is decided whether it has a span: further calls make none.

    Attributes:
        given: The headers without the span's context.
        span: The record's span, if it has one.
    """

    def __init__(self, headers: Any, span: SendSpan | None = None) -> None:
        super().__init__(_pairs(headers))
        self.given: Any = headers
        self.span: SendSpan | None = span
        if span is not None:
            self.extend(span.added)


class SendSpan:
    """One span, of a record or of the records of one call.

    Attributes:
        added: The headers that carry its context; none where brokers store no headers.
        engine: What sends the records; None while that is not known.
    """

    def __init__(self, span: Span, added: Pairs, engine: ProducerEngine | None) -> None:
        self.added: Pairs = added
        self._span = span
        self.engine: ProducerEngine | None = engine
        self._links = 0
        self._ended = False

    def carried(self, headers: Any) -> Any:
        """Return a record's headers with the context; as they are if they are not pairs."""
        try:
            return Carried(headers, self)
        except (TypeError, ValueError):
            return headers

    def shared(self, headers: Any) -> Any:
        """Return `carried`, unless the record has a context: that is kept, and linked to."""
        if self._is_linked(headers):
            return headers
        return self.carried(headers)

    def carried_by_item(self, item: Item) -> Item:
        """Return an item of `send_many` with the context; one that cannot be sent as it is."""
        # Imported here: it is heavy, and not needed to instrument.
        from aioproducer.runtime.bulk.send_many import as_record

        try:
            record = as_record(item)
        except SerializationError:
            return item
        headers = self.shared(record.headers)
        if headers is record.headers:
            return item
        if record.topic is None:
            return record.key, record.value, headers, record.timestamp_ms, record.partition
        # Not by `replace()`: the constructor of a subclass may have other arguments.
        key, value, at = record.key, record.value, record.timestamp_ms
        return Record(value, key, headers, at, record.partition, record.topic)

    def carried_by(self, items: Any) -> Any:
        """Return the items of `send_many` with the context, read as lazily as before."""
        # Imported here, see above.
        from aioproducer.runtime.bulk.send_many import check_items

        if not self.added:
            return items
        check_items(items)  # `send_many` could not see what a generator reads
        if is_asynchronous(items):
            return self._each_async(items)
        return self._each(items) if isinstance(items, Iterable) else items

    @contextmanager
    def failing(self, ignored: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """Within, records are handed over; the span ends if that fails.

        Args:
            ignored: Errors after which the caller tries again: then there is no span.
        """
        try:
            yield
        except ignored:
            self._ended = True
            raise
        except BaseException as error:
            self.fail(error)
            raise

    @contextmanager
    def failing_many(self) -> Iterator[None]:
        """`failing` for a call that sends many records, and says how far it came."""
        try:
            yield
        except BaseException as error:
            result: SendManyResult | None = getattr(error, "result", None)
            if result is None:
                self.fail(error)
            else:
                self.finish_many(result, error)
            raise

    def end_with(self, delivery: Delivery) -> None:
        """End with the outcome of a delivery."""
        delivery.add_done_callback(self._on_delivery)

    def end_with_handle(self, handle: DeliveryHandle) -> None:
        """End with the outcome of a blocking producer's record."""
        handle.add_done_callback(lambda handle: self._on_done(handle._delivery))

    def fail(self, error: BaseException | None, name: str | None = None) -> None:
        """End with an error; without one if the outcome will never be seen."""
        if error is not None:
            self._set("error.type", name or type(error).__qualname__)
            if not self._ended:
                self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._end()

    def finish(self, topic: str, partition: int, offset: int | None) -> None:
        """End with where the record, or the first of a batch, was written."""
        self._set("messaging.destination.partition.id", str(partition))
        if offset is not None and offset >= 0:
            self._set("messaging.kafka.offset", offset)
        self._set_server(topic, partition)
        self._end()

    def finish_record(self, metadata: RecordMetadata) -> None:
        """End with where the record was written."""
        self.finish(metadata.topic, metadata.partition, metadata.offset)

    def finish_many(self, result: SendManyResult, error: BaseException | None = None) -> None:
        """End with the result of a call that sent many records."""
        self._set("messaging.batch.message_count", result.count)
        if error is None and result.failed:
            error = result.failed[0].error
        self.fail(error)

    def name_batch(
        self, config: ProducerConfig, engine: ProducerEngine | None, topic: Any, count: int
    ) -> None:
        """Say where a batch goes, whose records were gathered before that was known."""
        self.engine = engine
        self._span.update_name(f"send {plain(topic)}")
        self._span.set_attributes(_attributes(config, topic))
        self._set("messaging.batch.message_count", count)

    # -- private ---------------------------------------------------------------------------------

    def _set(self, name: str, value: str | int) -> None:
        if not self._ended:
            self._span.set_attribute(name, value)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._span.end()

    def _set_server(self, topic: str, partition: int) -> None:
        cluster = None if self.engine is None else self.engine.metadata.cluster
        known = None if cluster is None else cluster.topics.get(topic)
        if cluster is None or known is None or not 0 <= partition < len(known.partitions):
            return
        leader = cluster.nodes.get(known.partitions[partition].leader)
        if leader is not None:
            self._set("server.address", leader.host)
            self._set("server.port", leader.port)

    def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.cancelled():
            self.end_with(delivery)  # a wait, such as `gather`, was cancelled, not the record
        else:
            self._on_done(delivery)

    def _on_done(self, delivery: Any) -> None:
        error = _error_of(delivery)
        if error is None:
            self.finish_record(delivery.result())
        else:
            self.fail(error)

    def _is_linked(self, headers: Any) -> bool:
        """Link to the context that a record has already, if it has one."""
        created = _created_in(headers)
        if created is None:
            return False
        if self._links < _LINKS:
            self._links += 1
            self._span.add_link(created)
        return True

    def _each(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            yield self.carried_by_item(item)

    async def _each_async(self, items: AsyncIterable[Item]) -> AsyncIterator[Item]:
        async for item in items:
            yield self.carried_by_item(item)


class Tracing:
    """Begins spans."""

    def __init__(self, tracer_provider: TracerProvider | None) -> None:
        self._tracer = trace.get_tracer(NAME, __version__, tracer_provider)

    def begin(
        self,
        config: ProducerConfig,
        engine: ProducerEngine | None,
        topic: Any,
        value: Any,
        key: Any,
        headers: Any,
        partition: Any,
        *,
        is_drop_in: bool,
    ) -> tuple[SendSpan | None, Any]:
        """Begin the span of one record; return it, and the headers to send.

        A record that carries a context already keeps it, and the span links to that. There is no
        span where another instrumentation has made one for this very record: where the context is
        that of the current producer span, and where the record comes from a drop-in.
        """
        if type(headers) is Carried:
            return None, headers
        created = _created_in(headers)
        if _is_off(config) or (created is not None and (is_drop_in or _is_current(created))):
            try:
                return None, Carried(headers)
            except (TypeError, ValueError):
                return None, headers
        attributes = _attributes(config, topic)
        if isinstance(key, str):
            attributes["messaging.kafka.message.key"] = key
        if value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        if type(partition) is int:
            attributes["messaging.destination.partition.id"] = str(partition)
        span = self._span(engine, topic, attributes, created)
        return span, span.carried(headers)

    def begin_many(
        self, config: ProducerConfig, engine: ProducerEngine | None, topic: Any
    ) -> SendSpan | None:
        """Begin the span of a call that sends many records: its context is on each of them."""
        return None if _is_off(config) else self._span(engine, topic, _attributes(config, topic))

    def begin_gathered(self) -> SendSpan | None:
        """Begin the span of records that are gathered before their topic is known."""
        return None if contexts.get_value(_SUPPRESSED) else self._span(None, None, dict(SENDING))

    def _span(
        self,
        engine: ProducerEngine | None,
        topic: Any,
        attributes: dict[str, Any],
        created: trace.SpanContext | None = None,
    ) -> SendSpan:
        span = self._tracer.start_span(
            "send" if topic is None else f"send {plain(topic)}",
            kind=SpanKind.PRODUCER if created is None else SpanKind.CLIENT,
            attributes=attributes,
            links=() if created is None else (Link(created),),
        )
        added: Pairs = []
        if created is None and (engine is None or engine.appender.takes_headers):
            propagate.inject(added, trace.set_span_in_context(span), _SETTER)
        return SendSpan(span, added, engine)


class _PairSetter(Setter[Pairs]):
    def set(self, carrier: Pairs, key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _PairGetter(Getter[Pairs]):
    def get(self, carrier: Pairs, key: str) -> list[str] | None:
        found = [value for name, value in carrier if name == key and isinstance(value, bytes)]
        return [value.decode("latin-1") for value in found] or None

    def keys(self, carrier: Pairs) -> list[str]:
        return [name for name, _ in carrier]


_SETTER: Final = _PairSetter()
_GETTER: Final = _PairGetter()


def _is_off(config: ProducerConfig) -> bool:
    if contexts.get_value(_SUPPRESSED):
        return True
    return any(isinstance(each, TracingInterceptor) for each in config.interceptor_classes or ())


def _attributes(config: ProducerConfig, topic: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {**SENDING, "messaging.client.id": config.client_id}
    if topic is not None:
        attributes["messaging.destination.name"] = str(plain(topic))
    return attributes


def _pairs(headers: Any) -> Pairs:
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    return [(name, value) for name, value in pairs]


def _created_in(headers: Any) -> trace.SpanContext | None:
    """Return the context that headers carry; None for those that can be read only once."""
    if not isinstance(headers, list | tuple | Mapping) or not headers:
        return None
    try:
        pairs = _pairs(headers)
    except (TypeError, ValueError):
        return None
    extracted = propagate.extract(pairs, contexts.Context(), _GETTER)
    created = trace.get_current_span(extracted).get_span_context()
    return created if created.is_valid else None


def _is_current(created: trace.SpanContext) -> bool:
    current = trace.get_current_span()
    ours = current.get_span_context()
    return (created.trace_id, created.span_id) == (ours.trace_id, ours.span_id) and (
        getattr(current, "kind", SpanKind.PRODUCER) is SpanKind.PRODUCER
    )


def _error_of(delivery: Any) -> BaseException | None:
    """Return why a record failed, without marking that as seen."""
    batch_and_index = getattr(delivery, "batch_and_index", None)
    if batch_and_index is None:  # it was refused after it had been handed over
        error: BaseException = delivery._error
        return error
    batch, index = batch_and_index()
    failure: BaseException | None = batch.record_error(index)
    return failure
