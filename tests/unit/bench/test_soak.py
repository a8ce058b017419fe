"""The soak's draw of faults and its verdict: every kind of fault is reported."""

from __future__ import annotations

import itertools
import random

import pytest

from bench.soak import FAULT_EVERY_S, GROWTH_ALLOWED, Plan, Soak
from bench.soak_faults import DECK, OPENING, plan

SECONDS = 1_800
RECORDS = 36_000_000


def flawless() -> Soak:
    soak = Soak(Plan(minutes=30, rate=20_000, seed=1), sent_at=float(SECONDS))
    soak.rss = [(float(second), 100 << 20) for second in range(SECONDS)]
    soak.settled = {
        "sent": RECORDS,
        "acknowledged": RECORDS,
        "misplaced": 0,
        "pending": 0,
        "failed": 0,
        "refused": 0,
        "buffer_used": 0.0,
        "waiting": 0.0,
        "requests_in_flight": 0,
        "batches_pending": 0,
        "retried": 10.0,
    }
    soak.closed = {"tasks": 0}
    soak.faults = [(0.0, 1.0, OPENING.name)] * soak.plan.faults
    soak.findings = {
        "read": RECORDS,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "wrongly_denied": 0,
    }
    return soak


def names(seed: int, count: int) -> list[str]:
    return [fault.name for fault in itertools.islice(plan(random.Random(seed)), count)]


def test_a_flawless_run_has_no_violations() -> None:
    assert flawless().violations() == []


@pytest.mark.parametrize(
    ("report", "field"),
    [
        ("settled", "misplaced"),
        ("settled", "pending"),
        ("settled", "failed"),
        ("settled", "refused"),
        ("settled", "buffer_used"),
        ("settled", "waiting"),
        ("settled", "requests_in_flight"),
        ("settled", "batches_pending"),
        ("closed", "tasks"),
        ("findings", "lost"),
        ("findings", "duplicated"),
        ("findings", "reordered"),
        ("findings", "wrongly_denied"),
    ],
)
def test_whatever_has_to_be_zero_is_a_violation_when_it_is_not(report: str, field: str) -> None:
    soak = flawless()
    getattr(soak, report)[field] = 1
    assert len(soak.violations()) == 1


def test_memory_that_keeps_growing_is_a_violation() -> None:
    soak = flawless()
    per_second = GROWTH_ALLOWED / (SECONDS / 2)
    soak.rss = [(float(second), round(second * per_second * 1.1)) for second in range(SECONDS)]
    assert soak.growth == pytest.approx(GROWTH_ALLOWED * 1.1, rel=0.01)
    assert len(soak.violations()) == 1


def test_memory_that_grows_in_the_first_half_alone_is_none() -> None:
    soak = flawless()
    soak.rss = [(float(second), min(second, SECONDS // 2) << 20) for second in range(SECONDS)]
    assert soak.violations() == []


def test_a_run_that_was_too_slow_proves_nothing() -> None:
    soak = flawless()
    soak.sent_at *= 1.1
    assert len(soak.violations()) == 1


def test_a_run_whose_faults_were_few_or_not_felt_proves_nothing() -> None:
    soak = flawless()
    soak.settled["retried"] = 0
    del soak.faults[10:]
    assert soak.violations() == ["no fault was felt", "only 10 of 89 faults happened"]


def test_the_same_seed_gives_the_same_faults() -> None:
    assert names(3, 40) == names(3, 40) != names(4, 40)


def test_a_soak_opens_with_full_memory_and_then_meets_every_kind() -> None:
    first, *deck = names(5, 1 + len(DECK))
    assert first == OPENING.name
    assert sorted(deck) == sorted(fault.name for fault in DECK)


def test_half_an_hour_meets_every_kind_several_times() -> None:
    assert 5 * len(DECK) < SECONDS / FAULT_EVERY_S
