from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from aioproducer._util.backoff import ExponentialBackoff


def test_delays_double_until_the_maximum_when_there_is_no_jitter():
    backoff = ExponentialBackoff(0.1, 1.0, jitter=0)
    assert [backoff.delay(n, Random(1)) for n in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_maximum_below_the_initial_delay_is_a_constant_delay():
    backoff = ExponentialBackoff(5.0, 1.0, jitter=0)
    assert [backoff.delay(n, Random(1)) for n in range(3)] == [1.0, 1.0, 1.0]


@given(attempt=st.integers(-5, 10**9), seed=st.integers())
def test_jitter_stays_within_a_fifth_and_below_the_maximum(attempt: int, seed: int):
    backoff = ExponentialBackoff(0.1, 1.0)
    plain = min(0.1 * 2 ** min(max(attempt, 0), 20), 1.0)
    delay = backoff.delay(attempt, Random(seed))
    assert plain * 0.8 <= delay <= min(plain * 1.2, 1.0)


def test_jitter_spreads_delays_both_ways():
    backoff, rng = ExponentialBackoff(1.0, 100.0), Random(3)
    delays = [backoff.delay(0, rng) for _ in range(200)]
    assert min(delays) < 0.9
    assert max(delays) > 1.1


def test_the_same_seed_gives_the_same_delays():
    backoff = ExponentialBackoff(0.1, 1.0)
    first, second = Random(7), Random(7)
    assert [backoff.delay(n, first) for n in range(9)] == [
        backoff.delay(n, second) for n in range(9)
    ]
