"""Tasks that also make the calls which most runs do not make.

The other styles are in `simulation.workload`.

    as a whole      batches of exactly these records, as `send_batch` of the drop-in for aiokafka
    as a table      send_arrow
    giving up       send many at once, cancel the calls that still wait for memory or metadata
    after asking    partitions_for, then send
    in bulk         send_many, from a source that pauses

Invariant: a run without these tasks is not changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pyarrow as pa

from aioproducer.errors import KafkaError, ProducerClosedError
from aioproducer.runtime.bulk.result import Item
from aioproducer.runtime.delivery import Delivery
from aioproducer.types import Record
from simulation.ledger import CallState, Entry
from simulation.workload import Style, Workload, as_tuples

_PAUSES_S = (0.0, 0.001, 0.02, 0.3)
_PAUSES_OF_SOURCE_S = (0.3, 0.02, 0.0)
_LATE_S = 0.1
_LARGEST_WHOLE = 6
"""Records of a whole batch, at most."""


class MoreCalls(Workload):
    """A workload with more styles."""

    def _styles(self) -> list[Style]:
        more = [self._as_a_whole, self._as_a_table, self._giving_up, self._after_asking]
        return [*super()._styles(), *more]

    async def _as_a_whole(self, draft: list[Entry], rng: random.Random) -> None:
        while draft:
            size = rng.randint(1, _LARGEST_WHOLE)
            whole, draft = draft[:size], draft[size:]
            await self._send_whole(whole)

    async def _send_whole(self, whole: list[Entry]) -> None:
        first, stamped = whole[0], self._wall_ms()
        self._ledger.entries += whole
        for entry in whole:
            entry.topic, entry.partition, entry.whole = first.topic, first.partition, whole
            entry.timestamp_ms, entry.asked_at = stamped, self._loop.time()
        records = [(each.key, each.value, each.headers, each.timestamp_ms) for each in whole]
        state, error = CallState.ACCEPTED, None
        try:
            appender = self._producer._usable().appender
            batch = await appender.append_whole(first.topic, records, first.partition)
        except asyncio.CancelledError:
            state = CallState.CANCELLED
            raise
        except KafkaError as refusal:
            state, error = CallState.REFUSED, refusal
            self._trace(f"append_whole {first.label} raises {type(refusal).__name__}")
            if isinstance(refusal, ProducerClosedError):
                raise
        else:
            for index, entry in enumerate(whole):
                entry.delivery = Delivery(batch, index, stamped, -1, -1)
                self._count_notices(entry)
            self._sent += whole
        finally:
            for entry in whole:
                entry.state, entry.error, entry.settled_at = state, error, self._loop.time()

    async def _as_a_table(self, draft: list[Entry], rng: random.Random) -> None:
        for entry in draft:
            entry.headers, entry.timestamp_ms = (), None
        chunks = [_table_of(draft[start::2]) for start in (0, 1)]
        draft = [*draft[::2], *draft[1::2]]
        call = self._producer.send_arrow(
            None,
            pa.concat_tables(chunks),
            key="key",
            partition="partition",
            topic_column="topic",
        )
        await self.call_in_bulk(draft, call, "send_arrow")

    async def _source_of(self, items: list[Record]) -> AsyncIterator[Item]:
        for number, item in enumerate(as_tuples(items)):
            yield item
            if number < len(_PAUSES_OF_SOURCE_S):
                await asyncio.sleep(_PAUSES_OF_SOURCE_S[number])

    async def _giving_up(self, draft: list[Entry], rng: random.Random) -> None:
        for entry in draft:
            entry.task = -1  # these have no order
        sends = [asyncio.ensure_future(self.send(entry)) for entry in draft]
        await asyncio.sleep(rng.choice(_PAUSES_S))
        for sending in sends[:: rng.randint(1, 3)]:
            sending.cancel()
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(outcome, KafkaError):
                raise outcome
        for entry in draft:
            self._count_notices(entry)

    async def _after_asking(self, draft: list[Entry], rng: random.Random) -> None:
        topic, began = draft[0].topic, self._loop.time()
        try:
            infos = await self._producer.partitions_for(topic)
        except KafkaError as error:
            self._trace(f"partitions_for({topic}) raises {type(error).__name__}")
            if isinstance(error, ProducerClosedError):
                raise
        else:
            numbers = [(each.topic, each.partition) for each in infos]
            expected = [(topic, number) for number in range(len(infos))]
            if numbers != expected or len(infos) < self._shape.topics.get(topic, 1):
                self._ledger.false_reports.append(f"partitions_for({topic}) returns {numbers}")
        took = self._loop.time() - began
        if took > self._producer.config.max_block_ms / 1000 + _LATE_S:
            self._ledger.late_ends.append(f"partitions_for({topic}) took {took:.3f} s")
        await self._called_back(draft, rng)


def _table_of(draft: list[Entry]) -> pa.Table:
    columns = {
        "topic": pa.array([each.topic for each in draft], pa.string()),
        "key": pa.array([each.key for each in draft], pa.binary()),
        "value": pa.array([each.value for each in draft], pa.binary()),
        "partition": pa.array([each.partition for each in draft], pa.int32()),
    }
    return pa.table(columns)
