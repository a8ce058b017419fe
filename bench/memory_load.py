"""The worker whose memory is measured: many tasks that send and keep no deliveries.

Arguments: bootstrap, topic, partitions, tasks, value_bytes, options (of the producer). It reports
`idle` once it is connected, then `counters` every 100 ms.
On `offer` with a rate, records/s of all tasks together (0: as fast as they can), the tasks send
until `stop`; then it reports `drained`.

A task waits in `send` or until its next turn comes; turns that come while it waits in `send` are
counted and dropped, like the requests of a client that was asked to wait.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from typing import Any

from aioproducer import Producer
from aioproducer.errors import KafkaError
from bench.numbering import value_of
from bench.workers import arguments, next_order, orders, rss_of, tell

_PAUSE_S = 1.0
_SAMPLE_S = 0.1
_DRAIN_TIMEOUT_S = 300.0


class _Load:
    """The work of the tasks, and their measurements.

    A task that has to wait for memory after others takes a number: numbers are served in order.
    """

    def __init__(self, producer: Producer, topic: str, partitions: int, value_bytes: int) -> None:
        self.stopped = False
        self.turns = 0
        self.missed = 0
        self.waited = 0
        self.overtaken = 0
        self.longest_wait_s = 0.0
        self.sent: dict[int, int] = {}
        self.errors: Counter[str] = Counter()
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._value_bytes = value_bytes
        self._served = 0

    async def run(self, task: int, offset_s: float, interval_s: float) -> None:
        """Send records at the interval of one task until `stopped`."""
        due = time.monotonic() + offset_s
        number = 0
        while not self.stopped:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.turns += 1
            if await self._send(task, number):
                number += 1
                self.sent[task] = number
            due += interval_s
            if interval_s and (late := int((time.monotonic() - due) / interval_s)) > 0:
                self.turns += late
                self.missed += late
                due += late * interval_s

    async def _send(self, task: int, number: int) -> bool:
        value = value_of(task, number, self._value_bytes)
        in_line = self._producer.metrics()["waiting_threads"] > 0
        if in_line:
            self.waited += 1
            ticket = self.waited
        entered = time.monotonic()
        try:
            await self._producer.send(self._topic, value, partition=task % self._partitions)
        except KafkaError as error:
            self.errors[type(error).__name__] += 1
            return False
        if in_line:
            self.overtaken += ticket != self._served + 1
            self._served = max(ticket, self._served)
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - entered)
        return True


async def _report_counters(producer: Producer, load: _Load) -> None:
    while True:
        metrics = producer.metrics()
        tell(
            "counters",
            at=time.monotonic(),
            turns=load.turns,
            missed=load.missed,
            accepted=metrics["record_send_total"],
            acknowledged=metrics["record_acknowledged_total"],
            buffer_used=metrics["buffer_total_bytes"] - metrics["buffer_available_bytes"],
            waiting=metrics["waiting_threads"],
        )
        await asyncio.sleep(_SAMPLE_S)


async def _measure(given: dict[str, Any]) -> None:
    heard = await orders()
    async with Producer(bootstrap_servers=given["bootstrap"], **given["options"]) as producer:
        await producer.warm_up([given["topic"]])
        await asyncio.sleep(_PAUSE_S)
        gc.collect()
        tell("idle", rss=rss_of(), buffer_memory=producer.config.buffer_memory)
        load = _Load(producer, given["topic"], given["partitions"], given["value_bytes"])
        counting = asyncio.create_task(_report_counters(producer, load))
        try:
            order = await next_order(heard)
            if order is None:
                return
            rate, tasks = order["rate"], given["tasks"]
            interval_s = tasks / rate if rate else 0.0
            async with asyncio.TaskGroup() as group:
                for task in range(tasks):
                    group.create_task(load.run(task, task * interval_s / tasks, interval_s))
                await next_order(heard)
                load.stopped = True
            left = await producer.flush(_DRAIN_TIMEOUT_S)
        finally:
            counting.cancel()
        metrics = producer.metrics()
        tell(
            "drained",
            left=left,
            rss=rss_of(),
            turns=load.turns,
            missed=load.missed,
            waited=load.waited,
            overtaken=load.overtaken,
            longest_wait_s=load.longest_wait_s,
            sent=load.sent,
            refused=dict(load.errors),
            accepted=metrics["record_send_total"],
            acknowledged=metrics["record_acknowledged_total"],
            failed=metrics["record_error_total"],
            retried=metrics["record_retry_total"],
            buffer_unreturned=metrics["buffer_total_bytes"] - metrics["buffer_available_bytes"],
            waiting=metrics["waiting_threads"],
        )
        await next_order(heard)


if __name__ == "__main__":
    asyncio.run(_measure(dict(arguments())))
