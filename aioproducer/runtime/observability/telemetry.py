"""Pushes of metrics to brokers that subscribe to them (KIP-714), as `core.telemetry` decides.

Start with `TelemetryReporter`.

Invariants
- There is no task; while no broker offers telemetry, there is one timer and no request.
- A connection is opened for a push only, never to get a subscription.
- A failure here affects no record. The last push takes at most `LAST_PUSH_S` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer._util import log
from aioproducer.core.telemetry import PointLedger, Subscription, Telemetry, TelemetryRequest
from aioproducer.errors import (
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aioproducer.metrics.otlp import encode_metrics
from aioproducer.net.connection import outcome_of
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from random import Random

    from aioproducer.metrics import Metric
    from aioproducer.net.client import NetworkClient
    from aioproducer.wire.schema import Message

LAST_PUSH_S = 1.0
"""Seconds that `close()` may wait for the response to the last push."""

_RECHECK_S, _RECHECK_SELDOM_S = 1.0, 10.0
"""Seconds between checks while no broker is connected, with and without a subscription."""

_NS_PER_MS = 1_000_000

_log = log.get("runtime")


class TelemetryReporter:
    """The telemetry of one producer; `resource` has the client's rack and transactional id."""

    def __init__(
        self,
        client: NetworkClient,
        collect: Callable[[], Iterable[Metric]],
        *,
        resource: Mapping[str, str],
        loop: asyncio.AbstractEventLoop,
        wall_ms: Callable[[], int],
        rng: Random,
    ) -> None:
        self._client = client
        self._collect = collect
        self._resource = resource
        self._loop = loop
        self._wall_ms = wall_ms
        self._telemetry = Telemetry([codec for codec in CompressionType if codec], rng)
        self._ledger = PointLedger(wall_ms() * _NS_PER_MS)
        self.warnings: log.RateLimitedLog = log.RateLimitedLog(_log)
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()
        self._closed = False
        self._pushing: asyncio.Future[Message | None] | None = None
        """The push that is in flight."""

    def start(self) -> None:
        """Request a subscription in the next turn of the loop."""
        self._wake_at(self._loop.time())

    async def client_instance_id(self, timeout: float) -> UUID:
        """Return the id that a broker gave this client, after at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not self._telemetry.client_instance_id.int:
                    self._refuse_if_hopeless()
                    await self._news.wait()
        except TimeoutError:
            raise KafkaTimeoutError(
                "no broker gave this client an instance id in time",
                elapsed_ms=round(timeout * 1000),
            ) from None
        return self._telemetry.client_instance_id

    async def push_last(self) -> None:
        """Push once more if there is a subscription; wait at most `LAST_PUSH_S` seconds."""
        if self._closed:
            return
        self._closed = True  # nothing is sent after the last push
        began = self._loop.time()
        if self._pushing is not None:
            # Its response decides from where the last push counts.
            await asyncio.wait([self._pushing], timeout=LAST_PUSH_S)
        now = self._loop.time()
        node_id = self._client.ready_node(now)
        if node_id is None or self._pushing is not None:
            return
        answer = self._push(node_id, now, terminating=True)
        if answer is not None:
            await asyncio.wait([answer], timeout=began + LAST_PUSH_S - now)

    def close(self) -> None:
        """Send nothing more, and end all waits."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._wake_waiters()

    def _on_timer(self) -> None:
        now = self._loop.time()
        due_at = self._telemetry.next_at
        if due_at > now:  # asyncio calls a timer early by as much as its clock is coarse
            self._wake_at(due_at)
            return
        try:
            self._send_what_is_due(now)
        except Exception:
            # A defect here, or in a metric, must not end the producer.
            _log.exception("telemetry failed unexpectedly")
            self._telemetry.on_failure(now)
        self._after(now)

    def _send_what_is_due(self, now: float) -> None:
        node_id = self._client.ready_node(now)
        if node_id is None:
            if self._telemetry.wanted is not None:
                self._dial(now)
            return
        if self._telemetry.next_request is TelemetryRequest.PUSH:
            self._push(node_id, now)
        else:
            self._ask(node_id, now)

    def _after(self, now: float) -> None:
        """Set the timer, unless a request is in flight, whose response sets it."""
        self._wake_waiters()
        due_at = self._telemetry.next_at
        if due_at < inf and not self._closed:
            pause = _RECHECK_SELDOM_S if self._telemetry.wanted is None else _RECHECK_S
            self._wake_at(due_at if due_at > now else now + pause)

    def _wake_at(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._on_timer)

    def _dial(self, now: float) -> None:
        node_id = self._client.least_loaded_node(now)
        if node_id is not None:
            self._client.maybe_connect(node_id, now)

    def _ask(self, node_id: int, now: float) -> None:
        request = GetTelemetrySubscriptionsRequest(
            client_instance_id=self._telemetry.client_instance_id
        )
        answer = self._send(node_id, request, now)
        if answer is not None:
            answer.add_done_callback(self._on_subscription)

    def _push(
        self, node_id: int, now: float, *, terminating: bool = False
    ) -> asyncio.Future[Message | None] | None:
        """Push the metrics; return None when nothing was sent."""
        subscription = self._telemetry.wanted
        if subscription is None:
            return None
        began = self._loop.time()
        now_ns = self._wall_ms() * _NS_PER_MS
        points = self._ledger.points(self._collect(), subscription, now_ns)
        codec, payload = _compressed(
            encode_metrics(points, self._resource, now_ns), subscription.codec
        )
        self._telemetry.on_prepared(self._loop.time() - began)
        if not points or not self._fits(len(payload), subscription, now):
            self._telemetry.wait_for_push(now)
            return None
        request = PushTelemetryRequest(
            client_instance_id=self._telemetry.client_instance_id,
            subscription_id=subscription.id,
            terminating=terminating,
            compression_type=codec,
            metrics=payload,
        )
        answer = self._send(node_id, request, now)
        if answer is not None:
            self._pushing = answer
            answer.add_done_callback(self._on_push)
        return answer

    def _fits(self, size: int, subscription: Subscription, now: float) -> bool:
        if 0 < subscription.max_bytes < size:
            self.warnings.warning(
                now,
                None,
                "telemetry",
                "metrics of %d bytes are not pushed: the brokers take %d at most",
                size,
                subscription.max_bytes,
            )
            return False
        return True

    def _send(
        self, node_id: int, request: Message, now: float
    ) -> asyncio.Future[Message | None] | None:
        try:
            answer = self._client.send(node_id, request, now=now)
        except UnsupportedVersionError:
            self._telemetry.on_unsupported(now)
            return None
        except KafkaError:
            return None
        self._telemetry.on_request()
        return answer

    def _on_subscription(self, future: asyncio.Future[Message | None]) -> None:
        now = self._loop.time()
        _, answer = outcome_of(future)
        if isinstance(answer, GetTelemetrySubscriptionsResponse):
            self._telemetry.on_subscription(answer, now)
            _log.debug("telemetry: %s", self._telemetry.subscription)
        else:
            self._telemetry.on_failure(now)
        self._after(now)

    def _on_push(self, future: asyncio.Future[Message | None]) -> None:
        now = self._loop.time()
        self._pushing = None
        _, answer = outcome_of(future)
        if not isinstance(answer, PushTelemetryResponse):
            self._ledger.on_accepted()  # It may have arrived.
            self._telemetry.on_failure(now)
        elif self._telemetry.on_push(answer.error_code, now):
            self._ledger.on_accepted()
        self._after(now)

    def _refuse_if_hopeless(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer was closed during the wait")
        if self._telemetry.unsupported:
            raise UnsupportedVersionError(
                "the brokers take no telemetry, so they give clients no instance id",
                advice="brokers do so from Kafka 3.7 on, with a ClientTelemetry metrics reporter",
            )

    def _wake_waiters(self) -> None:
        self._news.set()
        self._news.clear()


def _compressed(data: bytes, number: int) -> tuple[int, bytes]:
    """Compress the data with the codec asked for, or not if its library is missing."""
    if number:
        try:
            return number, codec_for(CompressionType(number)).compress(data)
        except UnsupportedCodecError:
            pass
    return 0, data
