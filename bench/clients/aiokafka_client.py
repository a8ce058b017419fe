"""aiokafka: idempotent, which here means one batch per partition and acks=all."""

from __future__ import annotations

from typing import Self

from aiokafka import AIOKafkaProducer

from bench.clients import AwaitedClient, Job

_NAMES = {"linger": "linger_ms", "batch": "max_batch_size", "codec": "compression_type"}


class Client(AwaitedClient):
    def __init__(self, job: Job) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap, enable_idempotence=True, **job.options(_NAMES)
        )
        super().__init__(job, producer)

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._producer.stop()
