"""Checks of what calls and metrics of a producer report in a healed cluster.

Owns: questions whose answer follows from the arguments of the calls. Not here: how long calls wait,
what is refreshed, see `simulation.aftermath`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

import pyarrow as pa

from aioproducer.errors import KafkaError, SerializationError, WouldBlockError
from aioproducer.runtime.bulk.result import SendManyInterruptedError, SendManyResult
from aioproducer.testing.broker import TopicSpec
from aioproducer.testing.world.faults import Shape
from aioproducer.types import Record, TopicPartition
from simulation.aftermath import Aftermath
from simulation.blocked import check_blocked_loop
from simulation.ledger import CallState, Entry
from simulation.workload import Workload, as_tuples
from simulation.wrong_arguments import wrongly_accepted

_ODD_HEADERS = (("h", b"1"), ("h", b"2"), ("", b""), ("none", None))
_RECORDS = 4
_CALLBACKS, _TURNS = 600, 3
"""Native code calls up to 500 in one turn of the loop."""
_REFUSED, _ABSENT, _INVALID = b"refused", 10**6, -1
_WAITS, _MORE_THAN_A_BLOCK = 3, 520
"""A bulk call reads its items in blocks of 512."""
_ROW_TOPIC, _NEW_TOPICS = "zz-row", ("zz-warm-1", "zz-warm-2")
_LONG_BLOCK_MS, _SLACK_S = 20_000, 1.0


def _broken(items: Sequence[object]) -> Iterator[object]:
    yield from items
    raise ValueError("the source is broken")


async def _broken_later(items: Sequence[object]) -> AsyncIterator[object]:
    for item in _broken(items):
        yield item


def _note(called: list[int], number: int, _: object) -> None:
    called.append(number)


class ResultChecks(Aftermath):
    """The questions to the producer of a run, those about results last."""

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        await super().after_probes()
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_contents()
            await self._check_totals()
            await self._check_callbacks()
            await self._check_refused_rows()
            await self._check_broken_sources()
            await self._check_odd_headers()
            await self._check_wrong_arguments()
            await self._check_warm_up()
            if self._config.acks_value:
                await check_blocked_loop(
                    self._producer, self._world, self._ledger, self._sent, self._outcome_of
                )

    async def _check_contents(self) -> None:
        """Each call writes what it was given, also what is empty, zero or there twice."""
        world, producer = self._world, self._producer
        name, topic = min(world.cluster.topics.items())
        work = Workload(
            producer, Shape((), {}), self._ledger, world.trace, world.wall_ms, purges=False
        )
        await work.send(self._odd_entry(name))
        await work.send_and_wait(self._odd_entry(name))
        work.send_nowait(self._odd_entry(name))
        rows = [self._odd_entry(name, 0) for _ in range(_RECORDS)]
        items = [Record(e.value, e.key, e.headers, e.timestamp_ms, e.partition) for e in rows]
        items[::2] = as_tuples(items[::2])
        another = len(topic.partitions) - 1
        call = producer.send_many(name, items, partition=another)
        await work.call_in_bulk(rows, call, "send_many")
        await producer.flush()

    async def _check_totals(self) -> None:
        """Totals grow by what is sent, those of its topic as well; statistics have what is open."""
        await self._producer.flush()
        name = min(self._world.cluster.topics)
        before = self._totals(name)
        entries = [await self._sent(name, None, 0) for _ in range(_RECORDS)]
        deliveries = [entry.delivery for entry in entries if entry.delivery is not None]
        found = self._producer.statistics()
        pending = sum(not each.done() for each in deliveries)
        if found.records_queued + found.records_in_flight != pending:
            self._ledger.false_reports.append(f"{pending} are pending, statistics say {found}")
        for entry in entries:
            await self._outcome_of(entry)
        batches = {each.batch_and_index()[0] for each in deliveries}
        if any(entry.error for entry in entries) or any(batch.parts for batch in batches):
            return
        offset = (await deliveries[-1]).offset
        kept = self._producer.engine.driver.sender._offsets._last.get(TopicPartition(name, 0))
        if kept is not None and offset not in (None, kept.offset):
            self._ledger.false_reports.append(f"offset {offset} is acknowledged, kept is {kept}")
        retried = sum(batch.count * (batch.attempts - 1) for batch in batches)
        expected = {
            "record-send-total": len(entries),
            "record-acknowledged-total": len(entries),
            "record-error-total": 0,
            "record-retry-total": retried,
            "batch-total": sum(batch.attempts for batch in batches),
            "topic record-send-total": len(entries) + retried,
            "topic record-error-total": 0,
            "topic record-retry-total": retried,
        }
        after = self._totals(name)
        grown = {total: after[total] - before.get(total, 0.0) for total in expected}
        if grown != expected:
            self._ledger.false_reports.append(f"totals grow by {grown} instead of {expected}")

    async def _check_callbacks(self) -> None:
        """All callbacks of a record are called in their order, more than in one turn as well."""
        entry = await self._sent(min(self._world.cluster.topics), None, 0)
        delivery, called = entry.delivery, list[int]()
        if delivery is None:
            return
        for number in range(_CALLBACKS):
            delivery.add_done_callback(partial(_note, called, number))
        await self._outcome_of(entry)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if called != [*range(_CALLBACKS)]:
            text = f"{entry.label}: {len(called)} of {_CALLBACKS} callbacks are called"
            self._ledger.false_reports.append(f"{text}, {called[:5]} first")

    def _totals(self, topic: str) -> dict[str, float]:
        """Return the metrics of the producer and those of a topic."""
        values: dict[str, float] = {}
        for each in self._producer.all_metrics():
            tags = dict(each.tags)
            if tags.get("topic", topic) == topic and "node-id" not in tags:
                values["topic " * ("topic" in tags) + each.name] = each.value
        return values

    async def _check_refused_rows(self) -> None:
        """A bulk call says which rows are refused, and waits for the partition of one only.

        After a row that got memory, the next may wait again.
        """
        config, name = self._config, min(self._world.cluster.topics)
        if config.max_block_ms >= _LONG_BLOCK_MS:
            return
        entries = [self._entry(name, None, 0) for _ in range(_WAITS)]
        rows = [Record(_REFUSED, partition=_ABSENT + number) for number in range(_WAITS)]
        for entry in entries:
            entry.state = CallState.UNKNOWN
            rows += [Record(entry.value, partition=0), Record(_REFUSED, partition=_ABSENT)]
        rows += [Record(_REFUSED, partition=_INVALID)] * _MORE_THAN_A_BLOCK
        self._world.cluster.create_topic(_ROW_TOPIC, TopicSpec(1, 1))
        entries.append(self._entry(_ROW_TOPIC, None, 0))
        entries[-1].state = CallState.UNKNOWN
        rows.append(Record(entries[-1].value, topic=_ROW_TOPIC))
        began = self._world.now()
        result = await self._producer.send_many(name, rows)
        took = self._world.now() - began
        for entry in entries:
            entry.settled_at = self._world.now()
        waits_for_each = config.buffer_max_records is not None or config.value_serializer
        if took > 2 * config.max_block_ms / 1000 + _SLACK_S and not waits_for_each:
            self._ledger.late_ends.append(f"send_many of {len(rows)} rows took {took:.3f} s")
        expected = [number for number, row in enumerate(rows) if row.value == _REFUSED]
        refused = [each.index for each in result.failed if rows[each.index].value == _REFUSED]
        if refused != expected:
            self._ledger.false_reports.append(f"send_many of {len(rows)} rows refuses {refused}")
        unsent = [each for each in result.failed if rows[each.index].value != _REFUSED]
        is_last = [each.index for each in unsent] == [len(rows) - 1]  # the one before got memory
        if is_last and type(unsent[0].error) is WouldBlockError:
            self._ledger.false_reports.append(f"the last row does not wait: {unsent[0]}")

    async def _check_broken_sources(self) -> None:
        """A bulk call whose source raises ends with that, once the rows before it are counted."""
        producer, name = self._producer, min(self._world.cluster.topics)
        sources = [[self._entry(name, None) for _ in range(_RECORDS)] for _ in range(3)]
        one, other, table = ([each.value for each in entries] for entries in sources)
        batch = pa.record_batch({"value": pa.array(table, pa.binary())})
        reader = pa.RecordBatchReader.from_batches(batch.schema, _broken([batch]))
        for what, entries, call in (
            ("send_many", sources[0], producer.send_many(name, _broken(one))),
            ("send_many of pauses", sources[1], producer.send_many(name, _broken_later(other))),
            ("send_arrow", sources[2], producer.send_arrow(name, reader)),
        ):
            found: SendManyResult | None = None
            try:
                await call
            except SendManyInterruptedError as error:
                found = error.result
            if found is None or found.count != len(entries):
                self._ledger.false_reports.append(f"the source of {what} raises: {found}")
            for entry in entries:
                entry.state, entry.settled_at = CallState.UNKNOWN, self._world.now()
                if found is not None and found.delivered == len(entries):
                    entry.state, entry.delivered_in_bulk = CallState.ACCEPTED, True

    async def _check_odd_headers(self) -> None:
        """A record whose headers are none is refused, and interceptors get that."""
        name, headers = min(self._world.cluster.topics), cast("dict[str, bytes]", object())
        with suppress(SerializationError):
            delivery = await self._producer.send(name, b"refused", headers=headers)
            self._ledger.false_reports.append(f"an object is accepted as headers: {delivery}")

    async def _check_wrong_arguments(self) -> None:
        """Wrong arguments raise the documented errors."""
        if self._config.value_serializer is None:
            wrong = await wrongly_accepted(self._producer, min(self._world.cluster.topics))
            self._ledger.false_reports += wrong

    async def _check_warm_up(self) -> None:
        """After `warm_up`, no record of the topics has to wait, unless for a serializer."""
        if self._config.value_serializer is not None:
            return
        for name in _NEW_TOPICS:
            self._world.cluster.create_topic(name, TopicSpec(1, 1))
        try:
            await self._producer.warm_up(_NEW_TOPICS)
        except KafkaError as error:
            self._ledger.unrecovered.append(f"warm_up() raises {error}")
            return
        for name in _NEW_TOPICS:
            entry = self._sent_nowait(name, 0)
            if entry.error is not None:
                self._ledger.false_reports.append(f"{entry.label} after warm_up(): {entry.error}")
            await self._outcome_of(entry)

    def _odd_entry(self, topic: str, partition: int | None = None) -> Entry:
        """Return a record that no call was made for yet, with odd contents."""
        self._number += 1
        name = b"<odd/%d>" % self._number
        now = self._world.now()
        return Entry(name, -1, topic, partition, b"", name, _ODD_HEADERS, 0, now)
