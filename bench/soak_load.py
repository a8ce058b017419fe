"""The worker that sends for long: numbered records at a steady pace, each outcome checked.

Arguments: bootstrap, topic, partitions, value_bytes, options (of the producer). It reports `ready`.
On `send` with a rate, records/s, and a number of records, it reports `counters` each second,
`sent` when it has sent them all or gets another command, `settled` when the last outcome is there
or time is up, and `closed`.

The pace is kept on average: what `send` held up is caught up on. Each partition numbers its records
from 0, and nothing else is written there: the number has to be the offset.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from aioproducer import Producer
from aioproducer.errors import KafkaError
from aioproducer.types import Persistence
from bench.numbering import value_of
from bench.workers import arguments, next_order, orders, tell

if TYPE_CHECKING:
    from aioproducer.runtime.delivery import Delivery

_TICK_S = 0.01
_CHECK_EVERY_S = 0.05
_PAUSE_S = 0.2
_REPORT_S = 1.0
_UNRESOLVED_S = 135.0
"""Beyond the delivery timeout: what has no outcome by then has none."""
_MOST_REPORTED = 10_000


class _Load:
    def __init__(self, producer: Producer, topic: str, partitions: int, value_bytes: int) -> None:
        self.sent = [0] * partitions
        self.acknowledged = 0
        self.misplaced = 0
        self.failed: list[tuple[int, int]] = []
        self.denied: list[tuple[int, int]] = []
        self.reasons: Counter[str] = Counter()
        self._producer = producer
        self._topic = topic
        self._value_bytes = value_bytes
        self._settled = [0] * partitions
        self._pending: list[deque[Delivery]] = [deque() for _ in range(partitions)]

    @property
    def pending(self) -> int:
        """The number of records that have no outcome yet."""
        return sum(map(len, self._pending))

    @property
    def refused(self) -> int:
        """The number of times that `send` raised; the record was then tried again."""
        return sum(self.reasons.values()) - len(self.failed)

    async def send(self, rate: float, records: int) -> None:
        """Keep the pace until all are sent."""
        started = time.monotonic()
        total = 0
        while total < records:
            due = min(records, (time.monotonic() - started) * rate)
            while total < due:
                total += await self._send_one(total % len(self.sent))
            await asyncio.sleep(_TICK_S)

    async def _send_one(self, partition: int) -> bool:
        value = value_of(partition, self.sent[partition], self._value_bytes)
        try:
            delivery = await self._producer.send(self._topic, value, partition=partition)
        except KafkaError as error:
            self.reasons[f"refused: {type(error).__name__}"] += 1
            await asyncio.sleep(_PAUSE_S)
            return False
        self._pending[partition].append(delivery)
        self.sent[partition] += 1
        return True

    async def check_outcomes(self) -> None:
        """Check the outcomes as they come, for ever."""
        while True:
            for partition, pending in enumerate(self._pending):
                while pending and pending[0].done():
                    self._look_at(pending.popleft(), partition, self._settled[partition])
                    self._settled[partition] += 1
            await asyncio.sleep(_CHECK_EVERY_S)

    def _look_at(self, delivery: Delivery, partition: int, number: int) -> None:
        try:
            metadata = delivery.result()
        except KafkaError as error:
            self.reasons[type(error).__name__] += 1
            self.failed.append((partition, number))
            if error.persistence is Persistence.NOT_PERSISTED:
                self.denied.append((partition, number))
        else:
            self.acknowledged += 1
            self.misplaced += metadata.offset != number

    def counts(self, producer: Producer) -> dict[str, Any]:
        """Return the counters to report."""
        metrics = producer.metrics()
        return {
            "at": time.monotonic(),
            "sent": sum(self.sent),
            "acknowledged": self.acknowledged,
            "failed": len(self.failed),
            "refused": self.refused,
            "misplaced": self.misplaced,
            "pending": self.pending,
            "retried": metrics["record_retry_total"],
            "records_per_batch": metrics["records_per_batch_avg"],
            "requests_in_flight": metrics["requests_in_flight"],
            "buffer_used": metrics["buffer_total_bytes"] - metrics["buffer_available_bytes"],
            "waiting": metrics["waiting_threads"],
            "batches_pending": producer.health().batches_pending,
            "tasks": len(asyncio.all_tasks()),
        }


async def _report(load: _Load, producer: Producer) -> None:
    while True:
        tell("counters", **load.counts(producer))
        await asyncio.sleep(_REPORT_S)


async def _live(given: dict[str, Any]) -> None:
    heard = await orders()
    own_tasks = len(asyncio.all_tasks())
    producer = Producer(bootstrap_servers=given["bootstrap"], **given["options"])
    async with producer:
        await producer.warm_up([given["topic"]])
        tell("ready", buffer_memory=producer.config.buffer_memory)
        order = await next_order(heard)
        if order is None:
            return
        load = _Load(producer, given["topic"], given["partitions"], given["value_bytes"])
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(load.check_outcomes()),
                group.create_task(_report(load, producer)),
            ]
            closed_by_peer = group.create_task(next_order(heard))
            sending = group.create_task(load.send(order["rate"], order["records"]))
            await asyncio.wait([sending, closed_by_peer], return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            tell("sent", records=sum(load.sent))
            deadline = time.monotonic() + _UNRESOLVED_S
            while load.pending and time.monotonic() < deadline:  # noqa: ASYNC110 - outcomes have no one event
                await asyncio.sleep(_CHECK_EVERY_S)
            for task in (*beside, closed_by_peer):
                task.cancel()
        tell(
            "settled",
            **load.counts(producer),
            sent_by_partition=dict(enumerate(load.sent)),
            reasons=dict(load.reasons),
            failed_numbers=load.failed[:_MOST_REPORTED],
            denied_numbers=load.denied[:_MOST_REPORTED],
        )
    tell("closed", tasks=len(asyncio.all_tasks()) - own_tasks)
    await next_order(heard)


if __name__ == "__main__":
    asyncio.run(_live(dict(arguments())))
