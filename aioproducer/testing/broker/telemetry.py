"""Client metrics on brokers with a metrics plugin: subscriptions and pushes (KIP-714).

Invariants: a client that pushes too early is throttled, unless the push is its terminating one;
after that it is refused (Java: `ClientMetricsManager`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import unpack_from
from typing import NamedTuple
from uuid import UUID

from aioproducer import errors
from aioproducer.records.codecs import CompressionType, codec_for
from aioproducer.testing.broker.refusal import RefusedError

_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TelemetrySubscription:
    """A subscription; the defaults are a broker's.

    Attributes:
        metrics: Prefixes of names; an empty one means everything, none at all nothing.
        interval_ms: How often clients push.
        delta: Whether totals are pushed as differences.
        codecs: What pushes may be compressed with, the dearest first.
        max_bytes: The largest push.
    """

    metrics: tuple[str, ...] = ("",)
    interval_ms: int = 300_000
    delta: bool = True
    codecs: tuple[int, ...] = (4, 3, 1, 2)
    max_bytes: int = 1024 * 1024

    @property
    def id(self) -> int:
        """Changes with the subscription."""
        text = repr((self.metrics, self.interval_ms, self.delta, self.codecs, self.max_bytes))
        return sum((place + 1) * byte for place, byte in enumerate(text.encode())) & 0x7FFFFFFF


class PushedPoint(NamedTuple):
    """One value of a push; `monotonic` for totals, `delta` where they are differences."""

    value: float
    attributes: Mapping[str, str]
    monotonic: bool
    delta: bool
    start_ns: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class ReceivedMetrics:
    """One push that was taken.

    Attributes:
        client_instance_id: The client.
        node_id: The broker.
        at_ms: The time.
        terminating: Whether it was the client's last push.
        codec: What it was compressed with.
        data: The OTLP message, decompressed.
        resource: The attributes of the client.
        points: The values by metric.
    """

    client_instance_id: UUID
    node_id: int
    at_ms: int
    terminating: bool
    codec: int
    data: bytes
    resource: Mapping[str, str]
    points: Mapping[str, list[PushedPoint]]

    def value(self, name: str) -> float:
        """Return the value of a metric that has one only."""
        (point,) = self.points[name]
        return point.value


@dataclass(slots=True)
class _Client:
    last_push_ms: int | None = None
    gone: bool = False


@dataclass(slots=True)
class TelemetryReceiver:
    """The plugin of all brokers of a cluster.

    Attributes:
        subscription: None as long as the cluster has no plugin: then the APIs are not offered.
        received: What was pushed, in order.
    """

    subscription: TelemetrySubscription | None = None
    received: list[ReceivedMetrics] = field(default_factory=list)
    _clients: dict[UUID, _Client] = field(default_factory=dict)

    def client(self, client_id: UUID) -> _Client:
        """Return a client, new or known."""
        return self._clients.setdefault(client_id, _Client())

    def push(self, pushed: ReceivedMetrics, subscription_id: int, size: int) -> None:
        """Accept a push, or refuse it as a broker does."""
        subscription, client = self.subscription, self.client(pushed.client_instance_id)
        if subscription is None or client.gone or not pushed.client_instance_id.int:
            raise RefusedError(errors.InvalidRequestError)
        if subscription_id != subscription.id:
            raise RefusedError(errors.UnknownSubscriptionIdError)
        if pushed.codec and pushed.codec not in subscription.codecs:
            raise RefusedError(errors.UnsupportedCompressionTypeError)
        if size > subscription.max_bytes:
            raise RefusedError(errors.TelemetryTooLargeError)
        last_ms = client.last_push_ms
        too_early = last_ms is not None and pushed.at_ms - last_ms < subscription.interval_ms
        if too_early and not pushed.terminating:
            raise RefusedError(errors.ThrottlingQuotaExceededError)
        client.last_push_ms, client.gone = pushed.at_ms, pushed.terminating
        self.received.append(pushed)


def decompressed(data: bytes, codec: int) -> bytes:
    """Return the OTLP message of a push; raise `ProtocolError` if it cannot be decompressed."""
    return codec_for(CompressionType(codec)).decompress(data, _MOST_BYTES) if codec else data


def read_otlp(data: bytes) -> tuple[dict[str, str], dict[str, list[PushedPoint]]]:
    """Return the attributes of the resource, and the points of gauges and sums by metric.

    Raises:
        ValueError, IndexError, struct.error: It is no such message.
    """
    resource: dict[str, str] = {}
    points: dict[str, list[PushedPoint]] = {}
    for resource_metrics in _all(_fields(data), 1):
        parts = _fields(resource_metrics)
        for described in _all(parts, 1):
            resource.update(_attributes(_fields(described), 1))
        for scope in _all(parts, 2):
            for metric in _all(_fields(scope), 2):
                name, found = _metric(_fields(metric))
                points.setdefault(name, []).extend(found)
    return resource, points


_Fields = list[tuple[int, int | bytes]]


def _metric(parts: _Fields) -> tuple[str, list[PushedPoint]]:
    name = _all(parts, 1)[0].decode()
    gauges, sums = _all(parts, 5), _all(parts, 7)
    if len(gauges) + len(sums) != 1:
        raise ValueError(f"{name} is neither a gauge nor a sum")
    data = _fields((gauges or sums)[0])
    numbers = {number: value for number, value in data if isinstance(value, int)}
    return name, [
        _point(_fields(point), bool(numbers.get(3)), numbers.get(2) == 1) for point in _all(data, 1)
    ]


def _point(parts: _Fields, monotonic: bool, delta: bool) -> PushedPoint:
    fixed = {number: value for number, value in parts if isinstance(value, bytes)}
    # Java's client pushes whole numbers as such, in field 6.
    (value,) = unpack_from("<d", fixed[4]) if 4 in fixed else unpack_from("<q", fixed[6])
    (time_ns,) = unpack_from("<Q", fixed[3])
    (start_ns,) = unpack_from("<Q", fixed.get(2, bytes(8)))
    return PushedPoint(value, dict(_attributes(parts, 7)), monotonic, delta, start_ns, time_ns)


def _attributes(parts: _Fields, number: int) -> list[tuple[str, str]]:
    pairs = [_fields(pair) for pair in _all(parts, number)]
    return [(_all(p, 1)[0].decode(), _all(_fields(_all(p, 2)[0]), 1)[0].decode()) for p in pairs]


def _all(parts: _Fields, number: int) -> list[bytes]:
    return [value for found, value in parts if found == number and isinstance(value, bytes)]


def _fields(data: bytes) -> _Fields:
    """Return the fields of a protobuf message: numbers for varints, bytes for everything else."""
    parts: _Fields = []
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(data, place)
            parts.append((number, value))
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError(f"wire type {kind}")
            size, place = _varint(data, place)
        if place + size > len(data):
            raise ValueError("a field reaches beyond its message")
        parts.append((number, data[place : place + size]))
        place += size
    return parts


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
