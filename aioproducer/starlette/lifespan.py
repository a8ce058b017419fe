"""One producer for an application's life.

Owns: making the producer in the process that uses it, and closing it within a bound. Must not know:
requests' contents, HTTP errors.

    server forks workers --> lifespan begins: Producer(), start(), warm_up()
    SIGTERM --> server lets requests finish --> lifespan ends: close(close_timeout_s)

Invariants: nothing is made before the lifespan begins, so that an application that is loaded before
a fork (gunicorn's `preload_app`) shares no connection; each process has a producer of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from aioproducer import log
from aioproducer._arguments import timeout_of
from aioproducer._secrets import hides_arguments
from aioproducer.config import ConfigInput, configured
from aioproducer.errors import IllegalStateError
from aioproducer.producer import Producer

_KEY = "aioproducer"
_log = log.get("starlette")

InnerLifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


class ProducerLifespan:
    """The `lifespan` of an application that has one producer.

    Leaving it delivers what was accepted, also what nobody awaits.

    Args:
        config: a ready `ProducerConfig`, a mapping of properties, or a function without arguments
            that makes the producer.
        warm_up: topics whose metadata and leaders are fetched before the first request.
        close_timeout_s: seconds that the last deliveries may take. Less than the server's own
            patience (gunicorn's `graceful_timeout`, Kubernetes' grace period: 30 s), so that what
            could not be delivered is reported before the process is killed.
        inner: another lifespan, within which the producer is there.
        **options: the fields of `ProducerConfig`.

    Raises:
        ConfigError: an option is wrong; at once, not when the server starts.
        ValueError: `close_timeout_s` is negative or NaN.

    Example:
        >>> app = FastAPI(lifespan=ProducerLifespan(bootstrap_servers="localhost:9092"))
    """

    @hides_arguments
    def __init__(
        self,
        config: ConfigInput | Callable[[], Producer] = None,
        /,
        *,
        warm_up: Sequence[str] = (),
        close_timeout_s: float = 20.0,
        inner: InnerLifespan | None = None,
        **options: Any,
    ) -> None:
        self._make = config if callable(config) else _maker(config, options)
        if callable(config) and options:
            raise TypeError("options go to the function that makes the producer")
        self._warm_up = warm_up
        self._close_timeout_s = timeout_of(close_timeout_s, "close_timeout_s")
        self._inner = inner or (lambda app: nullcontext())

    @asynccontextmanager
    async def __call__(self, app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        """The life of one application in one process.

        Raises:
            KafkaError: the producer could not be started: the server does not start either.
        """
        producer = self._make()
        await producer.start()
        try:
            if self._warm_up:
                await producer.warm_up(self._warm_up)
            setattr(app.state, _KEY, producer)
            async with self._inner(app) as state:
                yield {**(state or {}), _KEY: producer}
        finally:
            _log.info("the application ends: delivering what was accepted")
            await producer.close(self._close_timeout_s)


def producer_of(connection: HTTPConnection) -> Producer:
    """The application's producer, for a request or a WebSocket; mounted applications have it too.

    Raises:
        IllegalStateError: the application has no `ProducerLifespan`, or its lifespan does not run.
    """
    scope = connection.scope
    found = scope.get("state", {}).get(_KEY) or getattr(scope["app"].state, _KEY, None)
    if not isinstance(found, Producer):
        raise IllegalStateError(
            "this application has no producer",
            advice="give it lifespan=ProducerLifespan(...); test clients have to run the lifespan",
        )
    return found


def _maker(config: ConfigInput, options: Mapping[str, Any]) -> Callable[[], Producer]:
    ready = configured(config, options)
    return lambda: Producer(ready)
