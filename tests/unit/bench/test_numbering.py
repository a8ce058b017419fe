"""The judge of long runs: it has to see every kind of wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checker import History, Kind, Logged, Place, check

from bench.numbering import Findings, Numbering, number_of, value_of


def findings(
    numbers: list[int],
    sent: int,
    failed: tuple[int, ...] = (),
    denied: tuple[int, ...] = (),
) -> Findings:
    numbering = Numbering()
    for number in numbers:
        numbering.see(7, number)
    return numbering.findings(
        {7: sent}, failed=[(7, n) for n in failed], denied=[(7, n) for n in denied]
    )


def test_all_numbers_in_order_are_flawless() -> None:
    assert findings([0, 1, 2], sent=3) == Findings(3, 0, 0, 0, 0)


def test_a_number_that_never_comes_is_lost() -> None:
    assert findings([0, 2], sent=3).lost == 1


def test_numbers_that_are_missing_at_the_end_are_lost() -> None:
    assert findings([0], sent=3).lost == 2


def test_a_source_that_was_never_read_is_lost_whole() -> None:
    assert Numbering().findings({1: 5}).lost == 5


def test_a_number_that_comes_late_is_reordered_and_not_lost() -> None:
    assert findings([0, 2, 1], sent=3) == Findings(3, 0, 0, 1, 0)


def test_a_second_copy_is_duplicated_also_when_the_first_came_late() -> None:
    assert findings([0, 2, 1, 1, 0], sent=3) == Findings(5, 0, 2, 1, 0)


def test_a_failed_record_may_be_absent_in_the_middle_and_at_the_end() -> None:
    assert findings([0, 2], sent=4, failed=(1, 3)).lost == 0


def test_a_failed_record_that_was_written_excuses_no_other() -> None:
    assert findings([0, 1], sent=3, failed=(1,)).lost == 1


def test_a_denied_record_that_was_written_is_found_out() -> None:
    assert findings([0, 1, 3], sent=4, failed=(1, 2), denied=(1, 2)).wrongly_denied == 1


def test_completeness_covers_every_source() -> None:
    numbering = Numbering()
    numbering.see(1, 0)
    assert numbering.complete({1: 1})
    assert not numbering.complete({1: 1, 2: 1})


def test_a_jump_that_would_cost_unbounded_memory_is_refused() -> None:
    numbering = Numbering()
    with pytest.raises(ValueError, match="jumps from 0"):
        numbering.see(1, 10**12)


@given(st.integers(0, 99_999), st.integers(0, 10**14 - 1), st.integers(20, 200))
def test_a_value_carries_its_number(source: int, number: int, size: int) -> None:
    value = value_of(source, number, size)
    assert len(value) == size
    assert number_of(value, size) == (source, number)


@pytest.mark.parametrize("value", [None, b"", b"x" * 100, value_of(1, 2, 99), value_of(1, 2, 101)])
def test_a_value_that_is_not_ours_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="not one of our records"):
        number_of(value, 100)


@given(st.permutations(range(8)))
def test_no_permutation_loses_or_duplicates(order: list[int]) -> None:
    found = findings(order, sent=8)
    assert (found.lost, found.duplicated) == (0, 0)
    assert (found.reordered == 0) == (order == sorted(order))


@given(
    st.lists(st.integers(0, 7), max_size=14),
    st.lists(st.sampled_from(["acknowledged", "failed", "denied"]), min_size=8, max_size=8),
)
def test_it_agrees_with_the_checker_of_shorter_runs(log: list[int], outcomes: list[str]) -> None:
    history = History()
    for number, outcome in enumerate(outcomes):
        history.offer(number, writer="source")
        history.accept(number)
        if outcome == "acknowledged":
            history.acknowledge(number)
        else:
            history.fail(number, not_persisted=outcome == "denied")
    logged = [Logged(Place("partition", offset), number) for offset, number in enumerate(log)]
    kinds = [anomaly.kind for anomaly in check(history, logged)]
    failed = tuple(n for n, outcome in enumerate(outcomes) if outcome != "acknowledged")
    denied = tuple(n for n, outcome in enumerate(outcomes) if outcome == "denied")
    assert findings(log, 8, failed, denied) == Findings(
        read=len(log),
        lost=kinds.count(Kind.LOST),
        duplicated=kinds.count(Kind.DUPLICATED),
        reordered=kinds.count(Kind.REORDERED),
        wrongly_denied=kinds.count(Kind.WRONGLY_NOT_PERSISTED),
    )
