"""Metrics in OpenTelemetry's protobuf encoding: what a broker's telemetry plugin reads (KIP-714).

Invariants: fields are written in the order of their numbers; values are doubles; nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import pack
from typing import NamedTuple

from aioproducer._util.varints import varint

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_DELTA, _CUMULATIVE = 1, 2
_SCOPE = "org.apache.kafka.clients"


class Point(NamedTuple):
    """One value of one metric; `monotonic` makes it a sum, else it is a gauge.

    A sum counts from `since_ns`: since the last point when it is a `delta`.
    """

    name: str
    value: float
    attributes: Mapping[str, str]
    monotonic: bool = False
    delta: bool = False
    since_ns: int = 0


def encode_metrics(points: Iterable[Point], resource: Mapping[str, str], time_ns: int) -> bytes:
    """Return a `MetricsData` with one resource and one scope."""
    scope_metrics = _message(1, _text(1, _SCOPE)) + b"".join(
        _message(2, _metric(point, time_ns)) for point in points
    )
    return _message(1, _message(1, _attributes(1, resource)) + _message(2, scope_metrics))


def _metric(point: Point, time_ns: int) -> bytes:
    data = _fixed64(2, "Q", point.since_ns) if point.monotonic else b""
    data += _fixed64(3, "Q", time_ns) + _fixed64(4, "d", point.value)
    data_points = _message(1, data + _attributes(7, point.attributes))
    if not point.monotonic:
        return _text(1, point.name) + _message(5, data_points)
    temporality = _number(2, _DELTA if point.delta else _CUMULATIVE)
    return _text(1, point.name) + _message(7, data_points + temporality + _number(3, 1))


def _attributes(field: int, attributes: Mapping[str, str]) -> bytes:
    return b"".join(
        _message(field, _text(1, key) + _message(2, _text(1, value)))
        for key, value in attributes.items()
    )


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def _number(field: int, number: int) -> bytes:
    return _tag(field, _VARINT) + varint(number)


def _fixed64(field: int, form: str, number: float) -> bytes:
    return _tag(field, _FIXED64) + pack(f"<{form}", number)


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, _BYTES) + varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())
