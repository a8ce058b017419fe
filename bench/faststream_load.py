"""The worker of the FastStream benchmark: messages published by one broker of FastStream.

Arguments: bootstrap, topic, client (`aiokafka`, `drop-in`, `native`, or `none`: FastStream alone,
whose messages are acknowledged at once and sent nowhere), mode (`publish`, `no_confirm`), count,
idempotent. When it has warmed up it reports `ready`; each time `go` is said
it publishes `count` messages and reports `round` with the CPU time of the process, all threads.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import aiokafka
from faststream import kafka
from faststream.kafka.publisher.producer import AioKafkaFastProducerImpl

from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.contrib.faststream import KafkaBroker
from bench.workers import arguments, next_order, orders, tell

_AT_ONCE = 500
_WARM_UP = 1_000
_VALUE = b"0123456789abcdef" * 6 + b"0123"


class _Nowhere(AioKafkaFastProducerImpl):
    """Measure FastStream without a producer."""

    async def publish(self, cmd: Any) -> Any:
        value, content_type = await self.codec.encode(cmd.body, self.serializer)
        headers = {"content-type": content_type or "", **cmd.headers_to_publish()}
        [(name, (text or "").encode()) for name, text in headers.items()]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done if cmd.no_confirm else value


async def _publish(broker: kafka.KafkaBroker, topic: str, count: int) -> None:
    for _ in range(count):
        await broker.publish(_VALUE, topic)


async def _publish_no_confirm(broker: kafka.KafkaBroker, topic: str, count: int) -> None:
    for start in range(0, count, _AT_ONCE):
        futures = [
            await broker.publish(_VALUE, topic, no_confirm=True)
            for _ in range(min(_AT_ONCE, count - start))
        ]
        for future in futures:
            await future


MODES = {"publish": _publish, "no_confirm": _publish_no_confirm}


async def _measure(
    bootstrap: str, topic: str, client: str, mode: str, count: int, idempotent: bool
) -> None:
    heard = await orders()
    if client == "drop-in":
        stand_in: Any = AIOKafkaProducer
        aiokafka.AIOKafkaProducer = stand_in
    options: dict[str, Any] = {"enable_idempotence": True} if idempotent else {}
    new_broker = KafkaBroker if client == "native" else kafka.KafkaBroker
    broker = new_broker(bootstrap.split(","), logger=None, **options)
    if client == "none":
        broker.config.broker_config.producer = _Nowhere(None, None)
    async with broker:
        await MODES[mode](broker, topic, _WARM_UP)
        tell("ready")
        number = 0
        while await next_order(heard) is not None:
            gc.collect()
            number += 1
            started = time.process_time()
            await MODES[mode](broker, topic, count)
            tell(f"round-{number}", cpu_us=(time.process_time() - started) / count * 1e6)


if __name__ == "__main__":
    asyncio.run(_measure(**arguments()))
