"""The times at which a subscription is asked for and metrics are pushed (KIP-714)."""

from __future__ import annotations

from math import inf
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.core.telemetry import (
    DEFAULT_INTERVAL_S,
    PointLedger,
    Subscription,
    Telemetry,
    TelemetryRequest,
)
from aioproducer.errors import UnknownSubscriptionIdError
from aioproducer.metrics import Metric, MetricKind
from aioproducer.metrics.otlp import Point
from aioproducer.wire.messages.telemetry import GetTelemetrySubscriptionsResponse

ASK, PUSH = TelemetryRequest.SUBSCRIPTION, TelemetryRequest.PUSH
IDENTITY = UUID(int=7)


def answer(*metrics: str, interval_ms: int = 10_000, code: int = 0, number: int = 1, **rest):
    return GetTelemetrySubscriptionsResponse(
        error_code=code,
        client_instance_id=IDENTITY,
        subscription_id=number,
        push_interval_ms=interval_ms,
        requested_metrics=list(metrics),
        accepted_compression_types=rest.get("codecs", []),
    )


def subscribed(*metrics: str, **options) -> Telemetry:
    telemetry = Telemetry((1, 4), Random(1))
    telemetry.on_request()
    telemetry.on_subscription(answer(*(metrics or ("",)), **options), 100.0)
    return telemetry


def test_a_subscription_is_wanted_at_once_and_nothing_while_a_request_is_out():
    telemetry = Telemetry((), Random(1))
    assert (telemetry.next_request, telemetry.next_at) == (ASK, -inf)
    telemetry.on_request()
    assert telemetry.next_at == inf


def test_the_broker_that_lacks_telemetry_is_asked_again_after_five_minutes():
    telemetry = Telemetry((), Random(1))
    telemetry.on_unsupported(100)
    assert (telemetry.next_request, telemetry.next_at) == (ASK, 400)
    assert telemetry.unsupported
    telemetry.on_request()
    telemetry.on_subscription(answer(""), 400)
    assert not telemetry.unsupported


@given(seed=st.integers(0, 1000))
def test_the_first_push_is_spread_and_the_next_ones_keep_the_interval(seed: int):
    telemetry = Telemetry((), Random(seed))
    telemetry.on_request()
    telemetry.on_subscription(answer(""), 100)
    assert telemetry.next_request is PUSH
    assert 105 <= telemetry.next_at < 115
    telemetry.on_request()
    assert telemetry.on_push(0, 130)
    assert telemetry.next_at == 140


def test_the_same_subscription_fetched_again_is_not_spread_again():
    telemetry = subscribed()
    telemetry.on_failure(120)
    assert (telemetry.next_request, telemetry.next_at) == (ASK, 130)
    telemetry.on_request()
    telemetry.on_subscription(answer(""), 131)
    assert (telemetry.next_request, telemetry.next_at) == (PUSH, 141)


@pytest.mark.parametrize("interval_ms", [0, -5])
def test_an_interval_that_is_none_is_the_default(interval_ms: int):
    assert subscribed(interval_ms=interval_ms).subscription.interval == DEFAULT_INTERVAL_S


def test_a_broker_cannot_keep_the_client_busy_with_pushes():
    assert subscribed(interval_ms=1).subscription.interval == 0.1
    names = [f"a{number}" for number in range(5_000)]
    assert len(subscribed(*names).subscription.prefixes) == 1_000
    assert subscribed(*["a"] * 500).subscription.prefixes == ("a",)


def test_a_broker_cannot_end_the_pushes_with_a_long_interval():
    assert subscribed(interval_ms=2**31 - 1).subscription.interval == 3600


@pytest.mark.parametrize(("took_s", "pause"), [(0.5, 10), (0.002, 0.1), (3600, 300)])
def test_pushes_are_prepared_in_a_twentieth_of_the_time(took_s: float, pause: float):
    telemetry = subscribed(interval_ms=1)
    telemetry.on_prepared(took_s)
    telemetry.on_request()
    assert telemetry.on_push(0, 130)
    assert telemetry.next_at == 130 + pause
    telemetry.on_request()
    assert not telemetry.on_push(UnknownSubscriptionIdError.code, 140)
    assert (telemetry.next_request, telemetry.next_at) == (ASK, 140)
    telemetry.on_request()
    telemetry.on_subscription(answer("", interval_ms=1, number=7), 141)
    assert telemetry.next_at >= 141 + pause


def test_an_empty_subscription_is_asked_for_again_and_never_pushed():
    telemetry = Telemetry((), Random(1))
    telemetry.on_subscription(answer(), 100)
    assert telemetry.wanted is None
    assert (telemetry.next_request, telemetry.next_at) == (ASK, 110)


def test_the_first_id_a_client_was_given_stays():
    telemetry = subscribed()
    other = answer("")
    other.client_instance_id = UUID(int=9)
    telemetry.on_subscription(other, 200)
    assert telemetry.client_instance_id == IDENTITY


@pytest.mark.parametrize("code", [42, 87, 35])
@pytest.mark.parametrize("pushing", [True, False])
def test_errors_that_cannot_pass_turn_it_off(code: int, pushing: bool):
    telemetry = subscribed()
    if pushing:
        assert not telemetry.on_push(code, 110)
    else:
        telemetry.on_subscription(answer(code=code), 110)
    assert telemetry.next_at == inf


@pytest.mark.parametrize("code", [117, 76])
def test_an_outdated_subscription_is_replaced_at_once(code: int):
    telemetry = subscribed()
    assert not telemetry.on_push(code, 110)
    assert (telemetry.next_request, telemetry.next_at) == (ASK, 110)


@pytest.mark.parametrize("code", [118, 89, -1, 14])
def test_a_push_refused_for_now_waits_for_the_interval(code: int):
    telemetry = subscribed()
    assert not telemetry.on_push(code, 110)
    assert (telemetry.next_request, telemetry.next_at) == (PUSH, 120)


@pytest.mark.parametrize("code", [89, 14, -1])
def test_a_subscription_refused_for_now_is_asked_for_later(code: int):
    telemetry = Telemetry((), Random(1))
    telemetry.on_subscription(answer(code=code), 100)
    assert (telemetry.next_request, telemetry.next_at) == (ASK, 100 + DEFAULT_INTERVAL_S)


def test_a_codec_that_was_refused_is_not_chosen_again():
    telemetry = subscribed(codecs=[4, 1])
    assert telemetry.subscription.codec == 4
    telemetry.on_push(76, 110)
    telemetry.on_subscription(answer("", codecs=[4, 1]), 110)
    assert telemetry.subscription.codec == 1
    telemetry.on_push(76, 120)
    telemetry.on_subscription(answer("", codecs=[4, 1]), 120)
    assert telemetry.subscription.codec == 0


@pytest.mark.parametrize(
    ("prefixes", "wanted"),
    [
        (("",), True),
        (("*",), True),
        (("a.b", "org.apache"), True),
        (("org.apache.kafka.producer.x.y",), True),
        (("a.b", "kafka"), False),
        ((), False),
    ],
)
def test_metrics_are_chosen_by_the_beginning_of_their_names(prefixes, wanted):
    subscription = Subscription(1, 10, 0, True, 0, prefixes)
    assert subscription.wants("org.apache.kafka.producer.x.y") is wanted


def total(value: float) -> Metric:
    return Metric("x-total", "g", MetricKind.COUNTER, value)


def test_differences_count_from_what_was_settled_last():
    ledger, everything = PointLedger(5), Subscription(1, 10, 0, True, 0, ("",))
    (first,) = ledger.points([total(3)], everything, 10)
    (again,) = ledger.points([total(5)], everything, 20)
    assert (first.value, first.since_ns, again.value, again.since_ns) == (3, 5, 5, 5)
    ledger.on_accepted()
    (next_one,) = ledger.points([total(9)], everything, 30)
    assert (next_one.value, next_one.since_ns) == (4, 20)


def test_cumulative_totals_count_from_the_start_of_the_producer() -> None:
    ledger, everything = PointLedger(5), Subscription(1, 10, 0, False, 0, ("",))
    name = "org.apache.kafka.g.x.total"
    assert ledger.points([total(3)], everything, 10) == [Point(name, 3, {}, True, False, 5)]
    ledger.on_accepted()
    assert ledger.points([total(9)], everything, 20) == [Point(name, 9, {}, True, False, 5)]


def test_a_total_that_was_gone_counts_from_0_although_it_is_larger_than_before() -> None:
    ledger, everything = PointLedger(5), Subscription(1, 10, 0, True, 0, ("",))
    ledger.points([total(9)], everything, 10)
    ledger.on_accepted()
    assert ledger.points([], everything, 20) == []
    (again,) = ledger.points([total(12)], everything, 30)
    assert again.value == 12


def test_a_total_that_was_not_subscribed_to_for_a_while_is_not_pushed_twice() -> None:
    ledger, everything = PointLedger(5), Subscription(1, 10, 0, True, 0, ("",))
    ledger.points([total(9)], everything, 10)
    ledger.on_accepted()
    assert ledger.points([total(10)], Subscription(2, 10, 0, True, 0, ("other.",)), 20) == []
    (again,) = ledger.points([total(12)], everything, 30)
    assert again.value == 3


def test_a_total_that_began_anew_counts_from_zero():
    ledger, everything = PointLedger(5), Subscription(1, 10, 0, True, 0, ("",))
    ledger.points([total(9)], everything, 10)
    ledger.on_accepted()
    assert ledger.points([total(2)], everything, 20)[0].value == 2


def test_values_that_are_no_numbers_are_left_out():
    ledger, everything = PointLedger(5), Subscription(1, 10, 0, True, 0, ("",))
    metrics = [Metric("x", "g", MetricKind.GAUGE, value) for value in (inf, -inf, inf - inf, 1.0)]
    assert [point.value for point in ledger.points(metrics, everything, 10)] == [1.0]


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=40))
def test_settled_differences_add_up_to_the_total(steps: list[tuple[int, bool]]):
    ledger, everything = PointLedger(0), Subscription(1, 10, 0, True, 0, ("",))
    value = pushed = 0.0
    for now, (added, arrives) in enumerate(steps):
        value += added
        (point,) = ledger.points([total(value)], everything, now)
        if arrives:
            ledger.on_accepted()
            pushed += point.value
            assert pushed == value
