"""Shrinking, summaries, the command line."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.testing.world.producer import SimProducer
from simulation import Setup, Violation, run_seed
from simulation.__main__ import main
from simulation.campaign import (
    ENOUGH_SEEDS,
    Outcome,
    Summary,
    fault_kinds,
    keep_only,
    report,
    setup_of,
)
from simulation.shrink import shrink


@given(st.lists(st.integers(), unique=True, max_size=30), st.data())
def test_shrinking_keeps_exactly_what_the_failure_needs(
    items: list[int], data: st.DataObject
) -> None:
    needed = data.draw(st.sets(st.sampled_from(items))) if items else set()
    found = shrink(items, lambda part: needed <= {*part}, most_tries=10_000)
    assert {*found} == needed


def test_shrinking_gives_up_after_so_many_tries() -> None:
    tries = 0

    def fails(part: list[int]) -> bool:
        nonlocal tries
        tries += 1
        return False

    assert shrink(list(range(100)), fails, most_tries=7) == list(range(100))
    assert tries == 7


def _outcome(seed: int, kinds: list[str], violations: list[Violation] | None = None) -> Outcome:
    return Outcome(seed, violations or [], Counter(kinds), 3, 200, 100, 60.0, 0.1)


def test_a_kind_of_fault_that_never_happens_fails_a_long_campaign() -> None:
    kinds = fault_kinds()
    summary = Summary()
    for seed in range(ENOUGH_SEEDS):
        assert summary.is_clean
        summary.add(_outcome(seed, kinds[1:]))
    assert summary.missing_kinds == kinds[:1]
    assert not summary.is_clean
    assert f"NEVER HAPPENED: {kinds[0]}" in list(summary.lines())


def test_a_failing_seed_fails_the_campaign() -> None:
    summary = Summary()
    summary.add(_outcome(5, [], [Violation("x", "y")]))
    assert not summary.is_clean
    assert list(summary.lines())[-1] == "FAILED: seeds 5"


class _Forgetful(SimProducer):
    """Loses a record after a fault, so that faults matter."""

    async def close(self, timeout: float | None = None) -> None:
        await super().close(timeout)
        healed_at = self._world.healed_at or self._world.now()
        if any(began < healed_at for began, _ in self._world.disturbances):
            self.engine.stats.records_failed += 1


def test_a_report_names_the_least_faults_and_how_to_repeat_the_run() -> None:
    text = "\n".join(report(run_seed(1, Setup(producer=_Forgetful)), Setup(producer=_Forgetful)))
    assert "shrunk schedule, 1 of" in text
    assert "the counts do not add up" in text
    assert "shrunk: make sim SEED=1 SIM_ARGS='--keep" in text


def test_a_part_of_a_schedule_can_be_replayed() -> None:
    drawn = run_seed(3).drawn
    result = run_seed(3, keep_only(3, [1], Setup()))
    assert list(result.schedule) == [drawn[1]]


def test_the_command_line_runs_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--trace"]) == 0
    shown = capsys.readouterr().out
    assert "every guarantee held" in shown
    assert "healed" in shown


def test_a_run_that_heals_early_has_no_fault_after_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = run_seed(3, setup_of(heals_early=True))
    assert result.schedule
    assert max(fault.at for fault in result.schedule) < 10.0
    assert main(["--seed", "3", "--heals-early"]) == 0
    assert f"{len(result.schedule)} faults" in capsys.readouterr().out


def test_an_addition_that_is_carried_out_after_the_commit_does_not_fence_its_producer() -> None:
    result = run_seed(1625, setup_of(heals_early=True))
    assert result.violations == []
    assert any("a request ADD_OFFSETS_TO_TXN is held" in line for line in result.trace.lines)


def test_a_process_that_was_killed_in_a_block_is_not_judged_by_the_time_to_leave_it() -> None:
    assert run_seed(21784, setup_of(heals_early=True)).violations == []


def test_the_command_line_runs_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4..6", "--jobs", "1"]) == 0
    assert "3 seeds" in capsys.readouterr().out


def test_a_write_in_the_moment_in_which_a_throttled_answer_arrives_is_not_too_early() -> None:
    assert run_seed(42953, setup_of(heals_early=True)).violations == []
