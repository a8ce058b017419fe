"""Answers for requests whose record Kafka could not take.

Owns: an exception handler. Must not know: which errors are answered, and how: `aioproducer.refusal`
does. Any other error stays an exception, which servers log and answer with 500.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from aioproducer.errors import KafkaError
from aioproducer.refusal import Refusal


def answer_kafka_errors(
    app: Starlette,
    *,
    retry_after_s: int = 1,
    on_refusal: Callable[[Exception], object] | None = None,
) -> None:
    """Answers requests whose handlers raise a `KafkaError`; they need no `try` from now on.

    Args:
        app: the application.
        retry_after_s: what `Retry-After` says, in seconds.
        on_refusal: told of every error that is answered, such as `LivePage.note`.
    """

    async def answer(request: Request, error: Exception) -> JSONResponse:
        # A WebSocket comes here too: it has no response, so its handler has to catch what it can.
        refusal = None
        if isinstance(error, KafkaError) and isinstance(request, Request):
            refusal = Refusal.of(error, retry_after_s)
        if refusal is None:
            raise error
        if on_refusal is not None:
            on_refusal(error)
        return JSONResponse(refusal.body(), refusal.status, refusal.headers())

    app.add_exception_handler(KafkaError, answer)
