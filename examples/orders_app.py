"""A FastAPI application that publishes orders; `test_orders_app.py` has its tests.

    python -m aioproducer cluster --topic orders:6      # in another terminal, now or later
    cd examples && uvicorn orders_app:app

It starts at once, also without Kafka. Until the cluster has answered, `GET /ready` and
`POST /orders` return 503.
"""

from __future__ import annotations

import os

from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aioproducer.fastapi import ProducerDependency, ProducerLifespan, answer_kafka_errors

TOPIC = "orders"
LARGEST_BODY = 64 * 1024

app = FastAPI(
    lifespan=ProducerLifespan(
        bootstrap_servers=os.environ.get("AIOPRODUCER_BOOTSTRAP_SERVERS", "localhost:9092"),
        start="background",
        warm_up=[TOPIC],
    )
)
answer_kafka_errors(app)


class LimitedBodies:
    """Answer 413 to a body above a limit: without one, it is read whole into memory."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = self.limit

        async def receive_limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        await self.app(scope, receive_limited if scope["type"] == "http" else receive, send)


app.add_middleware(LimitedBodies, limit=LARGEST_BODY)


class Order(BaseModel):
    customer: str
    amount: int


@app.post("/orders", status_code=201)
async def place(order: Order, producer: ProducerDependency) -> dict[str, int | None]:
    value = order.model_dump_json().encode()
    metadata = await producer.send_and_wait(TOPIC, value, order.customer.encode())
    return {"partition": metadata.partition, "offset": metadata.offset}


@app.get("/ready")
async def ready(producer: ProducerDependency, response: Response) -> dict[str, object]:
    health = producer.health()
    response.status_code = 200 if health.ready else 503
    return {"ready": health.ready, "state": health.state, "error": health.error}
