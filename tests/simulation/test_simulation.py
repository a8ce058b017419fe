"""The producer in the simulation: every guarantee in many seeds, the same in every process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import closing
from itertools import takewhile
from pathlib import Path

import pytest

from aioproducer.errors import SaslAuthenticationFailedError
from aioproducer.runtime.observability.interceptors import InterceptorChain
from aioproducer.runtime.send.early import EarlyRecords
from aioproducer.runtime.tasks.sender import _COPIED_BYTES
from aioproducer.serializers.calling import PendingRecord
from aioproducer.testing.world.faults import Shape
from aioproducer.testing.world.loop import VirtualLoop
from aioproducer.testing.world.producer import SimProducer
from aioproducer.testing.world.spec import Chance
from aioproducer.wire.api_keys import ApiKey
from aioproducer.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from simulation import Setup, Simulation, run_seed
from simulation.faults import draw_odd_answers
from simulation.faults.answers import DuplicateAnswer, OddAnswer
from simulation.faults.brokers import RefusedLogins
from simulation.scenario import draw_scenario, with_more_options
from simulation.themes import (
    DEPOSITIONS,
    IDLE_DAYS,
    IDLE_DAYS_OLD_KAFKA,
    IDLE_DAYS_REDPANDA,
    MANY_TOPICS,
    SESSIONS,
    Theme,
    seeds_of,
)

SEEDS = 300
"""About 0.6 s of CPU each: a minute and a half on two cores."""
FEW = 60

_TESTS = Path(__file__).parents[1]
_REGRESSIONS = Path(__file__).with_name("regressions.txt")
_DIGESTS = """
from simulation import run_seed
for seed in {seeds}:
    print(seed, run_seed(seed).trace.digest())
"""


def _python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment, "PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )


def _regressions() -> list[int]:
    lines = _REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def test_some_runs_have_odd_answers_and_only_transactional_ones_of_coordinators() -> None:
    def drawn(shape: Shape) -> list[set[ApiKey]]:
        runs = [draw_odd_answers(random.Random(seed), shape, 1.0, 50.0) for seed in range(500)]
        return [{each.api for each in run if isinstance(each, OddAnswer)} for run in runs if run]

    plain, seated = drawn(Shape((1, 2), {"t": 1})), drawn(Shape((1, 2), {"t": 1}, {"a": "group"}))
    assert 30 < len(plain) < 100
    assert set().union(*plain) == {ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID}
    assert ApiKey.FIND_COORDINATOR in set().union(*seated)


def test_every_guarantee_holds_in_a_few_seeds() -> None:
    done = _python("-m", "simulation", "--seeds", str(FEW), "--jobs", "2")
    assert done.returncode == 0, done.stdout
    assert f"{FEW} seeds" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_guarantee_holds_in_many_seeds_and_every_kind_of_fault_happens() -> None:
    done = _python("-m", "simulation", "--seeds", str(SEEDS), "--jobs", "2")
    assert done.returncode == 0, done.stdout
    assert "NEVER HAPPENED" not in done.stdout
    assert f"{SEEDS} seeds" in done.stdout


@pytest.mark.parametrize("seed", _regressions())
def test_a_seed_that_failed_once_holds_now(seed: int) -> None:
    assert run_seed(seed).violations == []


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    seeds = [11, 12, 13, 14, 23]  # the last one hands records over
    there = _python("-c", _DIGESTS.format(seeds=seeds), PYTHONHASHSEED="1")
    # In another order: what ran before in the same process must not matter.
    elsewhere = _python("-c", _DIGESTS.format(seeds=seeds[::-1]), PYTHONHASHSEED="2")
    assert there.returncode == 0, there.stderr
    assert sorted(there.stdout.splitlines()) == sorted(elsewhere.stdout.splitlines())
    assert len(set(there.stdout.split())) == 2 * len(seeds)


def test_a_seed_is_long_and_rough_enough() -> None:
    results = [run_seed(seed) for seed in range(1, 6)]
    assert min(result.records for result in results) >= 200
    assert min(result.virtual_s for result in results) >= 60
    assert min(len(result.schedule) for result in results) >= 3


def test_a_theme_brings_its_faults_and_its_options() -> None:
    result = run_seed(next(seeds_of(DEPOSITIONS)))
    deposed = sum(fault.kind == "deposed leader" for fault in result.drawn)
    assert deposed >= 6
    assert result.scenario.options.items() >= DEPOSITIONS.options.items()


def test_some_runs_have_room_for_records_that_are_not_copied_into_a_request() -> None:
    scenarios = [draw_scenario(random.Random(seed)) for seed in range(100)]
    large = [each for each in scenarios if each.large_records]
    assert 10 < len(large) < 30
    assert all(each.options["max_request_size"] > _COPIED_BYTES for each in large)


def test_some_runs_have_full_requests_or_a_narrow_connection_without_responses() -> None:
    options, narrow = [], 0
    for seed in range(100):
        rng = random.Random(seed)
        scenario = with_more_options(draw_scenario(rng), rng)
        options.append(scenario.options)
        narrow += scenario.options["acks"] == 0 and scenario.window < 1000
    assert narrow
    assert any(each["batch_size"] < each["max_request_size"] < 4000 for each in options)


def test_a_written_batch_is_answered_as_a_duplicate() -> None:
    refused = PartitionProduceResponse(index=0, error_code=6, base_offset=-1)
    written = PartitionProduceResponse(index=1, base_offset=7)
    topic = TopicProduceResponse("t", partition_responses=[refused])
    response = ProduceResponse(responses=[topic])
    assert not DuplicateAnswer(0.0, 1).distort(response)
    topic.partition_responses.append(written)
    assert DuplicateAnswer(0.0, 1).distort(response)
    assert (refused.error_code, written.error_code, written.base_offset) == (6, 46, -1)


def test_many_topics_are_used_created_and_deleted_while_faults_strike() -> None:
    result = run_seed(next(seeds_of(MANY_TOPICS)))
    assert not result.violations
    assert result.happened["topic creation"] > 10
    assert result.happened["topic deletion"] > 10
    kinds = {fault.kind for fault in result.schedule}
    assert len(kinds) > 3
    appends = [line.split(" appends ")[1] for line in result.trace.lines if " appends m" in line]
    assert len({where.split()[0] for where in appends}) > 100


def _epochs(lines: list[str]) -> set[str]:
    """The epochs of what is appended until all is healed: afterwards records are made to fail."""
    appended = takewhile(lambda line: not line.endswith(" healed"), lines)
    return {line.rsplit("/", 2)[1] for line in appended if " appends " in line and " seq " in line}


@pytest.mark.slow
@pytest.mark.parametrize("theme", [IDLE_DAYS, IDLE_DAYS_REDPANDA, IDLE_DAYS_OLD_KAFKA])
def test_idle_days_pass_and_brokers_expire_the_producer(theme: Theme) -> None:
    seed = next(seeds_of(theme))
    result = run_seed(seed)
    assert not result.violations
    assert result.virtual_s > 4 * 86_400
    assert result.happened["first refused"]
    assert any(" expires producer " in line for line in result.trace.lines)
    calm = run_seed(seed, Setup(schedule=[]))
    assert not calm.violations
    # Sequences go on only at brokers that accept producers without state.
    assert (_epochs(calm.trace.lines) == {"0"}) is (theme is IDLE_DAYS)


class UnfoundedProducer(SimProducer):
    """One that calls its login refused although no broker has refused it."""

    async def start(self, *, init_transactions: bool = True, wait: bool = True) -> None:
        """Raises instead of starting."""
        raise SaslAuthenticationFailedError("no broker has refused this login")


def _refuse_first_logins(simulation: Simulation) -> None:
    brokers = simulation.world.brokers
    simulation.schedule[:] = [RefusedLogins(0.0, each, 0.5) for each in brokers]


def _seed_with_sessions(*, starts_early: bool) -> int:
    def has_it(seed: int) -> bool:
        setup, loop = Setup(theme=SESSIONS), VirtualLoop(random.Random(1))
        with closing(loop):
            return Simulation(seed, Chance(seed), loop, setup).scenario.starts_early is starts_early

    return next(filter(has_it, seeds_of(SESSIONS)))


def test_only_a_start_whose_login_brokers_refuse_is_tried_again() -> None:
    seed = _seed_with_sessions(starts_early=False)
    result = run_seed(seed, Setup(theme=SESSIONS, sabotage=_refuse_first_logins))
    assert result.violations == []
    assert any("start() raises SaslAuth" in line for line in result.trace.lines)
    result = run_seed(seed, Setup(theme=SESSIONS, producer=UnfoundedProducer))
    assert ["has refused this login" in each.text for each in result.violations] == [True]


def test_early_records_of_a_refused_login_fail() -> None:
    seed = _seed_with_sessions(starts_early=True)
    result = run_seed(seed, Setup(theme=SESSIONS, sabotage=_refuse_first_logins))
    assert result.violations == []


def test_early_records_that_wait_on_after_a_refused_login_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(EarlyRecords, "fail", lambda *_: None)
    texts = [violation.text for violation in run_seed(6).violations]
    assert any("records wait for metadata of t1, and SASL_" in text for text in texts)


def test_clusters_that_interceptors_do_not_get_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(InterceptorChain, "on_cluster", lambda *_: None)
    texts = [violation.text for violation in run_seed(26).violations]
    assert any(text.startswith("on_cluster was called for []") for text in texts)


def test_a_coroutine_that_is_never_awaited_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingRecord, "close", lambda _: None)
    texts = [violation.text for violation in run_seed(32).violations]
    assert any("was never awaited" in text for text in texts)


def test_without_faults_everything_in_time_is_delivered() -> None:
    for seed in range(1, 6):
        result = run_seed(seed, Setup(schedule=[]))
        assert result.violations == []
        assert result.delivered > 0


@pytest.mark.slow
def test_the_guarantees_for_what_survives_hold_with_unclean_elections_too() -> None:
    for seed in range(1, 30):
        assert run_seed(seed, Setup(unclean_elections=True)).violations == []
