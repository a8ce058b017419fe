"""Checks of calls that send much at once, or are serialized for long, in a healed cluster.

Owns: situations in which a call has to pause. Not here: whether a bulk call pauses too long, see
`simulation.consistency`.
"""

from __future__ import annotations

import asyncio

from aioproducer.errors import KafkaTimeoutError, ProducerClosedError
from aioproducer.runtime.send.batch_appender import RECORDS_PER_TURN
from aioproducer.testing.faults import FaultScript
from simulation.ledger import CallState, Entry
from simulation.results import ResultChecks
from simulation.scenario import ENDLESS

_LARGE_BATCH, _BURST = 16_000, RECORDS_PER_TURN + 50
_ROWS, _ROW_BYTES, _OVERHEAD = 60, 1800, 200
_LATE_MS = 300
_NO_TOPIC, _SLACK_S, _LONGEST_BLOCK_S = "zz-endless", 1.0, 3.0


class Bursts(ResultChecks):
    """The questions to the producer of a run, those about much at once last."""

    async def after_probes(self) -> None:
        """Ask once every record has its outcome."""
        await super().after_probes()
        if self._producer.engine.failure is None and self._world.cluster.topics:
            await self._check_fairness()
            await self._check_pace()
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
