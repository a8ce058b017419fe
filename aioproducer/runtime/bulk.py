"""send_many: many records, one result.

Owns: reading the items, folding the outcomes of their batches into counts. Must not know: how a
record is appended or sent.

Invariants
- Items are read lazily; memory per item ends when its batch does.
- Every item read is counted once, as delivered or as failed.
- When the call cannot go on it raises after what was accepted has its outcome, with the result.
- At most one item in a row waits `max_block_ms` in vain; the following ones are tried at once.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from aioproducer.errors import ErrorFacts, KafkaError, KafkaTimeoutError, SerializationError
from aioproducer.types import HeaderPairs, HeadersInput, Record, TopicPartition

if TYPE_CHECKING:
    from aioproducer.core.producer_batch import ProducerBatch
    from aioproducer.runtime.delivery import Delivery
    from aioproducer.runtime.engine import ProducerEngine

Item = Any
"""A value, a `(key, value[, headers[, timestamp_ms[, partition]]])` tuple, or a `Record`."""

Prepare = Callable[[str, Any, Any, HeadersInput], tuple[bytes | None, bytes | None, HeaderPairs]]

_LONGEST_TUPLE = 5
_REFUSALS_PER_TURN = 100


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """One item that was not delivered; `index` counts from 0 in the order given."""

    index: int
    error: KafkaError


@dataclass(slots=True)
class SendManyResult:
    """What became of the items of one `send_many`.

    `offsets` holds, per partition, the lowest and the highest offset given to an item, where the
    broker gives offsets; records of other senders may stand in between.
    """

    count: int = 0
    delivered: int = 0
    failed: list[FailedRecord] = field(default_factory=list)
    offsets: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class SendManyInterruptedError(KafkaError):
    """`send_many` could not go on: the items raised, or the producer was closed or failed.

    `result` says what became of the items up to there; `__cause__` why it stopped.
    """

    def __init__(
        self,
        message: str = "",
        *,
        result: SendManyResult | None = None,
        **facts: Unpack[ErrorFacts],
    ) -> None:
        super().__init__(message, **facts)
        self.result: SendManyResult = result or SendManyResult()


async def send_many(
    engine: ProducerEngine,
    prepare: Prepare,
    topic: str,
    items: Iterable[Item] | AsyncIterable[Item],
    partition: int | None,
) -> SendManyResult:
    """Appends every item and waits for all outcomes; see `Producer.send_many`."""
    run = _Run(engine)
    broken: Exception | None = None
    try:
        try:
            async for item in _each(items):
                await run.send(prepare, topic, item, partition)
        except Exception as error:
            broken = error
        await run.wait()
    finally:
        # A cancelled call looks at no outcome any more: its failures are reported as forgotten.
        run.detach()
    run.result.failed.sort(key=lambda failed: failed.index)
    if broken is not None:
        raise SendManyInterruptedError(
            f"stopped after {run.result.count} item(s), of which {run.result.delivered} were "
            f"delivered: {broken!r}",
            result=run.result,
        ) from broken
    return run.result


class _Run:
    """The outstanding batches of one call."""

    def __init__(self, engine: ProducerEngine) -> None:
        self.result = SendManyResult()
        self._engine = engine
        self._patient = True
        # Per batch: the listener, numbers of the items, and their places in the batch.
        self._outstanding: dict[ProducerBatch, tuple[_Tracked, array[int], array[int]]] = {}
        self._all_done: asyncio.Future[None] | None = None

    async def send(self, prepare: Prepare, topic: str, item: Item, partition: int | None) -> None:
        """Appends one item; raises only what concerns all items."""
        self._engine.check_usable()
        number = self.result.count
        self.result.count += 1
        try:
            record = _as_record(item)
            name = record.topic or topic
            key, value, headers = prepare(name, record.key, record.value, record.headers)
            place = partition if record.partition is None else record.partition
            arguments = (name, key, value, headers, place, record.timestamp_ms)
            if self._patient:
                delivery = await self._engine.appender.append(*arguments)
            else:
                delivery = self._engine.appender.append_nowait(*arguments)
                self._patient = True
        except KafkaError as error:
            self.result.failed.append(FailedRecord(number, _without_frames(error)))
            if isinstance(error, KafkaTimeoutError):
                # One item has waited `max_block_ms` in vain: the others must not add up.
                self._patient = False
            self._engine.check_usable()
            if len(self.result.failed) % _REFUSALS_PER_TURN == 0:
                # Refusing suspends nowhere: others get their turn in between.
                await asyncio.sleep(0)
        else:
            self._track(number, delivery)

    def detach(self) -> None:
        """Stops watching the batches that are still out."""
        for batch, (tracked, _, _) in self._outstanding.items():
            batch.remove_listener(tracked)
        self._outstanding.clear()

    async def wait(self) -> None:
        """Returns when every accepted item has its outcome."""
        if not self._outstanding:
            return
        self._engine.accumulator.begin_flush()
        self._engine.sender_task.wake()
        self._all_done = self._engine.loop.create_future()
        try:
            await self._all_done
        finally:
            self._engine.accumulator.end_flush()

    def _track(self, number: int, delivery: Delivery) -> None:
        batch, place = delivery.batch_and_index()
        if batch.done:
            self._fold(batch, array("q", [number]), array("q", [place]))
            return
        tracked = self._outstanding.get(batch)
        if tracked is None:
            tracked = self._outstanding[batch] = (_Tracked(self, batch), array("q"), array("q"))
            batch.add_listener(tracked[0], _on_done)
        tracked[1].append(number)
        tracked[2].append(place)

    def on_batch_done(self, batch: ProducerBatch) -> None:
        _, numbers, places = self._outstanding.pop(batch)
        self._fold(batch, numbers, places)
        if not self._outstanding and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)

    def _fold(self, batch: ProducerBatch, numbers: array[int], places: array[int]) -> None:
        if not batch.parts and batch.record_error(0) is None:
            # The usual case: two offsets tell it all.
            self.result.delivered += len(numbers)
            self._widen_offsets(batch, places[0])
            self._widen_offsets(batch, places[-1])
            return
        for number, place in zip(numbers, places, strict=True):
            error = batch.record_error(place)
            if error is None:
                self.result.delivered += 1
                self._widen_offsets(batch, place)
            else:
                batch.mark_retrieved(place)
                self.result.failed.append(FailedRecord(number, error))

    def _widen_offsets(self, batch: ProducerBatch, place: int) -> None:
        found = batch.outcome_of(place)
        if found is None or found[0].base_offset is None:
            return
        offset = found[0].base_offset + found[1]
        low, high = self.result.offsets.get(batch.topic_partition, (offset, offset))
        self.result.offsets[batch.topic_partition] = (min(low, offset), max(high, offset))


class _Tracked:
    """A listener key: one call's interest in one batch."""

    __slots__ = ("batch", "run")

    def __init__(self, run: _Run, batch: ProducerBatch) -> None:
        self.run = run
        self.batch = batch


def _without_frames(error: KafkaError) -> KafkaError:
    """An error to be kept: with the frames it came through, each would keep this whole call."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _on_done(key: object) -> None:
    if isinstance(key, _Tracked):
        key.run.on_batch_done(key.batch)


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Item]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    for item in items:
        yield item


def _as_record(item: Item) -> Record:
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
