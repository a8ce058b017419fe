"""Client telemetry: when to request a subscription, what to push and when (KIP-714).

    SUBSCRIBING --answer--> WAITING --interval over--> PUSHING --answer--> WAITING
         ^   ^                 |  (nothing is wanted)     | (refused)         |
         |   +-----------------+--------------------------+                   |
         +------------- the interval is over, nothing to push ----------------+
    any state --INVALID_REQUEST, INVALID_RECORD, UNSUPPORTED_VERSION--> OFF

Invariants: at most one request is in flight, and `next_at` is infinite meanwhile. Deltas count from
the last push that a broker accepted or may have accepted: nothing is pushed twice or lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from math import inf, isfinite
from typing import TYPE_CHECKING
from uuid import UUID

from aioproducer.errors import (
    InvalidRecordError,
    InvalidRequestError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
    UnsupportedVersionError,
)
from aioproducer.metrics import Metric, MetricKind
from aioproducer.metrics.otlp import Point

if TYPE_CHECKING:
    from random import Random

    from aioproducer.wire.messages.telemetry import GetTelemetrySubscriptionsResponse

DEFAULT_INTERVAL_S = 300.0
"""Interval while no broker has set one (Java: `DEFAULT_PUSH_INTERVAL_MS`)."""

_SHORTEST_INTERVAL_S, _LONGEST_INTERVAL_S = 0.1, 3600.0
"""Limits of brokers (Kafka: `ClientMetricsConfigs.MIN_INTERVAL_MS`, `MAX_INTERVAL_MS`)."""
_MOST_PREFIXES = 1_000
_SHARE_OF_TIME = 0.05
"""A push that takes long to prepare is followed by a pause that is as much longer."""

_NO_ID = UUID(int=0)
_EARLIEST, _LATEST = 0.5, 1.5
_EVERYTHING = frozenset({"", "*"})

_HOPELESS = frozenset(
    {InvalidRequestError.code, InvalidRecordError.code, UnsupportedVersionError.code}
)
_ASK_AGAIN = frozenset({UnknownSubscriptionIdError.code, UnsupportedCompressionTypeError.code})


class TelemetryRequest(Enum):
    """Kind of the next request."""

    SUBSCRIPTION = "subscription"
    PUSH = "push"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscription of a broker; an empty `prefixes` subscribes to nothing."""

    id: int
    interval: float
    max_bytes: int
    delta: bool
    codec: int
    prefixes: tuple[str, ...]

    def wants(self, name: str) -> bool:
        """Return whether the metric of this name is subscribed to."""
        return name.startswith(self.prefixes) or not _EVERYTHING.isdisjoint(self.prefixes)


class Telemetry:
    """The telemetry state machine of one client; `codecs` are the ids of its compression codecs."""

    def __init__(self, codecs: Collection[int], rng: Random) -> None:
        self.client_instance_id: UUID = _NO_ID
        """Set by a broker with the first subscription; all zeros before."""
        self.subscription: Subscription | None = None
        self.unsupported: bool = False
        """True if the last broker does not support telemetry."""
        self._codecs = dict.fromkeys(codecs)
        self._rng = rng
        self.next_request: TelemetryRequest = TelemetryRequest.SUBSCRIPTION
        """The request to send at `next_at`."""
        self.next_at: float = -inf
        """Loop time of the next request; inf while one is in flight or telemetry is off."""
        self._shortest_pause = _SHORTEST_INTERVAL_S

    @property
    def wanted(self) -> Subscription | None:
        """The subscription, unless it is empty."""
        subscription = self.subscription
        return subscription if subscription is not None and subscription.prefixes else None

    def on_request(self) -> None:
        """Mark a request as in flight."""
        self.next_at = inf

    def on_prepared(self, took_s: float) -> None:
        """Handle the time that a push took to prepare: it grows with the topics in use."""
        # Not longer than an interval: the process may have been suspended meanwhile.
        pause = min(took_s / _SHARE_OF_TIME, DEFAULT_INTERVAL_S)
        self._shortest_pause = max(_SHORTEST_INTERVAL_S, pause)

    def on_unsupported(self, now: float) -> None:
        """Retry later: another broker may support telemetry, or this one after an upgrade."""
        self.unsupported = True
        self._ask_for_subscription(now + DEFAULT_INTERVAL_S)

    def on_failure(self, now: float) -> None:
        """Request a new subscription after the interval, as Java does."""
        interval = self.subscription.interval if self.subscription else DEFAULT_INTERVAL_S
        self._ask_for_subscription(now + interval)

    def on_subscription(self, answer: GetTelemetrySubscriptionsResponse, now: float) -> None:
        """Handle a subscription response."""
        if answer.error_code in _HOPELESS:
            self.next_at = inf
        elif answer.error_code:
            self.on_failure(now)
        else:
            self._subscribe(answer, now)

    def on_push(self, error_code: int, now: float) -> bool:
        """Handle a push response; return whether the metrics were accepted."""
        if error_code in _HOPELESS:
            self.next_at = inf
        elif error_code in _ASK_AGAIN:
            if error_code == UnsupportedCompressionTypeError.code and self.subscription:
                self._codecs.pop(self.subscription.codec, None)
            self._ask_for_subscription(now)
        else:
            # Accepted, too large or throttled: keep the subscription and the interval.
            self.wait_for_push(now)
        return not error_code

    def _subscribe(self, answer: GetTelemetrySubscriptionsResponse, now: float) -> None:
        if self.client_instance_id == _NO_ID:
            self.client_instance_id = answer.client_instance_id
        before, self.unsupported = self.subscription, False
        self.subscription = Subscription(
            id=answer.subscription_id,
            interval=_interval_s(answer.push_interval_ms),
            max_bytes=answer.telemetry_max_bytes,
            delta=answer.delta_temporality,
            codec=self._choose_codec(answer.accepted_compression_types),
            prefixes=tuple(dict.fromkeys(answer.requested_metrics[:_MOST_PREFIXES])),
        )
        if self.wanted is None:
            self._ask_for_subscription(now + self.subscription.interval)
            return
        self.wait_for_push(now)
        if before is None or before.id != self.subscription.id:
            spread = self._rng.uniform(_EARLIEST, _LATEST)
            self.next_at = now + max(self.subscription.interval * spread, self._shortest_pause)

    def _choose_codec(self, accepted: Iterable[int]) -> int:
        return next((codec for codec in accepted if codec in self._codecs), 0)

    def _ask_for_subscription(self, at: float) -> None:
        self.next_request, self.next_at = TelemetryRequest.SUBSCRIPTION, at

    def wait_for_push(self, now: float) -> None:
        """Push after the next interval."""
        interval = self.subscription.interval if self.subscription else DEFAULT_INTERVAL_S
        self.next_request = TelemetryRequest.PUSH
        self.next_at = now + max(interval, self._shortest_pause)


def _interval_s(given_ms: int) -> float:
    if given_ms <= 0:
        return DEFAULT_INTERVAL_S
    return min(max(given_ms / 1000, _SHORTEST_INTERVAL_S), _LONGEST_INTERVAL_S)


class PointLedger:
    """Totals that were pushed before, to compute deltas; `now_ns` is the start of the counting."""

    def __init__(self, now_ns: int) -> None:
        self._started_ns = self._accepted_ns = now_ns
        self._accepted: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._offered: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._offered_ns = now_ns

    def points(
        self, metrics: Iterable[Metric], subscription: Subscription, now_ns: int
    ) -> list[Point]:
        """Return the subscribed metrics as points; call `on_accepted` after they were accepted."""
        self._offered, self._offered_ns = {}, now_ns
        points, present = [], set()
        for metric in metrics:
            name = metric.telemetry_name
            present.add((name, metric.tags))
            if isfinite(metric.value) and subscription.wants(name):
                points.append(self._point(name, metric, delta=subscription.delta))
        # A total that has gone, as that of an expired topic, begins at 0 when it comes again.
        self._accepted = {total: self._accepted[total] for total in self._accepted.keys() & present}
        return points

    def on_accepted(self) -> None:
        """Count deltas from the last points, which were accepted or may have been."""
        self._accepted.update(self._offered)
        self._accepted_ns = self._offered_ns

    def _point(self, name: str, metric: Metric, *, delta: bool) -> Point:
        attributes = {key.replace("-", "_"): value for key, value in metric.tags}
        if metric.kind is MetricKind.GAUGE:
            return Point(name, metric.value, attributes)
        identity = (name, metric.tags)
        self._offered[identity] = metric.value
        if not delta:
            return Point(name, metric.value, attributes, True, False, self._started_ns)
        before = self._accepted.get(identity, 0.0)
        # A total restarts from 0 when its topic expired and came again between two pushes.
        added = metric.value - before if metric.value >= before else metric.value
        return Point(name, added, attributes, True, True, self._accepted_ns)
