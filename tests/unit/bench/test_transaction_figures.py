"""The arithmetic of the figures of transactions."""

from __future__ import annotations

import pytest

from bench import transactions
from bench.transactions import BAR_LONG, BAR_SHORT, LONG, PLAIN, SHORT, TINY


def summaries(**clients: dict[str, float]) -> transactions.Summaries:
    """Records per second by shape; every commit takes a tenth of that in ms."""
    return {
        client: {
            name: {"records_per_s": rate, "commit_p50_ms": rate / 10}
            for name, rate in rates.items()
        }
        for client, rates in clients.items()
    }


def test_the_bars_compare_what_they_say() -> None:
    ours = {PLAIN.name: 100.0, LONG.name: 90.0, SHORT.name: 60.0, TINY.name: 10.0}
    java = {PLAIN.name: 50.0, LONG.name: 40.0, SHORT.name: 30.0, TINY.name: 20.0}
    found = transactions._ratios(summaries(aioproducer=ours, java=java))
    assert found == {
        BAR_LONG: 0.9,
        BAR_SHORT: 2.0,
        "median commit: Java / aioproducer": 2.0,
    }
    assert transactions._ratios(summaries(aioproducer=ours)) == {BAR_LONG: 0.9}


def test_runs_become_medians() -> None:
    runs = [
        {"seconds": seconds, "cpu": 1.0, "commits_ms": [seconds, 2 * seconds, 3 * seconds]}
        for seconds in (4.0, 1.0, 2.0)
    ]
    assert transactions._summary(SHORT, runs) == {
        "records_per_s": SHORT.records / 2,
        "cpu_us_per_record": 1e6 / SHORT.records,
        "commit_p50_ms": 4.0,
        "commit_p99_ms": 6.0,
    }
    assert set(transactions._summary(PLAIN, runs)) == {"records_per_s", "cpu_us_per_record"}


@pytest.mark.parametrize("shape", transactions.SHAPES)
@pytest.mark.parametrize("share", [1.0, 0.1, 0.000_001])
def test_a_share_is_a_whole_number_of_transactions(shape: transactions.Shape, share: float) -> None:
    records = transactions._whole(shape, share)
    assert records > 0
    assert records % (shape.per_transaction or 1) == 0
    assert share < 1 or records == shape.records
