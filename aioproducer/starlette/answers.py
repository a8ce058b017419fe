"""Answers for requests whose record Kafka could not take.

Any other error stays an exception, which servers log and answer with 500.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from aioproducer._checks.callables import refuse_coroutine_function
from aioproducer._util import log
from aioproducer._util.tasks import HOOK_ERRORS
from aioproducer.errors import KafkaError
from aioproducer.refusal import Refusal
from aioproducer.starlette import limited
from aioproducer.types import Persistence

_log = log.get("starlette")


def answer_kafka_errors(
    app: Starlette,
    *,
    retry_after_s: int = 1,
    on_refusal: Callable[[Exception], object] | None = None,
) -> None:
    """Answer requests whose handlers raise a `KafkaError`; they need no `try` from now on.

    Each answer is logged with the error's text, which names the topic and says what to do.
    Repeated ones (the same kind of error and the same topic) are limited, and a `ProducerLifespan`
    logs at its end how many were left out. Errors that a client cannot act on, such as a missing
    permission, are logged likewise, and raised: the server answers 500.

    An `ExceptionGroup` of `KafkaError` alone, as of an `asyncio.TaskGroup`, is answered as the one
    of its errors that a retry helps least. Its `persistence` is always "possibly persisted": other
    records of the request may have been written.

    Args:
        app: the application.
        retry_after_s: what `Retry-After` says, in seconds.
        on_refusal: called with every error that is answered, such as `LivePage.note`; what it
            raises is logged.

    Raises:
        ConfigError: `on_refusal` is a coroutine function.
    """
    refuse_coroutine_function("on_refusal", on_refusal)

    async def answer(request: Request, raised: Exception) -> JSONResponse:
        # A WebSocket comes here too: it has no response, so its handler has to catch what it can.
        error = _kafka_error_of(raised)
        if error is None or not isinstance(request, Request):
            raise raised
        refusal = Refusal.of(error, retry_after_s)
        _log_answer(app, request, error, 500 if refusal is None else refusal.status)
        if refusal is None:
            raise raised
        if error is not raised:
            refusal = replace(refusal, persistence=Persistence.POSSIBLY_PERSISTED)
        if on_refusal is not None:
            try:
                on_refusal(error)
            except HOOK_ERRORS:
                _log.exception("on_refusal raised")
        return JSONResponse(refusal.body(), refusal.status, refusal.headers())

    app.add_exception_handler(KafkaError, answer)
    if ExceptionGroup not in app.exception_handlers:
        app.add_exception_handler(ExceptionGroup, answer)


def _log_answer(app: Starlette, request: Request, error: KafkaError, status: int) -> None:
    kind = type(error).__name__
    # The route as declared: paths that clients choose are kept out of the log.
    path = getattr(request.scope.get("route"), "path", None)
    limited.write(
        app,
        logging.WARNING,
        error.topic,
        f"{kind} {status}",
        "%s %s is answered with %d: %s: %s",
        request.method,
        path if isinstance(path, str) else "a request",
        status,
        kind,
        error,
    )


def _kafka_error_of(raised: Exception) -> KafkaError | None:
    """Return the error to answer; of a group the one that a retry helps least.

    None if there is any other error.
    """
    if isinstance(raised, KafkaError):
        return raised
    if not isinstance(raised, ExceptionGroup):
        return None
    errors = [_kafka_error_of(each) for each in raised.exceptions]
    found = [each for each in errors if each is not None]
    return min(found, key=_retry_rank) if len(found) == len(errors) else None


def _retry_rank(error: KafkaError) -> int:
    """Return how much another try may help: not at all, with another event, or later."""
    refusal = Refusal.of(error)
    return 0 if refusal is None else {500: 1, 503: 3}.get(refusal.status, 2)
