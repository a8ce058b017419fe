"""Many seeds, in several processes: counts, faults that happened, failures made small.

Owns: the spreading of seeds over processes, the summary, the report of a failing seed. Not here:
what a run does.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from aioproducer.testing.world.faults import Fault
from simulation.faults import KINDS, THEMATIC_KINDS, TRANSACTIONAL_KINDS
from simulation.oracles import Violation
from simulation.recorded import SEEDS, Course
from simulation.shrink import shrink
from simulation.simulation import Result, Setup, run_seed
from simulation.themes import EARLY_HEALING

ENOUGH_SEEDS = 200
"""From so many seeds on, every kind of fault must have happened."""

_MOST_TRIES = 150
_TAIL_LINES = 40
_CHUNK = 4
_COLLECTED_EACH = 10
"""Seeds between two collections of garbage, of which 200 runs leave a gigabyte."""


class Outcome(NamedTuple):
    """One seed's share in the summary; small, for it travels between processes."""

    seed: int
    violations: list[Violation]
    happened: Counter[str]
    faults: int
    records: int
    delivered: int
    virtual_s: float
    cpu_s: float
    transactions: int = 0
    recovery: tuple[float, float] = (0.0, 0.0)
    course: Course | None = None


@dataclass(slots=True)
class Summary:
    """The results of many seeds.

    Attributes:
        wants_every_kind: Whether each kind of fault has to happen in one of them.
    """

    wants_every_kind: bool = True
    seeds: int = 0
    records: int = 0
    delivered: int = 0
    faults: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    transactions: int = 0
    transactional: int = 0
    slowest_recovery: tuple[float, float] = (0.0, 1.0)
    """Seconds, and the bound; the one that came closest to its bound."""
    happened: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    courses: list[Course] = field(default_factory=list)
    """Of the seeds that are recorded."""

    def add(self, outcome: Outcome) -> None:
        """Counts one seed."""
        self.seeds += 1
        self.records += outcome.records
        self.delivered += outcome.delivered
        self.faults += outcome.faults
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.transactions += outcome.transactions
        self.transactional += outcome.transactions > 0
        self.happened += outcome.happened
        took, bound = outcome.recovery
        if bound and took / bound > self.slowest_recovery[0] / self.slowest_recovery[1]:
            self.slowest_recovery = took, bound
        if outcome.course is not None:
            self.courses.append(outcome.course)
        if outcome.violations:
            self.failures.append(outcome)

    @property
    def missing_kinds(self) -> list[str]:
        """Kinds of faults that never happened although there were seeds enough."""
        if self.seeds < ENOUGH_SEEDS or not self.wants_every_kind:
            return []
        return [kind for kind in fault_kinds() if not self.happened[kind]]

    @property
    def is_clean(self) -> bool:
        """Whether no seed failed and every kind of fault happened."""
        return not self.failures and not self.missing_kinds

    def lines(self) -> Iterator[str]:
        """The summary for a terminal."""
        yield (
            f"{self.seeds} seeds, {self.records} records ({self.delivered} acknowledged), "
            f"{self.faults} faults, {self.virtual_s / 3600:.1f} virtual hours, "
            f"{self.cpu_s / max(1, self.seeds):.2f} s CPU per seed"
        )
        yield f"{self.transactions} transactions in {self.transactional} of the seeds"
        took, bound = self.slowest_recovery
        yield f"slowest recovery after the healing: {took:.1f} s of a bound of {bound:.1f} s"
        yield "faults that happened, in so many seeds:"
        for kind in fault_kinds():
            yield f"  {kind:<30}{self.happened[kind]:>7}"
        for kind in self.missing_kinds:
            yield f"NEVER HAPPENED: {kind}"
        if self.failures:
            yield "FAILED: seeds " + " ".join(str(outcome.seed) for outcome in self.failures)


def fault_kinds() -> list[str]:
    """The names of everything that must happen now and then."""
    kinds = {kind.kind for kind in KINDS + TRANSACTIONAL_KINDS + THEMATIC_KINDS}
    return sorted({*kinds, "fragmentation", "overslept transaction"})


def run_campaign(
    seeds: Sequence[int],
    jobs: int,
    on_outcome: Callable[[Summary], None],
    *,
    heals_early: bool = False,
) -> Summary:
    """Runs the seeds; `on_outcome` is called after each.

    With `heals_early` each run has its usual faults in its first seconds only.
    """
    summary = Summary(wants_every_kind=not heals_early)
    for outcome in _outcomes(seeds, jobs, partial(_run_one, heals_early=heals_early)):
        summary.add(outcome)
        on_outcome(summary)
    summary.failures.sort()
    return summary


def _outcomes(seeds: Sequence[int], jobs: int, run: Callable[[int], Outcome]) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run, seeds)
        return
    # Not forked: a child must not inherit the loop or the threads of the calling process.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=_CHUNK)


def setup_of(*, heals_early: bool) -> Setup:
    """Return the options that replace those of the seed."""
    return Setup(theme=EARLY_HEALING) if heals_early else Setup()


def _run_one(seed: int, *, heals_early: bool) -> Outcome:
    if seed % _COLLECTED_EACH == 0:
        gc.collect()  # what runs freeze keeps the collector from starting by itself
    began = time.process_time()
    result = run_seed(seed, setup_of(heals_early=heals_early))
    return Outcome(
        seed,
        result.violations,
        result.happened,
        len(result.schedule),
        result.records,
        result.delivered,
        result.virtual_s,
        time.process_time() - began,
        result.transactions,
        result.recovery,
        Course.of(result) if seed in SEEDS and not heals_early else None,
    )


def keep_only(seed: int, places: Sequence[int], setup: Setup) -> Setup:
    """A run of the seed with the faults at these places of its schedule, and no others."""
    schedule = run_seed(seed, replace(setup, schedule=[])).drawn
    return replace(setup, schedule=[schedule[place] for place in places])


def shrunk(result: Result, setup: Setup) -> list[Fault]:
    """The smallest schedule found with which the seed still violates the same guarantee."""
    oracles = {violation.oracle for violation in result.violations}

    def still_fails(schedule: list[Fault]) -> bool:
        again = run_seed(result.seed, replace(setup, schedule=schedule))
        return any(violation.oracle in oracles for violation in again.violations)

    return shrink(list(result.schedule), still_fails, _MOST_TRIES)


def report(result: Result, setup: Setup | None = None) -> Iterator[str]:
    """A failing run for a terminal: what is wrong, the least that causes it, how to repeat it."""
    yield f"seed {result.seed}: {len(result.violations)} violation(s)"
    for violation in result.violations[:_TAIL_LINES]:
        yield f"  {violation.oracle}: {violation.text}"
    setup = setup or Setup()
    schedule = shrunk(result, setup)
    small = run_seed(result.seed, replace(setup, schedule=schedule))
    places = ",".join(str(result.drawn.index(fault)) for fault in schedule)
    yield f"shrunk schedule, {len(schedule)} of {len(result.schedule)} fault(s):"
    for fault in schedule:
        yield f"  {fault}"
    yield "with these alone:"
    for violation in small.violations[:_TAIL_LINES]:
        yield f"  {violation.oracle}: {violation.text}"
    yield f"options: {dict(result.scenario.options)}"
    yield "the end of its trace:"
    yield from (f"  {line}" for line in small.trace.lines[-_TAIL_LINES:])
    early = "--heals-early " if setup.theme is EARLY_HEALING else ""
    again = f"make sim SEED={result.seed} SIM_ARGS='{early}"
    yield f"reproduce: {again}'"
    yield f"shrunk: {again}--keep {places or '-'}'"
