"""Calls of interceptors, before a record is sent and when it has its outcome: `InterceptorChain`.

Invariants
- An exception of an interceptor is logged; it reaches neither the caller nor the sender. The record
  goes on as the previous interceptor returned it.
- `on_acknowledgement` is called exactly once for every record, whether it was accepted or not.
- Reading the error of a delivery here does not count as retrieved.
- Calls are made by the loop, never inside the sender; one loop callback per batch is scheduled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioproducer._util import log
from aioproducer._util.arguments import is_of_type
from aioproducer._util.printable import exception_without_data
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.core.metadata.cluster import check_topic_name
from aioproducer.errors import KafkaError
from aioproducer.interceptors import ClusterInfo
from aioproducer.records.bulk import UnfilledRows
from aioproducer.runtime.send.pending import PendingParts
from aioproducer.serializers.calling import header_pairs
from aioproducer.types import HeaderPairs, HeadersInput, Record, RecordMetadata, TimestampType

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch, RecordParts
    from aioproducer.runtime.bulk.rows import ReadyRows
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.serializers.calling import Prepare

_log = log.get("runtime")


class InterceptorChain:
    """The interceptors of one producer; `listeners` may have `on_cluster`, too."""

    def __init__(
        self,
        interceptors: Sequence[object],
        listeners: Iterable[object],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._on_send = _methods(interceptors, "on_send")
        self._on_acknowledgement = _methods(interceptors, "on_acknowledgement")
        self._on_cluster = _methods([*interceptors, *listeners], "on_cluster")
        self._close = _methods(interceptors, "close")
        self.sees_records: bool = bool(self._on_send or self._on_acknowledgement)
        """Whether any interceptor has `on_send` or `on_acknowledgement`."""
        self._loop = loop
        self._watched: dict[ProducerBatch, list[tuple[Delivery, HeaderPairs]]] = {}
        """The records whose outcome interceptors get, by their batches."""
        self._cluster_id: str | None = None
        self._reported_cluster = False
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make later calls in this loop."""
        self._loop = loop

    def show(self, record: Record, prepare: Prepare) -> RecordParts | PendingParts:
        """Call `on_send`, then serialize the record by `prepare`; return its parts.

        `on_acknowledgement` is called with an error that `prepare` raises. If a serializer is
        asynchronous, the caller that awaits the parts has to report failures.
        """
        for method in self._on_send:
            try:
                changed = method(record)
            except HOOK_ERRORS as error:
                self._warn(method, error)
                continue
            if isinstance(changed, Record):
                record = changed
            elif changed is not None:
                self._warn_of_result(method, changed)
        topic = record.topic
        try:
            prepared = prepare(topic, record.key, record.value, record.headers)
        except BaseException as error:
            headers = _known(record.headers)
            known = (topic, None, None, headers, record.partition, record.timestamp_ms)
            self.refused(known, error)
            raise
        if isinstance(prepared, tuple):
            return (topic, *prepared, record.partition, record.timestamp_ms)
        headers = _known(record.headers)
        return PendingParts(topic, prepared, record.partition, record.timestamp_ms, headers)

    @contextmanager
    def reporting_errors(self, parts: RecordParts) -> Iterator[None]:
        """Report an exception raised within the block, which appends a record."""
        try:
            yield
        except BaseException as error:
            self.refused(parts, error)
            raise

    def accepted(self, delivery: Delivery, parts: RecordParts) -> None:
        """Watch a record that was appended to a batch, to report its outcome."""
        if not self._on_acknowledgement:
            return
        batch = delivery._batch
        watched = self._watched.get(batch)
        if watched is None:
            watched = self._watched[batch] = []
            if batch.done:
                self._on_batch_done(batch)
            else:
                batch.add_observer(self, lambda _: self._on_batch_done(batch))
        watched.append((delivery, parts[3]))

    def refused(self, parts: RecordParts, error: BaseException) -> None:
        """Report a record that was not accepted."""
        self._report(_metadata(parts), error, parts[3])

    def on_cluster(self, cluster: ClusterInfo) -> None:
        """Schedule `on_cluster` after a metadata update if the cluster is new."""
        if self._reported_cluster and cluster.cluster_id == self._cluster_id:
            return
        self._reported_cluster, self._cluster_id = True, cluster.cluster_id
        for method in self._on_cluster:
            self._loop.call_soon(self._call, method, cluster)

    def close(self) -> None:
        """Report remaining outcomes, then call `close` of the interceptors, once."""
        for batch in list(self._watched):
            self._report_batch(batch)
        while self._close:
            self._call(self._close.pop(0))

    def _on_batch_done(self, batch: ProducerBatch) -> None:
        self._loop.call_soon(self._report_batch, batch)

    def _report_batch(self, batch: ProducerBatch) -> None:
        for delivery, headers in self._watched.pop(batch, ()):
            error = batch.record_error(delivery._index)
            if error is not None:
                self._report(_metadata_of(delivery), error.with_context(), headers)
            elif batch.done:
                self._report(delivery.result(), None, headers)

    def _report(
        self, metadata: RecordMetadata, error: BaseException | None, headers: HeaderPairs
    ) -> None:
        for method in self._on_acknowledgement:
            try:
                method(metadata, error, headers)
            except HOOK_ERRORS as raised:
                self._warn(method, raised)

    def _call(self, method: Callable[..., object], *arguments: object) -> None:
        try:
            method(*arguments)
        except HOOK_ERRORS as error:
            self._warn(method, error)

    def _warn_of_result(self, method: Callable[..., object], result: object) -> None:
        name = getattr(method, "__qualname__", repr(method))
        self.warnings.warning(
            self._loop.time(),
            None,
            f"the result of {name}",
            "interceptor %s returned %s, not a Record or None: the record is left as it is",
            name,
            type(result).__name__,
        )

    def _warn(self, method: Callable[..., object], error: BaseException) -> None:
        name = getattr(method, "__qualname__", repr(method))
        text = exception_without_data(error)
        self.warnings.warning(self._loop.time(), None, name, "interceptor %s raised %s", name, text)


class InterceptedRows(UnfilledRows):
    """Rows that pass through the interceptors; native code writes none of them."""

    def __init__(
        self, rows: ReadyRows, interceptor_chain: InterceptorChain, topic: str | None
    ) -> None:
        self._rows = rows
        self._interceptor_chain = interceptor_chain
        self._topic = topic

    def topics(self, start: int, stop: int) -> list[str | None]:
        """See `Rows`."""
        return self._rows.topics(start, stop)

    def record(self, row: int) -> RecordParts | PendingParts:
        """Return one row after the calls of the interceptors."""
        try:
            topic, key, value, headers, partition, timestamp_ms = self._rows.record(row)
        except KafkaError as error:
            self._interceptor_chain.refused((self._topic, None, None, (), None, None), error)
            raise
        topic = self._topic if topic is None else topic
        shown = Record(value, key, headers, timestamp_ms, partition, topic)
        return self._interceptor_chain.show(shown, _as_it_is)


def _as_it_is(
    topic: Any, key: Any, value: Any, headers: HeadersInput
) -> tuple[bytes | None, bytes | None, HeaderPairs]:
    """Return the parts unchanged: rows of a table are bytes; changes are checked later."""
    if topic is not None and not is_of_type(topic, str):
        check_topic_name(topic)
    return key, value, header_pairs(topic, headers)


def _known(headers: HeadersInput) -> HeaderPairs:
    """Return the headers of a record that may never be sent; none if they are no headers."""
    try:
        return header_pairs("", headers)
    except Exception:
        return ()


def _metadata_of(delivery: Delivery) -> RecordMetadata:
    """Return what is known of a record that was appended, and not written."""
    return RecordMetadata(
        delivery.topic,
        delivery.partition,
        None,
        delivery._timestamp_ms,
        TimestampType.CREATE_TIME,
        delivery._key_size,
        delivery._value_size,
    )


def _metadata(parts: RecordParts) -> RecordMetadata:
    """Return what is known of a record that was not accepted."""
    topic, key, value, _, partition, timestamp_ms = parts
    return RecordMetadata(
        topic if isinstance(topic, str) else "",
        partition if isinstance(partition, int) else -1,
        None,
        timestamp_ms if isinstance(timestamp_ms, int) else -1,
        TimestampType.CREATE_TIME,
        len(key) if isinstance(key, bytes) else -1,
        len(value) if isinstance(value, bytes) else -1,
    )


def _methods(objects: Iterable[object], name: str) -> list[Callable[..., Any]]:
    found = (getattr(each, name, None) for each in objects)
    return [method for method in found if callable(method)]
