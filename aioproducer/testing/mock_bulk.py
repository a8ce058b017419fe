"""`send_many` and `send_arrow` of a `MockProducer`: record after record, then their outcomes."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeVar, cast

from aioproducer._util.arguments import is_asynchronous
from aioproducer._util.tasks import HOOK_ERRORS, is_cancellation
from aioproducer.core.batching.batch import RecordParts
from aioproducer.core.metadata.cluster import missing_topic_error
from aioproducer.errors import IllegalStateError, KafkaError, TransactionAbortableError
from aioproducer.records.arrow import ArrowColumns, ArrowSource
from aioproducer.runtime.bulk.result import (
    FailedRecord,
    Item,
    SendManyInterruptedError,
    SendManyResult,
)
from aioproducer.runtime.bulk.send_arrow import check_topic
from aioproducer.runtime.bulk.send_many import as_record, check_items
from aioproducer.runtime.delivery import Delivery
from aioproducer.runtime.observability.interceptors import InterceptedRows, InterceptorChain
from aioproducer.runtime.send.validation import refusal_of
from aioproducer.types import Record

T = TypeVar("T")

OnRefused = Callable[[KafkaError], None]
"""Called with the error of each row that is refused."""


async def send_many(
    send: Callable[..., Awaitable[Delivery]],
    on_refused: OnRefused,
    interceptor_chain: InterceptorChain,
    topic: str,
    items: Iterable[Item] | AsyncIterable[Item],
    partition: int | None,
    *,
    partitioner: object,
) -> SendManyResult:
    """Send every item, then wait for all outcomes; see `Producer.send_many`."""
    check_items(items)

    async def accept(item: Item) -> Delivery:
        with interceptor_chain.reporting_errors((topic, None, None, (), partition, None)):
            record = as_record(item)
        return await _send_record(send, topic, record, partition)

    return await _send_all(_each(items), accept, on_refused, partitioner=partitioner)


async def send_arrow(
    take: Callable[[RecordParts], Delivery],
    on_refused: OnRefused,
    interceptor_chain: InterceptorChain,
    topic: str | None,
    data: object,
    columns: ArrowColumns,
    *,
    partitioner: object,
) -> SendManyResult:
    """Send every row, then wait for all outcomes; see `Producer.send_arrow`."""
    check_topic(topic, columns)
    source = ArrowSource(data, columns)

    async def rows() -> AsyncIterable[tuple[InterceptedRows, int]]:
        while (chunk := source.next()) is not None:
            shown = InterceptedRows(chunk, interceptor_chain, topic)
            for row in range(len(chunk)):
                yield shown, row

    async def accept(place: tuple[InterceptedRows, int]) -> Delivery:
        shown, row = place
        parts = cast("RecordParts", shown.record(row))  # nothing serializes rows
        if parts[0] is None:
            with interceptor_chain.reporting_errors(parts):
                raise missing_topic_error()
        return take(parts)

    try:
        return await _send_all(rows(), accept, on_refused, partitioner=partitioner)
    finally:
        source.close()


async def _send_all(
    items: AsyncIterable[T],
    accept: Callable[[T], Awaitable[Delivery]],
    on_refused: OnRefused,
    *,
    partitioner: object,
) -> SendManyResult:
    result = SendManyResult()
    accepted: list[tuple[int, Delivery]] = []
    broken: BaseException | None = None
    try:
        async for item in items:
            number = result.count
            try:
                accepted.append((number, await accept(item)))
            except (IllegalStateError, TransactionAbortableError):
                raise
            except Exception as raised:
                refusal = refusal_of(raised, partitioner)
                if refusal is None:
                    raise
                result.failed.append(FailedRecord(number, refusal))
                on_refused(refusal)
            result.count += 1
    except HOOK_ERRORS as error:
        if is_cancellation(error):
            raise
        broken = error
    for number, delivery in accepted:
        await _fold(result, number, delivery)
    result.failed.sort(key=lambda failed: failed.index)
    if broken is not None:
        raise SendManyInterruptedError(f"stopped: {broken!r}", result=result) from broken
    return result


async def _send_record(
    send: Callable[..., Awaitable[Delivery]], topic: str, record: Record, partition: int | None
) -> Delivery:
    return await send(
        topic if record.topic is None else record.topic,
        record.value,
        record.key,
        headers=record.headers,
        partition=partition if record.partition is None else record.partition,
        timestamp_ms=record.timestamp_ms,
    )


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterable[Item]:
    if is_asynchronous(items):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _fold(result: SendManyResult, number: int, delivery: Delivery) -> None:
    try:
        metadata = await delivery
    except KafkaError as error:
        result.failed.append(FailedRecord(number, error))
        return
    result.delivered += 1
    if metadata.offset is not None:
        low, high = result.offsets.get(metadata.topic_partition, (metadata.offset,) * 2)
        offsets = (min(low, metadata.offset), max(high, metadata.offset))
        result.offsets[metadata.topic_partition] = offsets
