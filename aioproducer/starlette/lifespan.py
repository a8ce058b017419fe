"""One producer for an application's lifetime.

    server forks workers --> lifespan begins: Producer(), start(), warm_up()
    SIGTERM --> server lets requests finish --> lifespan ends: close(close_timeout_s)

Invariants: nothing is made before the lifespan begins, so that an application that is loaded before
a fork (gunicorn's `preload_app`) shares no connection; each process has its own producer.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, Self, Unpack

from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from aioproducer._checks.callables import makes_coroutines
from aioproducer._util import log
from aioproducer._util.arguments import timeout_of
from aioproducer._util.secrets import hides_arguments
from aioproducer.client.producer import Producer
from aioproducer.config import OPTIONS, ConfigInput, configured
from aioproducer.config.option_types import ProducerOptions
from aioproducer.errors import IllegalStateError, KafkaError
from aioproducer.starlette import limited
from aioproducer.starlette.recording import recorded

_KEY = "aioproducer"
_TOTALS = ("record_send_total", "record_acknowledged_total", "record_error_total")
_log = log.get("starlette")

_REQUEST_MS = 5_000
_DELIVERY_MS = 10_000
_DEFAULT_LINGER_MS = 5

InnerLifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]]


class ProducerLifespan:
    """The `lifespan` of an application that has one producer.

    Leaving it delivers what was accepted, also records that no task awaits.

    A request does not wait for two minutes. So `max_block_ms` and `request_timeout_ms` are 5 s here
    and `delivery_timeout_ms` is 10 s, or `linger_ms` + `request_timeout_ms` if that is more, unless
    they are given. A ready `ProducerConfig` and a producer that a function makes keep their own.

    Args:
        config: a ready `ProducerConfig`, a mapping of properties, or a function without arguments
            that makes the producer.
        start: with "wait" the application starts when the cluster has answered, and not at all
            if it does not answer within `max_block_ms`. With "background" it serves at once: until
            the cluster has answered, `health()` of the producer is not ready and says why, and
            sends and transactions raise `NotConnectedError` without a wait.
        warm_up: topics whose metadata and leaders are fetched before the first request, or with
            the first answer of a cluster that is not waited for.
        close_timeout_s: seconds that the last deliveries may take. Less than the server's kill
            timeout (gunicorn's `graceful_timeout`, Kubernetes' grace period: 30 s), so that what
            could not be delivered is reported before the process is killed.
        inner: another lifespan, within which the producer is there.
        **options: the fields of `ProducerConfig`.

    Where `app.dependency_overrides` has `producer_of` when the application starts, as in a test,
    no producer is made.

    Raises:
        ConfigError: an option is wrong; at once, not when the server starts.
        TypeError: `config` is a producer or a coroutine function.
        ValueError: `close_timeout_s` is negative or NaN, or `start` is something else.

    Examples:
        >>> app = FastAPI(lifespan=ProducerLifespan(bootstrap_servers="localhost:9092"))
    """

    @hides_arguments
    def __init__(
        self,
        config: ConfigInput | Callable[[], Producer] = None,
        /,
        *,
        start: Literal["wait", "background"] = "wait",
        warm_up: Sequence[str] = (),
        close_timeout_s: float = 20.0,
        inner: InnerLifespan | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        given: object = config
        if isinstance(given, Producer) or makes_coroutines(given):
            raise TypeError(
                "a producer is made when the application starts: pass its options, or a plain "
                "function that makes it"
            )
        self._make: Callable[[], Producer] = (
            config
            if callable(config)
            else partial(Producer, configured(config, options, _short_bounds))
        )
        if callable(config) and options:
            raise TypeError("options go to the function that makes the producer")
        if start not in {"wait", "background"}:
            raise ValueError(f"start must be 'wait' or 'background', not {start!r}")
        if isinstance(warm_up, str):
            raise TypeError(f"warm_up takes a sequence of topic names, such as [{warm_up!r}]")
        self._in_background = start == "background"
        self._warm_up = tuple(warm_up)
        self._close_timeout_s = timeout_of(close_timeout_s, "close_timeout_s")
        self._inner = inner or (lambda app: nullcontext())

    @asynccontextmanager
    async def __call__(self, app: Starlette | None) -> AsyncIterator[Mapping[str, Any]]:
        """Run the producer for the lifetime of one application in one process."""
        overrides = getattr(app, "dependency_overrides", {})
        if producer_of in overrides:
            async with self._inner(app) as state:
                yield {**(state or {}), **_given_by(overrides[producer_of])}
            return
        producer = self._make()
        if not isinstance(producer, Producer):
            raise TypeError(
                "the function given to ProducerLifespan has to make an aioproducer.Producer, not "
                f"{type(producer).__name__} of {type(producer).__module__}"
            )
        warming: asyncio.Task[None] | None = None
        if self._in_background:
            await producer.start(wait=False)
            producer._refuse_unconnected()
            warming = asyncio.create_task(_prepare(producer, self._warm_up), name="warm-up")
        else:
            await producer.start()
        try:
            if self._warm_up and not self._in_background:
                await producer.warm_up(self._warm_up)
            if app is not None:  # as of a `Router` that is served without an application
                setattr(app.state, _KEY, producer)
            with recorded(app, producer):
                async with self._inner(app) as state:
                    yield {**(state or {}), _KEY: producer}
        finally:
            if warming is not None:
                warming.cancel()
            try:
                await _deliver(producer, self._close_timeout_s)
            finally:
                limited.flush(app, producer)


def producer_of(connection: HTTPConnection) -> Producer:
    """Return the application's producer for a request or WebSocket, in mounted applications too.

    Raises:
        IllegalStateError: the application has no `ProducerLifespan`, or its lifespan does not run.
    """
    scope = connection.scope
    of_app = getattr(scope.get("app"), "state", None)
    found = scope.get("state", {}).get(_KEY) or getattr(of_app, _KEY, None)
    if not isinstance(found, Producer):
        raise IllegalStateError(
            "this application has no producer",
            advice="give it lifespan=ProducerLifespan(...); test clients have to run the lifespan",
        )
    return found


async def _deliver(producer: Producer, timeout_s: float | None) -> None:
    """Close the producer, and log what becomes of the records that were accepted."""
    counts = _Counts.of(producer)
    _log.info(
        "the application ends: %d record(s) are pending (close_timeout_s=%s)",
        counts.pending,
        timeout_s,
    )
    try:
        await producer.close(timeout_s)
    finally:
        ended = _Counts.of(producer)
        lost = ended.failed > counts.failed or ended.pending
        _log.log(
            logging.WARNING if lost else logging.INFO,
            "the application has ended: %d record(s) were delivered, %d failed (%d of them at the "
            "end), %d are pending",
            ended.delivered,
            ended.failed,
            ended.failed - counts.failed,
            ended.pending,
        )


class _Counts(NamedTuple):
    """Outcomes of the records that were accepted."""

    delivered: int
    failed: int
    pending: int

    @classmethod
    def of(cls, producer: Producer) -> Self:
        """Return the present counts."""
        values = producer.metrics()
        accepted, delivered, failed = (int(values.get(name, 0)) for name in _TOTALS)
        return cls(delivered, failed, max(0, accepted - delivered - failed))


def _short_bounds(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits for an application, where they were not set and fit the earlier ones."""

    def milliseconds(name: str, default: int) -> int:
        value: Any = chosen.get(name)
        return default if value is None else int(OPTIONS[name].checked(value))  # type: ignore[call-overload]

    linger = milliseconds("linger_ms", _DEFAULT_LINGER_MS)
    request = _REQUEST_MS
    if chosen.get("delivery_timeout_ms") is not None:
        room = milliseconds("delivery_timeout_ms", 0) - linger
        request = min(request, room) if room > 0 else request
    request = milliseconds("request_timeout_ms", request)
    return {
        "max_block_ms": _REQUEST_MS,
        "request_timeout_ms": request,
        "delivery_timeout_ms": max(_DELIVERY_MS, linger + request),
    }


async def _prepare(producer: Producer, topics: Sequence[str]) -> None:
    """Call `warm_up` once the cluster has been reached; log what goes wrong."""
    try:
        await producer._warm_up_later(topics)
    except KafkaError as error:
        _log.error("warm_up: %s", error)


def _given_by(override: Callable[..., object]) -> dict[str, Producer]:
    """Return the producer of a dependency override, if that needs no request."""
    try:
        signature = inspect.signature(override)
        signature.bind()
    except (TypeError, ValueError):
        return {}
    defaults = [type(each.default) for each in signature.parameters.values()]
    if any(kind.__module__.partition(".")[0] == "fastapi" for kind in defaults):
        return {}  # FastAPI fills them in, such as `Depends(...)`
    if makes_coroutines(override) or inspect.isgeneratorfunction(override):
        return {}
    found = override()
    return {_KEY: found} if isinstance(found, Producer) else {}
