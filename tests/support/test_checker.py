"""The checker passes honest histories, and names each way in which one contradicts its logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.checker import End, History, Kind, Logged, Place, Promises, check

WRITERS = ("a", "b")
PER_WRITER = 6


def place_of(writer: str, turn: int) -> Place:
    return Place(turn % 2, turn // 2 * len(WRITERS) + WRITERS.index(writer))


def honest() -> tuple[History, list[Logged]]:
    """Two writers that learn of every record where it is."""
    history, log = History(), []
    for turn in range(PER_WRITER):
        for writer in WRITERS:
            name, place = (writer, turn), place_of(writer, turn)
            history.offer(name, writer=writer)
            history.accept(name)
            history.acknowledge(name, place)
            log.append(Logged(place, name))
    return history, log


def kinds(history: History, log: list[Logged], promises: Promises | None = None) -> list[Kind]:
    return [anomaly.kind for anomaly in check(history, log, promises)]


def without(log: list[Logged], name: object) -> list[Logged]:
    return [each for each in log if each.name != name]


def swapped(log: list[Logged], one: object, other: object) -> list[Logged]:
    names = {one: other, other: one}
    return [each._replace(name=names.get(each.name, each.name)) for each in log]


def test_an_honest_history_has_no_anomaly() -> None:
    assert kinds(*honest()) == []


@pytest.mark.parametrize(
    ("doctor", "found"),
    [
        (lambda log: without(log, ("a", 3)), [Kind.LOST]),
        (lambda log: [*log, Logged(Place(1, 99), ("a", 3))], [Kind.DUPLICATED]),
        (lambda log: [*log, Logged(Place(1, 99), "?")], [Kind.PHANTOM]),
        (
            lambda log: swapped(log, ("a", 1), ("a", 3)),
            [Kind.MISPLACED, Kind.MISPLACED, Kind.REORDERED],
        ),
        # Two writers: no order between them, but each learned where its record is.
        (lambda log: swapped(log, ("a", 1), ("b", 1)), [Kind.MISPLACED, Kind.MISPLACED]),
        (
            lambda log: [*without(log, ("b", 1)), Logged(place_of("b", 1), "?")],
            [Kind.LOST, Kind.MISPLACED, Kind.PHANTOM],
        ),
    ],
)
def test_a_doctored_log_is_found_out(
    doctor: Callable[[list[Logged]], list[Logged]], found: list[Kind]
) -> None:
    history, log = honest()
    assert kinds(history, doctor(log)) == found


def test_what_may_be_lost_is_no_anomaly_at_its_place_only() -> None:
    history, log = honest()
    lost = log[5]
    rest = without(log, lost.name)
    assert check(history, rest, lost=[lost]) == []
    elsewhere = lost._replace(place=Place(7, 7))
    assert [each.kind for each in check(history, rest, lost=[elsewhere])] == [Kind.LOST]


def test_without_acknowledgements_of_brokers_nothing_is_promised_to_stay() -> None:
    history, log = honest()
    assert kinds(history, log[:3], Promises(kept=False)) == []


def test_without_idempotence_copies_and_late_failures_are_no_anomaly() -> None:
    history, log = honest()
    history.offer("late", writer="a")
    history.accept("late")
    history.fail("late", not_persisted=False)
    history.offer("last", writer="a")
    history.accept("last")
    history.acknowledge("last", Place(0, 50))
    log += [
        Logged(Place(0, 50), "last"),
        Logged(Place(0, 51), "late"),
        Logged(Place(0, 52), "late"),
    ]
    assert kinds(history, log, Promises(once=False)) == []
    assert kinds(history, log) == [Kind.DUPLICATED, Kind.REORDERED]


def test_an_outcome_comes_once_and_is_never_missing() -> None:
    history = History()
    for name in "xyz":
        history.offer(name)
        history.accept(name)
    history.acknowledge("x")
    history.fail("x", not_persisted=False)
    history.abandon("y")
    assert kinds(history, [Logged(Place(0, 0), "x")]) == [Kind.SECOND_OUTCOME, Kind.UNRESOLVED]
    assert history.pending == 1


def test_what_is_refused_or_not_persisted_must_be_absent() -> None:
    history = History()
    for name in "rfp":
        history.offer(name)
    history.refuse("r")
    history.fail("f", not_persisted=True)
    history.fail("p", not_persisted=False)
    log = [Logged(Place(0, offset), name) for offset, name in enumerate("rfp")]
    assert kinds(history, log) == [Kind.WRONGLY_NOT_PERSISTED] * 2
    assert kinds(history, log[2:]) == []


def transaction(*ends: End) -> History:
    """One of three records; the last call of `send` raised."""
    history = History()
    history.begin("tx")
    for name in "uvw":
        history.offer(name, writer="w", transaction="tx")
    for name in "uv":
        history.accept(name)
        history.abandon(name)
    history.abandon("w")
    for end in ends:
        history.end("tx", end)
    return history


ASKED, COMMITTED = (End.ASKED,), (End.ASKED, End.COMMITTED)


@pytest.mark.parametrize(
    ("ends", "visible", "found"),
    [
        (COMMITTED, "uv", []),
        (COMMITTED, "uvw", []),
        (COMMITTED, "u", [Kind.MISSING]),
        (COMMITTED, "", [Kind.MISSING, Kind.MISSING]),
        (ASKED, "uv", []),
        (ASKED, "", []),
        (ASKED, "v", [Kind.TORN]),
        ((), "", []),
        ((), "u", [Kind.LEAKED]),
        ((End.ABORTED,), "", []),
        ((End.ASKED, End.ABORTED), "uv", [Kind.LEAKED, Kind.LEAKED]),
        ((*COMMITTED, End.ABORTED), "uv", [Kind.SECOND_OUTCOME]),
        ((End.ABORTED, End.ASKED), "", [Kind.SECOND_OUTCOME]),
    ],
)
def test_a_transaction_is_visible_whole_or_not_at_all(
    ends: tuple[End, ...], visible: str, found: list[Kind]
) -> None:
    log = [Logged(Place(0, offset), name, name in visible) for offset, name in enumerate("uvw")]
    assert kinds(transaction(*ends), log) == found


def test_a_commit_with_a_failed_record_is_found_out() -> None:
    history = History()
    history.begin("tx")
    history.offer("u", transaction="tx")
    history.fail("u", not_persisted=False)
    history.end("tx", End.ASKED)
    history.end("tx", End.COMMITTED)
    assert kinds(history, [Logged(Place(0, 0), "u")]) == [Kind.COMMITTED_LOSS]


def test_names_are_used_once() -> None:
    history = transaction()
    with pytest.raises(ValueError, match="record 'u' was offered before"):
        history.offer("u")
    with pytest.raises(ValueError, match="transaction 'tx' has begun before"):
        history.begin("tx")


@given(st.data())
def test_of_any_interleaving_in_which_writers_keep_their_order_nothing_is_found(
    data: st.DataObject,
) -> None:
    turns = data.draw(st.permutations([writer for writer in "abc" for _ in range(4)]))
    outcomes = st.sampled_from(["acknowledged", "failed, written", "failed", "refused"])
    history, log, counts = History(), [], dict.fromkeys("abc", 0)
    ends = [0, 0]
    for writer in turns:
        name = (writer, counts[writer])
        counts[writer] += 1
        partition = data.draw(st.integers(0, 1))
        outcome = data.draw(outcomes)
        place = Place(partition, ends[partition])
        history.offer(name, writer=writer)
        if outcome == "refused":
            history.refuse(name)
            continue
        history.accept(name)
        if outcome == "acknowledged":
            history.acknowledge(name, place)
        else:
            history.fail(name, not_persisted=outcome == "failed")
        if outcome != "failed":
            ends[partition] += 1
            log.append(Logged(place, name))
    assert kinds(history, data.draw(st.permutations(log))) == []
