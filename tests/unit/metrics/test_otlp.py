"""OpenTelemetry's encoding: bytes worked out by hand, and whatever values there and back."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.metrics import Metric, MetricKind
from aioproducer.metrics.otlp import Point, encode_metrics
from aioproducer.testing.broker.telemetry import read_otlp

TEXTS = st.text(max_size=20)


def test_a_gauge_is_encoded_as_the_protobuf_definition_says():
    attribute = b"\x3a\x08\x0a\x01k\x12\x03\x0a\x01v"
    point = b"\x19" + pack("<Q", 7) + b"\x21" + pack("<d", 1.5) + attribute
    gauge = b"\x0a" + bytes([len(point)]) + point
    metric = b"\x0a\x01m" + b"\x2a" + bytes([len(gauge)]) + gauge
    scope = b"\x0a\x1a\x0a\x18org.apache.kafka.clients"
    scope += b"\x12" + bytes([len(metric)]) + metric
    resource = b"\x0a\x0a\x0a\x08\x0a\x01a\x12\x03\x0a\x01b"
    content = resource + b"\x12" + bytes([len(scope)]) + scope
    expected = b"\x0a" + bytes([len(content)]) + content
    assert encode_metrics([Point("m", 1.5, {"k": "v"})], {"a": "b"}, 7) == expected


@pytest.mark.parametrize(("delta", "temporality"), [(True, 1), (False, 2)])
def test_a_sum_says_from_when_it_counts_and_how(delta: bool, temporality: int):
    encoded = encode_metrics([Point("m", 2, {}, True, delta, 3)], {}, 9)
    assert b"\x11" + pack("<Q", 3) + b"\x19" + pack("<Q", 9) + b"\x21" + pack("<d", 2) in encoded
    assert encoded.endswith(bytes([0x10, temporality, 0x18, 1]))


@given(
    resource=st.dictionaries(TEXTS, TEXTS, max_size=3),
    points=st.lists(
        st.builds(
            Point,
            TEXTS,
            st.floats(allow_nan=False),
            st.dictionaries(TEXTS, TEXTS, max_size=3),
            st.booleans(),
            st.booleans(),
            st.integers(0, 2**63),
        ),
        max_size=5,
    ),
    now=st.integers(0, 2**63),
)
def test_what_was_encoded_is_read_back(resource, points, now):
    read, found = read_otlp(encode_metrics(points, resource, now))
    assert read == resource
    expected: dict[str, list[tuple]] = {}
    for point in points:
        since = point.since_ns if point.monotonic else 0
        kind = (point.monotonic, point.monotonic and point.delta)
        expected.setdefault(point.name, []).append(
            (point.value, dict(point.attributes), *kind, since, now)
        )
    assert found == expected


def test_whole_numbers_of_other_clients_are_read():
    as_double = encode_metrics([Point("m", 1.5, {})], {}, 9)
    # As Java's client writes the time of its start: field 6, 64 bits.
    as_integer = as_double.replace(b"\x21" + pack("<d", 1.5), b"\x31" + pack("<q", -7))
    assert read_otlp(as_integer)[1] == {"m": [(-7, {}, False, False, 0, 9)]}


@given(st.binary(max_size=60))
def test_garbage_ends_in_an_error_or_in_points(data: bytes):
    try:
        read_otlp(data)
    except (ValueError, IndexError, KeyError):
        pass
    except Exception as error:
        assert type(error).__module__ == "struct"


def test_names_follow_the_telemetry_convention():
    metric = Metric("request-latency-avg", "producer-node-metrics", MetricKind.GAUGE, 1)
    assert metric.telemetry_name == "org.apache.kafka.producer.node.request.latency.avg"
