from __future__ import annotations

from aioproducer.cli.perf import Measurement


def test_percentiles_are_taken_of_the_sorted_latencies() -> None:
    seen = Measurement(latencies_s=[n / 1000 for n in reversed(range(1000))])
    assert dict(seen.percentiles_ms()) == {
        "p50": 500.0,
        "p95": 950.0,
        "p99": 990.0,
        "p99.9": 999.0,
        "max": 999.0,
    }


def test_nothing_measured_has_no_percentiles_and_no_rate() -> None:
    assert dict(Measurement().percentiles_ms()) == {}
    assert Measurement().rate == 0.0
    assert Measurement(acknowledged=10, elapsed_s=2.0).rate == 5.0
