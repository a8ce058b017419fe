"""kafka-python: blocking, with its own thread for the network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from kafka import KafkaProducer

from bench.clients import Adapter, Job, Pair

_NAMES = {"linger": "linger_ms", "batch": "batch_size", "codec": "compression_type"}
_END_S = 120.0


class Client(Adapter):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._producer = KafkaProducer(
            bootstrap_servers=job.bootstrap,
            enable_idempotence=True,
            acks="all",
            **job.options(_NAMES),
        )

    async def __aenter__(self) -> Self:
        self._producer.partitions_for(self.topic)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._producer.close(timeout=_END_S)

    async def each(self, records: Iterable[Pair]) -> None:
        send, topic = self._producer.send, self.topic
        futures = [send(topic, value, key) for value, key in records]
        self._producer.flush(_END_S)
        for future in futures:
            future.get(_END_S)

    async def dropped(self, records: Iterable[Pair]) -> None:
        send, topic = self._producer.send, self.topic
        for value, key in records:
            send(topic, value, key)
        self._producer.flush(_END_S)
