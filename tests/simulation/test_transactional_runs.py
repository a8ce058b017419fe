"""Transactional runs as a whole: there are enough of them, and spoilt clusters are found out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aioproducer.core.transactions import coordinators
from aioproducer.core.transactions.operations import Operations
from aioproducer.core.transactions.requests import Rpc
from aioproducer.core.transactions.rules import Reaction, reaction_to
from aioproducer.errors import ProducerFencedError
from aioproducer.runtime.send.appender import RecordAppender
from aioproducer.testing.broker.markers import Marker
from aioproducer.testing.broker.refusal import RefusedError
from aioproducer.testing.broker.replication import ReplicatedPartition
from aioproducer.testing.broker.transactions.groups import Group
from aioproducer.testing.broker.transactions.states import Transaction
from aioproducer.testing.world.faults import Shape
from aioproducer.testing.world.spec import Chance
from aioproducer.transaction_admin import TransactionAdmin
from simulation import run_seed
from simulation.faults.brokers import LeaderMove
from simulation.faults.coordinators import ErrorAfterWork, FinalCoordinatorError
from simulation.faults.moments import RecreationBeforeEnd
from simulation.scenario import SHARE_OF_SESSIONS
from simulation.themes import (
    COORDINATOR_MOVES,
    DOUBTED_ENDS,
    LATE_ENDS,
    LEFT_OUT,
    LOST_ADDITIONS,
    OLD_COORDINATORS,
    OVERTAKINGS,
    POSITIONS,
    SLOW_ENDS,
    TRANSACTIONAL_RECREATIONS,
    TRANSACTIONAL_RECREATIONS_SEEN_EARLY,
    TRANSACTIONAL_REPLACEMENTS,
    Theme,
    draw_transactional_theme,
)
from simulation.transactions.plan import Plan, Seat, draw_plan

_SPOILT_RUNS = 30
_SEED_WITH_OPEN_TRANSACTIONS = 22


def _transactional(most: int) -> Iterator[int]:
    """The first seeds whose runs are transactional."""
    seed = 0
    while most:
        seed += 1
        if draw_plan(Chance(seed).of("transactions")) is not None:
            most -= 1
            yield seed


def _about(theme: Theme) -> int:
    """The first seed whose run has a theme, and time for it: no sessions to renew."""
    for seed in _transactional(100):
        chance = Chance(seed)
        plan = draw_plan(chance.of("transactions"))
        if plan is None or chance.of("sessions").random() < SHARE_OF_SESSIONS:
            continue
        sources = chance.of("transactional theme"), chance.of("newer transactional theme")
        if draw_transactional_theme(sources[0], plan, sources[1]) is theme:
            return seed
    raise LookupError("no run has that theme")


def _themes_of(plan: Plan) -> list[Theme | None]:
    rng = random.Random(1)
    return [draw_transactional_theme(rng, plan) for _ in range(100)]


def _newer_themes_of(plan: Plan) -> list[Theme | None]:
    rng, newer = random.Random(1), random.Random(2)
    return [draw_transactional_theme(rng, plan, newer) for _ in range(100)]


def _oracles_that_notice(enough: str) -> set[str]:
    found: set[str] = set()
    for seed in _transactional(_SPOILT_RUNS):
        found |= {violation.oracle for violation in run_seed(seed).violations}
        if enough in found:
            break
    return found


def test_a_third_of_the_runs_is_transactional() -> None:
    assert sum(draw_plan(Chance(seed).of("transactions")) is not None for seed in range(1000)) > 300


def test_in_some_runs_transactions_are_prepared_for_others_to_decide() -> None:
    plans = [draw_plan(Chance(seed).of("transactions")) for seed in range(1000)]
    assert 40 < sum(plan is not None and plan.share_prepared > 0 for plan in plans) < 120


def test_a_transactional_run_is_long_and_rough_enough() -> None:
    results = [run_seed(seed) for seed in _transactional(5)]
    assert min(result.records for result in results) >= 200
    assert min(result.virtual_s for result in results) >= 60
    assert min(len(result.schedule) for result in results) >= 3
    assert min(result.transactions for result in results) >= 10


@pytest.mark.parametrize(
    ("theme", "kind", "count"),
    [
        (LATE_ENDS, "held end", 8),
        (OVERTAKINGS, "overtaken renewal", 8),
        (POSITIONS, "positions refused", 8),
        (LOST_ADDITIONS, "lost addition", 12),
        (SLOW_ENDS, "slow markers", 8),
        (LEFT_OUT, "left out by coordinator", 16),
        (COORDINATOR_MOVES, "coordinator moves at", 24),
        (TRANSACTIONAL_RECREATIONS, "topic recreation", 6),
        (TRANSACTIONAL_RECREATIONS_SEEN_EARLY, "topic recreation", 6),
        (TRANSACTIONAL_REPLACEMENTS, "replaced cluster", 6),
        (OLD_COORDINATORS, "retriable error", 40),
    ],
)
def test_a_theme_brings_its_faults_and_its_options(theme: Theme, kind: str, count: int) -> None:
    result = run_seed(_about(theme))
    assert sum(fault.kind == kind for fault in result.drawn) >= count
    assert result.happened[kind]
    options = result.scenario.options
    assert all(options[name] >= value for name, value in theme.options.items())  # or a slow network
    assert not result.violations


def test_additions_are_lost_only_where_there_are_some() -> None:
    plan = draw_plan(Chance(next(_transactional(1))).of("transactions"))
    assert plan is not None
    assert LOST_ADDITIONS not in _themes_of(replace(plan, version=2))
    assert LOST_ADDITIONS in _themes_of(replace(plan, version=1))


def test_clusters_are_replaced_only_in_runs_without_readers() -> None:
    plan = draw_plan(Chance(next(_transactional(1))).of("transactions"))
    assert plan is not None
    assert TRANSACTIONAL_REPLACEMENTS not in _newer_themes_of(
        replace(plan, seats=(Seat("a"), Seat("c", reads="t1")))
    )
    assert TRANSACTIONAL_REPLACEMENTS in _newer_themes_of(replace(plan, seats=(Seat("a"),)))


def test_old_coordinators_have_no_v2_and_no_prepared_transactions() -> None:
    plan = draw_plan(Chance(next(_transactional(1))).of("transactions"))
    assert plan is not None
    assert OLD_COORDINATORS not in _newer_themes_of(replace(plan, version=2))
    assert OLD_COORDINATORS not in _newer_themes_of(replace(plan, version=1, share_prepared=0.4))
    assert OLD_COORDINATORS in _newer_themes_of(replace(plan, version=1, share_prepared=0.0))


def test_a_process_that_has_prepared_a_transaction_goes_on_under_another_id() -> None:
    for seed in _transactional(100):
        plan = draw_plan(Chance(seed).of("transactions"))
        if plan is not None and plan.share_prepared:
            result = run_seed(seed)
            assert not result.violations
            if result.trace.times_of(" goes on as "):
                return
    raise LookupError("no process has another id")


def test_positions_are_refused_only_in_runs_with_readers() -> None:
    plan = draw_plan(Chance(next(_transactional(1))).of("transactions"))
    assert plan is not None
    assert POSITIONS not in _themes_of(replace(plan, seats=(Seat("a"),)))
    assert POSITIONS in _themes_of(replace(plan, seats=(Seat("a"), Seat("c", reads="t1"))))


def test_an_end_in_doubt_is_refused_when_it_is_requested_again() -> None:
    faults = DOUBTED_ENDS.schedule(random.Random(1), Shape((1, 2, 3), {"t": 1}), 1.0, 50.0)
    kinds = [type(fault) for fault in faults]
    assert kinds[:2] == [ErrorAfterWork, FinalCoordinatorError]
    assert kinds[2:] == kinds[:-2]
    assert all(first.at < then.at for first, then in zip(faults[::2], faults[1::2], strict=True))


def test_topics_are_created_anew_before_the_response_to_an_end() -> None:
    shape = Shape((1, 2, 3), {"t": 1})
    faults = TRANSACTIONAL_RECREATIONS_SEEN_EARLY.schedule(random.Random(1), shape, 1.0, 50.0)
    assert any(isinstance(fault, RecreationBeforeEnd) for fault in faults)
    assert not any(isinstance(fault, LeaderMove) for fault in faults)


def test_a_cluster_that_commits_what_was_aborted_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = ReplicatedPartition.append_marker

    def commit(self: ReplicatedPartition, marker: Marker, now_ms: int) -> int:
        return append(self, marker._replace(is_commit=True), now_ms)

    monkeypatch.setattr(ReplicatedPartition, "append_marker", commit)
    noticed = _oracles_that_notice("leaked")
    assert "leaked" in noticed


def test_a_cluster_that_aborts_what_was_committed_in_one_partition_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = ReplicatedPartition.append_marker

    def abort(self: ReplicatedPartition, marker: Marker, now_ms: int) -> int:
        return append(self, marker._replace(is_commit=marker.is_commit and self.index > 0), now_ms)

    monkeypatch.setattr(ReplicatedPartition, "append_marker", abort)
    noticed = _oracles_that_notice("missing")
    assert "missing" in noticed


def test_a_cluster_that_drops_markers_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ReplicatedPartition, "append_marker", lambda self, marker, now_ms: self.log.end_offset
    )
    assert "nothing_stays_open" in _oracles_that_notice("nothing_stays_open")


def test_a_cluster_that_commits_positions_of_aborted_transactions_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = Group.end_transaction

    def commit(self: Group, producer_id: int, **_: bool) -> None:
        end(self, producer_id, commit=True)

    monkeypatch.setattr(Group, "end_transaction", commit)
    noticed = _oracles_that_notice("transforms_are_exactly_once")
    assert "transforms_are_exactly_once" in noticed


def test_a_coordinator_that_never_fences_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "check_identity", lambda self, producer: None)
    assert _oracles_that_notice("a_fenced_producer_is_done")


def test_a_coordinator_that_fences_producers_that_come_too_early_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fence(self: Transaction) -> None:
        if self.is_ending:
            raise RefusedError(ProducerFencedError)

    monkeypatch.setattr(Transaction, "check_not_ending", fence)
    assert "no_producer_fences_itself" in _oracles_that_notice("no_producer_fences_itself")


def test_a_send_that_waits_until_the_next_transaction_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        RecordAppender, "_check_open", lambda self, number: self._transaction_number()
    )
    oracle = "sends_do_not_outlive_their_transaction"
    assert oracle in _oracles_that_notice(oracle)


def test_open_transactions_that_another_process_does_not_find_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def none(*_: object, **__: object) -> list[object]:
        return []

    monkeypatch.setattr(TransactionAdmin, "open_transactions", none)
    reports = [each.text for each in run_seed(_SEED_WITH_OPEN_TRANSACTIONS).violations]
    assert any("open_transactions() returns []" in text for text in reports)


def test_a_producer_that_ends_as_a_coordinator_has_dropped_its_id_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_new_epochs(rpc: Rpc, code: int, **details: bool) -> Reaction:
        found = reaction_to(rpc, code, **details)
        return Reaction.FATAL if found is Reaction.BUMP else found

    monkeypatch.setattr(coordinators, "reaction_to", without_new_epochs)
    texts = [violation.text for violation in run_seed(7).violations]
    assert any("no recovery of a: FatalTransactionError" in text for text in texts)


def test_another_call_than_the_one_that_was_cut_off_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Operations, "repeated", lambda self, kind: self.unreceived)
    texts = [violation.text for violation in run_seed(1).violations]
    assert any("no recovery of a: IllegalStateError" in text for text in texts)
