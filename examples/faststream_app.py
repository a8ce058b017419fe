"""A FastStream application on aioproducer: it consumes orders and publishes invoices.

python -m aioproducer cluster --topic orders:3 --topic invoices:3      # in another terminal
faststream run examples.faststream_app:app
"""

from __future__ import annotations

import os
from typing import Any

from faststream import FastStream

from aioproducer.contrib.faststream import KafkaBroker


def create_app(bootstrap_servers: str) -> FastStream:
    broker = KafkaBroker(bootstrap_servers.split(","), linger_ms=5, enable_idempotence=True)
    app = FastStream(broker)

    @broker.subscriber("orders", auto_offset_reset="earliest")
    @broker.publisher("invoices")
    async def bill(order: dict[str, Any]) -> dict[str, Any]:
        return {"order": order["id"], "total": sum(order["prices"])}

    @app.after_startup
    async def place_orders() -> None:
        await broker.publish({"id": 1, "prices": [3, 4]}, "orders", key=b"1")
        await broker.publish({"id": 2, "prices": []}, "orders", key=b"2", no_confirm=True)
        await broker.publish_batch({"id": 3, "prices": [5]}, topic="orders")

    return app


app = create_app(os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092"))
