"""aiokafka: idempotent, which here means one batch per partition and acks=all."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from aiokafka import AIOKafkaProducer

from bench.clients import AwaitedClient, Job, RoundRobin, Watch

_NAMES = {"linger": "linger_ms", "batch": "max_batch_size", "codec": "compression_type"}


class Client(AwaitedClient):
    def __init__(self, job: Job) -> None:
        options = job.options(_NAMES) | _extra_options(job)
        producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap, enable_idempotence=True, **options
        )
        super().__init__(job, producer)
        if job.extra == "interceptor":
            self._watch = Watch()
            self._send = self._watched

    async def _watched(self, topic: str, value: Any, key: Any) -> asyncio.Future[Any]:
        """Send as a wrapper does, since aiokafka has no interceptors."""
        self._watch.on_send((topic, value, key))
        sent: asyncio.Future[Any] = await self._producer.send(topic, value, key)
        sent.add_done_callback(self._watch.on_end)
        return sent

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._producer.stop()


def _extra_options(job: Job) -> dict[str, Any]:
    """Return the options for what each record goes through."""
    robin = RoundRobin()

    def partition(key: object, every: list[int], available: list[int]) -> int:
        return every[robin.pick(len(every))]

    options: dict[str, dict[str, Any]] = {
        "partitioner": {"partitioner": partition},
        "serializer": {"value_serializer": str.encode},
    }
    return options.get(job.extra, {})
