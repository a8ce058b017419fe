"""A producer in a FastAPI application.

Needs the extra `aioproducer[fastapi]`.

    app = FastAPI(lifespan=ProducerLifespan(bootstrap_servers="localhost:9092"))
    answer_kafka_errors(app)  # 503 with Retry-After

    @app.post("/orders", status_code=201)
    async def place(order: Order, producer: ProducerDependency) -> None:
        await producer.send_and_wait("orders", order.model_dump_json().encode())
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from aioproducer._checks.extras import required

with required(__name__, "fastapi"):
    from fastapi import Depends

from aioproducer import starlette
from aioproducer.client.producer import Producer

# The star form is what makes these names part of this module for type checkers (PEP 561).
from aioproducer.starlette import *  # noqa: F403
from aioproducer.starlette import producer_of

__all__ = ["ProducerDependency"]
__all__ += starlette.__all__

ProducerDependency: TypeAlias = Annotated[Producer, Depends(producer_of)]
"""The application's producer as a parameter of a handler; `producer_of` is what tests override."""
