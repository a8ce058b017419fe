"""aiokafka: idempotent, which here means one batch per partition and acks=all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self

from aiokafka import AIOKafkaProducer

from bench.clients import Adapter, Job, Pair

_NAMES = {"linger": "linger_ms", "batch": "max_batch_size", "codec": "compression_type"}


class Client(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap, enable_idempotence=True, **job.options(_NAMES)
        )

    async def __aenter__(self) -> Self:
        await self._producer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._producer.stop()

    async def each(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.job.topic
        futures = [await producer.send(topic, value, key) for value, key in records]
        for future in futures:
            await future

    async def forget(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.job.topic
        for value, key in records:
            await producer.send(topic, value, key)
        await producer.flush()

    async def gather(self, records: Iterable[Pair]) -> None:
        producer, topic = self._producer, self.job.topic
        await asyncio.gather(*[await producer.send(topic, value, key) for value, key in records])

    async def ask(self, record: Pair) -> object:
        value, key = record
        return await self._producer.send_and_wait(self.job.topic, value, key)
