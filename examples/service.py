"""An asyncio service that publishes an event per order and answers after the acknowledgement.

    python -m aioproducer cluster --topic orders:6      # in another terminal
    python examples/service.py

One `Producer` for the whole service: it is started once, shared by all tasks and closed at the end.
`send()` returns when the record is in the buffer, which is the back-pressure. Awaiting the delivery
that it returns waits for the acknowledgement.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, dataclass

from aioproducer import KafkaError, Producer, RecordMetadata

TOPIC = "orders"


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    cents: int


class OrderService:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def place(self, order: Order) -> RecordMetadata:
        """Publish an order and wait for the acknowledgement; a customer's orders stay in order."""
        delivery = await self._producer.send(
            TOPIC,
            json.dumps(asdict(order)).encode(),
            key=order.customer.encode(),
            headers=[("content-type", b"application/json")],
        )
        return await delivery

    async def place_all(self, orders: list[Order]) -> tuple[int, list[KafkaError]]:
        """Publish many orders; return how many were acknowledged, and the errors of the others."""
        outcomes = await asyncio.gather(*map(self.place, orders), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
        return len(outcomes) - len(failures), failures


async def main(bootstrap_servers: str) -> int:
    orders = [Order(number, f"customer-{number % 7}", number * 100) for number in range(1, 1001)]
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        service = OrderService(producer)
        first = await service.place(orders[0])
        print(f"order 1 is record {first.offset} of {first.topic}-{first.partition}")
        placed, failures = await service.place_all(orders[1:])
        print(f"{placed} more placed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    servers = os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092")
    raise SystemExit(asyncio.run(main(servers)))
