"""Draw mutants, run the tests that reach each, print and record the score.

PYTHONPATH=.ci python -m tools.mutation [--mutants 1500] [--seed 1] [--folders core,runtime]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation import report, sampling

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "mutation"
EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
TESTS = "tests/unit tests/conformance"


def stages(tests: Sequence[str], folder: str) -> Iterator[list[str]]:
    """The tests that mirror the folder come first: they find most, and few files are collected."""
    near = f"tests/unit/{folder}/"
    parts = ([t for t in tests if t.startswith(near)], [t for t in tests if not t.startswith(near)])
    return (part for part in parts if part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a folder's score is below its bar."""
    options = _options(arguments)
    os.environ["AIOPRODUCER_IMPL"] = "pure"  # native code has no syntax tree
    os.environ["AIOPRODUCER_TEST_PROFILE"] = "ci"  # property tests draw the same examples each time
    started = time.monotonic()
    everything = sampling.all_mutants(ROOT, options.folders.split(","))
    drawn = sampling.sample(everything, options.mutants, options.seed)
    print(f"seed {options.seed}: {len(drawn)} of {sum(map(len, everything.values()))} mutants")
    outcomes = run(drawn, options.tests.split(), options.jobs)
    seconds = time.monotonic() - started
    text = report.page(outcomes, options.seed, options.tests, seconds)
    print(text)
    if options.record:
        (ROOT / "bench" / "MUTATION.md").write_text(text, encoding="utf-8")
    return int(any(score.percent < score.bar for score in report.scores(outcomes)))


def run(drawn: Sequence[sampling.Mutant], tests: Sequence[str], jobs: int) -> list[report.Outcome]:
    """Run the tests of each mutant, `jobs` mutants at a time."""
    from tools.mutation import coverage_map, trial
    from tools.mutation.session import Question, killers

    reached = coverage_map.load_map(ROOT, tests, BUILD / "pure.json")
    listed: Mapping[tuple[str, str, str], str] = report.read_equivalents(EQUIVALENTS)
    found = [reached.tests_of(m.path, m.change.lines) for m in drawn]
    first = killers(
        [
            Question(
                str(ROOT / m.path), m.change.number, of_it, sum(reached.seconds[t] for t in of_it)
            )
            for m, of_it in zip(drawn, found, strict=True)
        ],
        jobs,
    )
    unreliable = _failing_without_a_mutant(sorted({test for test in first if test}), jobs)
    print(f"{sum(test is not None for test in first)} killed in one process", flush=True)

    def judge(mutant: sampling.Mutant, killer: str | None, reaching: list[str]) -> report.Outcome:
        change = mutant.change
        if (mutant.path, change.before, change.after) in listed:
            return report.Outcome(mutant, "listed")
        if killer is not None and killer not in unreliable:
            return report.Outcome(mutant, "killed")
        reliable = [test for test in reaching if test not in unreliable]
        for stage in stages(reliable, mutant.folder):
            durations = [reached.seconds[test] for test in stage]
            if not trial.survives(ROOT / mutant.path, change.number, stage, durations):
                return report.Outcome(mutant, "killed")
        name = "survived" if reliable else "not reached"
        print(f"{name}: {mutant.path}:{change.line}: {change.before} -> {change.after}", flush=True)
        return report.Outcome(mutant, name)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge, drawn, first, found))


def _failing_without_a_mutant(tests: Sequence[str], jobs: int) -> set[str]:
    from tools.mutation.session import Question, killers

    found = killers([Question("", None, [test], 60.0) for test in tests], jobs)
    return {test for test, killer in zip(tests, found, strict=True) if killer is not None}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="mutation score of the pure-Python modules")
    parser.add_argument("--mutants", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", default=",".join(sampling.FOLDERS))
    parser.add_argument("--tests", default=TESTS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--record", action="store_true", help="write bench/MUTATION.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
