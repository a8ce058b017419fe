"""Checks of calls that send much at once, or are serialized for long, in a healed cluster.

Owns: situations in which a call has to pause, and the spread of many records. Not here: whether a
bulk call pauses too long, see `simulation.consistency`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from operator import ne

import pyarrow as pa

from aioproducer.errors import KafkaTimeoutError, ProducerClosedError
from aioproducer.runtime.send.batch_appender import RECORDS_PER_TURN
from aioproducer.testing.faults import FaultScript
from aioproducer.types import TopicPartition
from simulation.ledger import CallState, Entry
from simulation.results import ResultChecks
from simulation.scenario import ENDLESS

_LARGE_BATCH, _BURST = 16_000, RECORDS_PER_TURN + 50
_ROWS, _ROW_BYTES, _OVERHEAD = 60, 1800, 200
_LATE_MS = 300
_SMALLEST_BATCH, _SMALL_BYTES, _SPREAD, _FEWEST_CHOICES = 200, 20, 550, 70
"""There are about 100 choices; there are 50 if only the first record of each batch counts."""
_SLOW_BYTES, _QUICK_BYTES = 33, 31
"""The serializer waits for values whose length is a multiple of 3."""
_TWO_PARTITIONS, _MOST_PLACES = 2, 40
_ALONE, _FEW_ROWS, _FEW_ROWS_ROOM = 3, 3, 600
_NO_TOPIC, _SLACK_S, _LONGEST_BLOCK_S = "zz-endless", 1.0, 3.0


async def _one_by_one(values: Sequence[bytes | None]) -> AsyncIterator[bytes | None]:
    for value in values:
        yield value


class Bursts(ResultChecks):
    """The questions to the producer of a run, those about much at once last."""

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        await super().after_probes()
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_fairness()
            await self._check_places()
            await self._check_spread()
            await self._check_rows_after_serializers()
            await self._check_pace()
            await self._check_one_batch()
            await self._check_endless_serializer()

    async def close(self) -> None:
        """Close while a record is serialized; that call ends with the others."""
        if self._config.value_serializer is None or self._producer.engine.failure is not None:
            await super().close()
            return
        call = asyncio.ensure_future(self._producer.send(_NO_TOPIC, ENDLESS))
        await asyncio.sleep(0)
        await super().close()
        if not call.done() or not isinstance(call.exception(), ProducerClosedError):
            self._ledger.late_ends.append(f"a call that is serialized after close(): {call}")
        call.cancel()

    async def _check_fairness(self) -> None:
        """A loop of sends lets others run after `RECORDS_PER_TURN` records at the latest."""
        config, loop = self._config, asyncio.get_running_loop()
        if config.batch_size < _LARGE_BATCH or not config.linger_ms or config.buffer_max_records:
            return
        name, entries, turns = min(self._world.cluster.topics), list[Entry](), list[None]()
        row = longest = 0
        for _ in range(_BURST):
            if turns or not entries:
                turns.clear()
                loop.call_soon(turns.append, None)
                row = 0
            entries.append(await self._sent(name, None, 0))
            row += 1
            longest = max(longest, row)
        # One more: the last record comes after the turn that its call has waited for.
        if longest > RECORDS_PER_TURN + 1:
            self._ledger.false_reports.append(f"{longest} records were sent in one turn")
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_places(self) -> None:
        """A call that lets others run, and a bulk call of one row, wait for a place.

        `waiting.more_records_than_allowed` judges. The first opens a second large batch in a turn.
        """
        most, topics = self._config.buffer_max_records, self._world.cluster.topics
        if (
            most is None
            or not _TWO_PARTITIONS <= most <= _MOST_PLACES
            or not self._config.linger_ms
        ):
            return
        await self._producer.flush()
        name = max(topics, key=lambda each: len(topics[each].partitions))
        last = len(topics[name].partitions) - 1
        entries = [self._sent_nowait(name, 0) for _ in range(most - 1)]
        call = asyncio.ensure_future(self._sent(name, None, last))
        await asyncio.sleep(0)
        entries.append(self._sent_nowait(name, 0))
        row = self._entry(name, None, 0)
        result = await self._producer.send_many(name, _one_by_one([row.value]), partition=0)
        row.state, row.settled_at = CallState.UNKNOWN, self._world.now()
        if result.count != 1:
            self._ledger.false_reports.append(f"send_many of one row says {result!r}")
        for entry in [await call, *entries]:
            await self._outcome_of(entry)

    async def _check_spread(self) -> None:
        """Records without a key change their partition after `batch_size` bytes or twice as many.

        The next one is drawn, also the same one again; by weights if it is adaptive, which may
        leave one alone.
        """
        config, topics = self._config, self._world.cluster.topics
        name = max(topics, key=lambda each: len(topics[each].partitions))
        topic = self._producer.engine.metadata.topic(name)
        if topic is None or len(topic.available) < _TWO_PARTITIONS:
            return
        if (
            config.batch_size != _SMALLEST_BATCH
            or config.partitioner != "default"
            or config.partitioner_adaptive_partitioning_enable
            or config.client_rack
        ):
            return
        entries = [await self._sent(name, None, None, _SMALL_BYTES) for _ in range(_SPREAD)]
        chosen = [each.delivery.partition for each in entries if each.delivery is not None]
        changes = sum(map(ne, chosen, chosen[1:]))
        if len(chosen) == _SPREAD and changes < _FEWEST_CHOICES * (1 - 1 / len(topic.available)):
            text = f"{_SPREAD} records without a key changed their partition {changes} times"
            self._ledger.false_reports.append(text)
        for entry in entries:
            await self._outcome_of(entry)

    async def _check_rows_after_serializers(self) -> None:
        """Rows of bulk calls do not overtake a record that is serialized for an earlier call."""
        if self._config.value_serializer is None:
            return
        name, producer = min(self._world.cluster.topics), self._producer
        for what in ("send_many", "send_arrow"):
            call = asyncio.ensure_future(self._sent(name, None, 0, _SLOW_BYTES))
            await asyncio.sleep(0)
            row = self._entry(name, None, 0, _QUICK_BYTES)
            if what == "send_many":
                result = await producer.send_many(name, [row.value], partition=0)
            else:
                where = pa.array([0], pa.int32())
                table = pa.table({"value": pa.array([row.value], pa.binary()), "at": where})
                result = await producer.send_arrow(name, table, partition="at")
            row.state, row.settled_at = CallState.UNKNOWN, self._world.now()
            entry = await call
            await self._outcome_of(entry)
            first, _ = result.offsets.get(TopicPartition(name, 0), (None, None))
            if entry.delivery is not None and entry.error is None and first is not None:
                offset = (await entry.delivery).offset
                if offset is not None and offset > first:
                    text = f"a row of {what} is at {first}, an earlier record at {offset}"
                    self._ledger.false_reports.append(text)

    async def _check_pace(self) -> None:
        """A bulk call has few batches pending; what is too few or too many is found meanwhile."""
        config, cluster = self._config, self._world.cluster
        name, each_node = min(cluster.topics), config.max_in_flight_requests_per_connection + 1
        most = len(self._world.spec.nodes) * each_node * config.max_request_size / config.batch_size
        if (
            min(_ROWS, config.buffer_memory / config.batch_size) <= most + 1
            or config.buffer_max_records is not None
            or config.request_timeout_ms <= each_node * _LATE_MS  # late answers add up
            or cluster.topics[name].config.max_message_bytes < _ROW_BYTES + _OVERHEAD
        ):
            return
        entries = [self._entry(name, None, 0, _ROW_BYTES) for _ in range(_ROWS)]
        faults = FaultScript(cluster.faults)
        fault = faults.every("produce").is_answered_late(_LATE_MS)
        result = await self._producer.send_many(name, [each.value for each in entries], partition=0)
        faults.remove(fault)
        for entry in entries:
            entry.state, entry.settled_at = CallState.UNKNOWN, self._world.now()
        if result.count != _ROWS:
            self._ledger.false_reports.append(f"send_many of {_ROWS} rows says {result!r}")

    async def _check_one_batch(self) -> None:
        """Rows of a call that fit one batch are in one, also after records that were sent alone.

        The first of those finds out how the others can be sent directly.
        """
        config, name = self._config, min(self._world.cluster.topics)
        room = min(config.batch_size, config.buffer_memory - config.batch_size)
        if (
            room < _FEW_ROWS_ROOM
            or config.batch_max_records is not None
            or config.value_serializer is not None
            or config.buffer_max_records is not None
        ):
            return
        await self._producer.flush()
        for _ in range(_ALONE):
            await self._outcome_of(await self._sent(name, None, 0))
        await asyncio.sleep(0)  # after an acknowledgement its call goes on before anything else
        entries = [self._entry(name, None, 0, _SMALL_BYTES) for _ in range(_FEW_ROWS)]
        result = await self._producer.send_many(name, [each.value for each in entries], partition=0)
        for entry in entries:
            entry.state, entry.settled_at = CallState.UNKNOWN, self._world.now()
        first, last = result.offsets.get(TopicPartition(name, 0), (None, None))
        if result.count == _FEW_ROWS and first is not None and last is not None:
            log = self._world.cluster.topics[name].partitions[0].log
            held = [b for b in log.batches if b.base_offset <= last and first <= b.last_offset]
            if len(held) != 1:
                text = f"{_FEW_ROWS} rows of send_many are in {len(held)} batches"
                self._ledger.false_reports.append(text)

    async def _check_endless_serializer(self) -> None:
        """A record whose serializer does not end is refused in time, and others go on then."""
        block_s = self._config.max_block_ms / 1000
        if self._config.value_serializer is None or block_s > _LONGEST_BLOCK_S:
            return
        name, ends_at = min(self._world.cluster.topics), self._world.now() + block_s
        call = asyncio.ensure_future(self._producer.send(name, ENDLESS))
        await asyncio.sleep(block_s / 2)
        entry = await self._sent(name, None, 0)
        is_in_time = ends_at <= self._world.now() <= ends_at + _SLACK_S
        if entry.error is not None or not is_in_time or not call.done():
            self._ledger.unrecovered.append(f"{entry.label} beside {call}: {entry.error}")
        await asyncio.wait([call])
        if not isinstance(call.exception(), KafkaTimeoutError):
            self._ledger.false_reports.append(f"an endless serializer: {call}")
