"""Totals of connections and authentications."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioproducer.metrics.sampling import Sampling
from aioproducer.net.io_stats import IOStats, NodeIOStats

WINDOW_S = 10.0


@pytest.mark.parametrize(
    ("count", "total"),
    [
        (lambda stats, now: stats.on_connected(now), "connections_created"),
        (lambda stats, now: stats.on_closed(now), "connections_closed"),
        (lambda stats, now: stats.on_authenticated(now, endless=False), "authentications"),
        (lambda stats, now: stats.on_authenticated(now, endless=True), "endless_authentications"),
        (lambda stats, now: stats.on_renewed(1.0, now), "renewals"),
        (lambda stats, now: stats.on_refused(now, renewal=False), "failed_authentications"),
        (lambda stats, now: stats.on_refused(now, renewal=True), "failed_renewals"),
    ],
)
def test_what_is_counted_after_a_long_silence_is_in_the_rate(
    count: Callable[[IOStats, float], None], total: str
) -> None:
    stats = IOStats(sampling=Sampling(1, WINDOW_S))
    for now in (0.0, 5 * WINDOW_S):
        count(stats, now)
        assert stats.rate(total, now + 1) == 1
    assert getattr(stats, total) == 2


@pytest.mark.parametrize(
    ("count", "total"),
    [
        (lambda stats, now: stats.on_request(9, now), "requests"),
        (lambda stats, now: stats.on_response(9, 0.5, now), "responses"),
    ],
)
def test_what_a_broker_is_sent_after_a_long_silence_is_in_the_rate(
    count: Callable[[NodeIOStats, float], None], total: str
) -> None:
    stats = NodeIOStats(sampling=Sampling(1, WINDOW_S))
    for now in (0.0, 5 * WINDOW_S):
        count(stats, now)
        assert stats.rate(total, now + 1) == 1
    assert getattr(stats, total) == 2


def test_authentications_count_by_their_kind() -> None:
    stats = IOStats()
    stats.on_authenticated(0, endless=True)
    stats.on_authenticated(0, endless=False)
    stats.on_refused(0, renewal=False)
    assert (stats.authentications, stats.endless_authentications) == (2, 1)
    assert (stats.failed_authentications, stats.failed_renewals) == (1, 0)
    stats.on_refused(0, renewal=True)
    assert (stats.failed_authentications, stats.failed_renewals) == (1, 1)


def test_the_longest_renewal_is_that_of_the_samples_kept() -> None:
    stats = IOStats(sampling=Sampling(1, WINDOW_S))
    for took_s in (2.0, 3.0, 1.0):
        stats.on_renewed(took_s, 0)
    assert stats.renewal_time == 6
    assert stats.peak("renewal_time_max", 1) == 3
    stats.on_renewed(1.0, 2 * WINDOW_S)
    assert stats.peak("renewal_time_max", 2 * WINDOW_S) == 1


def test_the_largest_request_and_the_longest_latency_of_a_broker_are_kept() -> None:
    stats = NodeIOStats()
    for size, latency_s in ((10, 0.5), (30, 2.0), (20, 1.0)):
        stats.on_request(size, 0)
        stats.on_response(size, latency_s, 0)
    assert (stats.bytes_out, stats.bytes_in, stats.latency) == (60, 60, 3.5)
    assert (stats.peak("request_size_max", 1), stats.peak("latency_max", 1)) == (30, 2)


def test_open_connections_are_those_that_were_not_closed() -> None:
    stats = IOStats()
    for now in range(3):
        stats.on_connected(now)
    stats.on_closed(4)
    assert stats.open_connections == 2
