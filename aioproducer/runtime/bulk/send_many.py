"""`send_many`: many records, one result.

Invariants
- Items are read lazily: from an asynchronous source one by one, else up to 512 at a time.
- Every item read is counted once, as delivered or as failed.
- When the call cannot go on, it waits for the outcomes of all accepted records, then raises an
  error with the result.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from aioproducer._util.arguments import is_asynchronous
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.errors import SerializationError
from aioproducer.records.bulk import OpenBatches, fill_items
from aioproducer.runtime.bulk.result import Item, SendManyResult
from aioproducer.runtime.bulk.run import BulkRun
from aioproducer.runtime.send.pending import PendingParts
from aioproducer.serializers.calling import Prepare, is_plain
from aioproducer.types import Record

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import RecordParts
    from aioproducer.records._pure_bulk import Bounds
    from aioproducer.runtime.engine import ProducerEngine

_LONGEST_TUPLE = 5
_ITEMS_AT_ONCE = 512


def check_items(items: object) -> None:
    """Refuse a single value, and a table: iterating over them gives no records."""
    kind = type(items).__name__
    is_iterable = any(hasattr(items, name) for name in ("__iter__", "__aiter__", "__getitem__"))
    if isinstance(items, str | bytes | bytearray | memoryview) or not is_iterable:
        raise TypeError(f"send_many takes an iterable of items, not {kind}; send one by send()")
    is_arrow = hasattr(items, "__arrow_c_stream__") or hasattr(items, "__arrow_c_array__")
    if is_arrow and hasattr(type(items), "columns"):
        raise TypeError(
            f"send_many takes an iterable of items, and iterating over this {kind} does not give "
            "its rows; use send_arrow"
        )


async def send_many(
    engine: ProducerEngine,
    prepare: Prepare,
    topic: str,
    items: Iterable[Item] | AsyncIterable[Item],
    partition: int | None,
) -> SendManyResult:
    """Append every item and wait for all outcomes; see `Producer.send_many`."""
    check_items(items)
    run = BulkRun(engine)
    rows = _ItemRows(engine, prepare, topic, partition)
    return await run.complete(_feed(run, rows, topic, items))


async def send_blocks(
    engine: ProducerEngine,
    prepare: Prepare,
    topic: str,
    blocks: AsyncIterable[list[Item]],
    partition: int | None,
) -> SendManyResult:
    """Send items that the caller reads in blocks; else as `send_many`."""
    run = BulkRun(engine)
    rows = _ItemRows(engine, prepare, topic, partition)
    return await run.complete(_feed_blocks(run, rows, topic, blocks))


async def _feed_blocks(
    run: BulkRun, rows: _ItemRows, topic: str, blocks: AsyncIterable[list[Item]]
) -> None:
    number = 0
    async for rows.items in blocks:
        await run.feed(rows, topic, 0, len(rows.items), number)
        number += len(rows.items)


async def _feed(
    run: BulkRun, rows: _ItemRows, topic: str, items: Iterable[Item] | AsyncIterable[Item]
) -> None:
    number = 0
    if is_asynchronous(items):
        async for item in items:
            rows.items = [item]
            if not (rows.are_plain and run.feed_at_once(rows, topic, number)):
                await run.feed(rows, topic, 0, 1, number)
            number += 1
        return
    source = iter(items)
    broken: BaseException | None = None
    while broken is None:
        rows.items = []
        try:
            rows.items.extend(islice(source, _ITEMS_AT_ONCE))
        except HOOK_ERRORS as error:
            broken = error
        if not rows.items:
            break
        await run.feed(rows, topic, 0, len(rows.items), number)
        number += len(rows.items)
    if broken is not None:
        raise broken


class _ItemRows:
    """Items as rows; `items` are those read but not yet appended.

    `are_plain`: neither serializers nor interceptors get them; they may be written directly.
    """

    def __init__(
        self, engine: ProducerEngine, prepare: Prepare, topic: str, partition: int | None
    ) -> None:
        self.items: list[Item] = []
        self._interceptor_chain = engine.interceptor_chain
        self._prepare = prepare
        self._topic = topic
        self._partition = partition
        config = engine.config
        self.are_plain: bool = (
            is_plain(config.key_serializer, config.value_serializer)
            and not self._interceptor_chain.sees_records
        )

    def topics(self, start: int, stop: int) -> list[str | None]:
        """Return no names: a `Record` with another topic is never written directly."""
        del start, stop
        return [None]

    def fill(self, batches: list[OpenBatches | None], *bounds: *Bounds) -> tuple[int, bool]:
        """See `Rows`; items for serializers or interceptors are not written directly."""
        if not self.are_plain:
            return bounds[0], True
        return fill_items(self.items, batches[0], self._partition, *bounds)

    def record(self, row: int) -> RecordParts | PendingParts:
        """Return one item as the arguments of `send()`."""
        try:
            record = as_record(self.items[row])
        except SerializationError as error:
            unread = (self._topic, None, None, (), self._partition, None)
            self._interceptor_chain.refused(unread, error)
            raise
        topic = self._topic if record.topic is None else record.topic
        partition = self._partition if record.partition is None else record.partition
        if self._interceptor_chain.sees_records:
            # Not by `replace()`: the constructor of a subclass may have other arguments.
            shown = Record(
                record.value, record.key, record.headers, record.timestamp_ms, partition, topic
            )
            return self._interceptor_chain.show(shown, self._prepare)
        prepared = self._prepare(topic, record.key, record.value, record.headers)
        if isinstance(prepared, tuple):
            return (topic, *prepared, partition, record.timestamp_ms)
        return PendingParts(topic, prepared, partition, record.timestamp_ms)


def as_record(item: Item) -> Record:
    """Convert an item of `send_many` to a record."""
    if isinstance(item, Record):
        return item
    if not isinstance(item, tuple):
        return Record(item)
    if not 2 <= len(item) <= _LONGEST_TUPLE:
        raise SerializationError(
            f"an item tuple has 2 to {_LONGEST_TUPLE} parts (key, value, headers, timestamp_ms, "
            f"partition), got {len(item)}"
        )
    key, value, headers, timestamp_ms, partition = (*item, None, None, None)[:_LONGEST_TUPLE]
    return Record(value, key, headers, timestamp_ms, partition)
