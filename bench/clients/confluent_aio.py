"""confluent-kafka's AIOProducer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self

from confluent_kafka.aio import AIOProducer

from bench.clients import Adapter, Pair
from bench.clients.confluent import configuration


class Client(Adapter):
    async def __aenter__(self) -> Self:
        self._producer = AIOProducer(configuration(self.job))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._producer.close()

    async def each(self, records: Iterable[Pair]) -> None:
        produce, topic = self._producer.produce, self.topic
        futures = [await produce(topic, value, key) for value, key in records]
        await self._producer.flush()
        for future in futures:
            await future

    async def dropped(self, records: Iterable[Pair]) -> None:
        produce, topic = self._producer.produce, self.topic
        for value, key in records:
            await produce(topic, value, key)
        await self._producer.flush()

    async def gather(self, records: Iterable[Pair]) -> None:
        produce, topic = self._producer.produce, self.topic
        futures = [await produce(topic, value, key) for value, key in records]
        await self._producer.flush()
        await asyncio.gather(*futures)

    async def ask(self, record: Pair) -> object:
        value, key = record
        return await (await self._producer.produce(self.topic, value, key))
