"""`send_many` of a `MockProducer`: one record after the other, then their outcomes.

Owns: the counting. Must not know: how a record is accepted.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable

from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.runtime.bulk import Item, as_record
from aioproducer.runtime.bulk_result import (
    FailedRecord,
    SendManyInterruptedError,
    SendManyResult,
)
from aioproducer.runtime.delivery import Delivery


async def send_many(
    send: Callable[..., Awaitable[Delivery]],
    topic: str,
    items: Iterable[Item] | AsyncIterable[Item],
    partition: int | None,
) -> SendManyResult:
    """Sends every item, then waits for all outcomes; see `Producer.send_many`."""
    result = SendManyResult()
    accepted: list[tuple[int, Delivery]] = []
    broken: Exception | None = None
    try:
        async for item in _each(items):
            number, result.count = result.count, result.count + 1
            try:
                accepted.append((number, await _send_item(send, topic, item, partition)))
            except IllegalStateError:
                raise
            except KafkaError as error:
                result.failed.append(FailedRecord(number, error))
    except Exception as error:
        broken = error
    for number, delivery in accepted:
        await _fold(result, number, delivery)
    result.failed.sort(key=lambda failed: failed.index)
    if broken is not None:
        raise SendManyInterruptedError(f"stopped: {broken!r}", result=result) from broken
    return result


async def _send_item(
    send: Callable[..., Awaitable[Delivery]], topic: str, item: Item, partition: int | None
) -> Delivery:
    record = as_record(item)
    return await send(
        record.topic or topic,
        record.value,
        record.key,
        headers=record.headers,
        partition=partition if record.partition is None else record.partition,
        timestamp_ms=record.timestamp_ms,
    )


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterable[Item]:
    if isinstance(items, AsyncIterable):
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
