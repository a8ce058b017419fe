"""The judge of transactions convicts forged histories and doctored logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from support.transactions.history import Entry, History, State, entry_of, judge, value_of

PARTITIONS = 3
TOTALS = {0: 4, 1: 5, 2: 3, 3: 4, 4: 6}
COMMITTED, ABORTED, UNKNOWN, GIVEN_UP, LAST = range(5)

Log = list[Entry]


def reported() -> History:
    """Two commits, an abort, a commit without answer, a client that died before its commit."""
    history = History()
    for number, total in TOTALS.items():
        history.begin(number, total, offsets=number in {COMMITTED, ABORTED, UNKNOWN})
        if number not in {GIVEN_UP, ABORTED}:
            history.move(number, State.COMMITTING)
    history.move(ABORTED, State.ABORTED)
    history.move(COMMITTED, State.COMMITTED)
    history.move(LAST, State.COMMITTED)
    return history


def log_of(*numbers: int) -> Log:
    """The records of these transactions, one after the other."""
    log: Log = []
    for number in numbers:
        for turn in range(TOTALS[number]):
            partition = (number + turn) % PARTITIONS
            offset = sum(entry.partition == partition for entry in log)
            log.append(Entry(partition, offset, number, turn, TOTALS[number]))
    return log


def test_an_honest_log_has_no_violations() -> None:
    verdict = judge(reported(), log_of(COMMITTED, LAST), position=COMMITTED + 1)
    assert verdict.violations == {}
    assert (verdict.begun, verdict.committed, verdict.aborted) == (5, 2, 1)
    assert (verdict.unknown_whole, verdict.unknown_absent, verdict.never_committed) == (0, 1, 1)
    assert verdict.records == TOTALS[COMMITTED] + TOTALS[LAST]


def test_a_transaction_of_unknown_outcome_may_be_whole_and_then_moves_the_position() -> None:
    log = log_of(COMMITTED, UNKNOWN, LAST)
    verdict = judge(reported(), log, position=UNKNOWN + 1)
    assert verdict.violations == {}
    assert (verdict.unknown_whole, verdict.unknown_absent) == (1, 0)
    assert judge(reported(), log, position=COMMITTED + 1).violations == {"position_wrong": 1}


@pytest.mark.parametrize("position", [None, 0, ABORTED + 1, UNKNOWN + 1])
def test_the_position_is_that_of_the_last_visible_transaction(position: int | None) -> None:
    verdict = judge(reported(), log_of(COMMITTED, LAST), position)
    assert verdict.violations == {"position_wrong": 1}


def test_no_position_is_right_where_none_was_committed() -> None:
    history = History()
    history.begin(0, 1, offsets=True)
    assert judge(history, []).violations == {}


def without(log: Log, number: int) -> Log:
    """A record in the middle of this transaction is not there."""
    return [entry for entry in log if (entry.number, entry.turn) != (number, 1)]


def with_a_copy(log: Log) -> Log:
    return [*log, log[-1]._replace(offset=100)]


def with_two_swapped(log: Log) -> Log:
    one = next(entry for entry in log if (entry.number, entry.turn) == (COMMITTED, 0))
    other = next(e for e in log if e.number == LAST and e.partition == one.partition)
    places = {one: other.offset, other: one.offset}
    return [entry._replace(offset=places.get(entry, entry.offset)) for entry in log]


@pytest.mark.parametrize(
    ("doctor", "violations"),
    [
        (lambda log: without(log, LAST), {"missing": 1}),
        (with_a_copy, {"duplicated": 1}),
        (with_two_swapped, {"reordered": 2}),
        (lambda log: log_of(COMMITTED, ABORTED, LAST), {"leaked": TOTALS[ABORTED]}),
        (lambda log: log_of(COMMITTED, GIVEN_UP, LAST), {"leaked": TOTALS[GIVEN_UP]}),
        (lambda log: without(log_of(COMMITTED, UNKNOWN, LAST), UNKNOWN), {"torn": 1}),
        (lambda log: [*log, Entry(0, 100, 77, 0, 1)], {"strange": 1}),
        (lambda log: [*log, Entry(0, 100, LAST, 9, TOTALS[LAST])], {"strange": 1}),
        (lambda log: [*log, Entry(0, 100, LAST, 0, 99)], {"strange": 1}),
        (lambda log: log_of(LAST), {"missing": TOTALS[COMMITTED]}),
    ],
)
def test_a_doctored_log_is_convicted(
    doctor: Callable[[Log], Log], violations: dict[str, int]
) -> None:
    log = doctor(log_of(COMMITTED, LAST))
    assert judge(reported(), log, position=COMMITTED + 1).violations == violations


def test_a_commit_after_a_loss_is_convicted() -> None:
    history = reported()
    history.begin(5, 2)
    history.move(5, State.COMMITTING)
    history.move(5, State.COMMITTED, lost=1)
    log = [*log_of(COMMITTED, LAST), Entry(0, 100, 5, 0, 2)]
    verdict = judge(history, log, position=COMMITTED + 1)
    assert verdict.violations == {"missing": 1, "committed_losses": 1}


def test_partitions_that_stay_undecided_are_a_violation() -> None:
    verdict = judge(reported(), log_of(COMMITTED, LAST), position=COMMITTED + 1)
    assert dataclasses.replace(verdict, stuck=2).violations == {"stuck": 2}


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (GIVEN_UP, State.COMMITTED),
        (ABORTED, State.COMMITTING),
        (COMMITTED, State.ABORTED),
        (COMMITTED, State.COMMITTED),
    ],
)
def test_an_outcome_that_cannot_follow_is_refused(number: int, state: State) -> None:
    with pytest.raises(ValueError, match=f"transaction {number} was"):
        reported().move(number, state)


def test_a_number_is_used_once() -> None:
    with pytest.raises(ValueError, match="transaction 2 has begun before"):
        reported().begin(UNKNOWN, 1)


def test_a_history_reported_by_another_process_is_the_same() -> None:
    history = History()
    for event in (
        {"kind": "begin", "number": 0, "total": 2, "offsets": True},
        {"kind": "phase", "phase": "whatever"},
        {"kind": "move", "number": 0, "state": "committing", "lost": 0},
        {"kind": "trouble", "reason": "KafkaTimeoutError"},
        {"kind": "move", "number": 0, "state": "committed", "lost": 1},
    ):
        history.note(event)
    assert history.transactions[0].state is State.COMMITTED
    assert (history.committed_losses, dict(history.reasons)) == (1, {"KafkaTimeoutError": 1})


def test_values_carry_their_numbers() -> None:
    assert len(value_of(123, 4, 50)) == 100
    assert entry_of(2, 77, value_of(123, 4, 50)) == Entry(2, 77, 123, 4, 50)
    for other in (None, b"", b"something else"):
        with pytest.raises(ValueError, match="not one of our records"):
            entry_of(0, 0, other)
