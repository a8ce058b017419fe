"""aioproducer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Self

from aioproducer import Producer
from bench.cells import KNOWN_FEW
from bench.clients import AwaitedClient, Job, Pair, RoundRobin, Watch

_NAMES = {"linger": "linger_ms", "batch": "batch_size", "codec": "compression_type"}


class Client(AwaitedClient):
    def __init__(self, job: Job) -> None:
        options = job.options(_NAMES) | _extra_options(job)
        producer = Producer(bootstrap_servers=job.bootstrap, **options)
        super().__init__(job, producer)

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._producer.warm_up(self.job.topics)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._producer.close()

    def prepare(self, mode: str, records: Iterable[Pair]) -> Any:
        if mode == "many" and self.job.keyed:
            return [(key, value) for value, key in records]
        if mode == "many":
            return [value for value, _ in records]
        if mode == "arrow":
            return _table(records, self.job.keyed)
        return super().prepare(mode, records)

    async def many(self, items: list[Any]) -> None:
        result = await self._producer.send_many(self.topic, items)
        if result.failed:
            raise result.failed[0].error

    async def arrow(self, table: Any) -> None:
        key = "key" if self.job.keyed else None
        result = await self._producer.send_arrow(self.topic, table, key=key)
        if result.failed:
            raise result.failed[0].error

    async def active(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.topic
        partitions = itertools.cycle(range(KNOWN_FEW))
        deliveries = [
            await producer.send(topic, value, key, partition=partition)
            for (value, key), partition in zip(records, partitions, strict=False)
        ]
        for delivery in deliveries:
            await delivery

    async def paced(self, topic: str, record: Pair) -> None:
        """Send one record of a steady load over many topics; its delivery is ignored."""
        await self._producer.send(topic, *record)

    async def flush(self) -> None:
        await self._producer.flush()


def _extra_options(job: Job) -> dict[str, Any]:
    """Return the options for what each record goes through."""
    robin, watch = RoundRobin(), Watch()

    class Interceptor:
        on_send = staticmethod(watch.on_send)
        on_acknowledgement = staticmethod(watch.on_end)

    def partition(topic: str, key: object, value: object, metadata: Any) -> int:
        return robin.pick(len(metadata.partitions))

    options: dict[str, dict[str, Any]] = {
        "partitioner": {"partitioner": partition},
        "topics": {"buffer_memory_allocation_strategy": "incremental"},
        "interceptor": {"interceptor_classes": [Interceptor()]},
        "serializer": {"value_serializer": str.encode},
    }
    return options.get(job.extra, {})


def _table(records: Iterable[Pair], keyed: bool) -> Any:
    import pyarrow as pa

    rows = list(records)
    columns = {"value": pa.array([value for value, _ in rows], pa.binary())}
    if keyed:
        columns["key"] = pa.array([key for _, key in rows], pa.binary())
    return pa.table(columns)
