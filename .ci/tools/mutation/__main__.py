"""Draw mutants, run the tests that reach each, print and record the score.

PYTHONPATH=.ci python -m tools.mutation [--mutants 1500] [--seed 1] [--folders core,runtime]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutation import report, sampling

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "mutation"
EQUIVALENTS = Path(__file__).with_name("equivalents.txt")
TESTS = "tests/unit tests/conformance"


def chosen(
    tests: Sequence[str], path: str, seconds: Mapping[str, float], limit: float
) -> list[str]:
    """Of tests in this order, first those that mirror the module; as many as fit into the limit.

    After the files of the module's name come those of its folder, then those of the folders above.
    The tests of `_x_py.py` are those of `x`, which it implements. One test at least: a mutant
    without any would count as not reached.
    """
    mirror = Path("tests/unit", *Path(path).parts[1:])
    near = [f"{folder}/" for folder in mirror.parents]
    near.append(f"{mirror.parent}/test_{mirror.stem.strip('_').removesuffix('_py')}")
    ordered = sorted(tests, key=lambda test: -sum(map(test.startswith, near)))
    spent = itertools.accumulate(seconds[test] for test in ordered)
    fitting = [test for test, so_far in zip(ordered, spent, strict=True) if so_far <= limit]
    return fitting or ordered[:1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a folder's score is below its bar."""
    options = _options(arguments)
    os.environ["AIOPRODUCER_IMPL"] = "pure"  # native code has no syntax tree
    os.environ["AIOPRODUCER_TEST_PROFILE"] = "ci"  # property tests draw the same examples each time
    started = time.monotonic()
    everything = sampling.all_mutants(ROOT, options.folders.split(","))
    drawn = sampling.sample(everything, options.mutants, options.seed)
    print(f"seed {options.seed}: {len(drawn)} of {sum(map(len, everything.values()))} mutants")
    outcomes = run(drawn, options.tests.split(), options.jobs, options.seconds)
    seconds = time.monotonic() - started
    text = report.page(outcomes, options.seed, options.tests, options.seconds, seconds)
    print(text)
    if options.record:
        (ROOT / "bench" / "MUTATION.md").write_text(text, encoding="utf-8")
    return int(any(score.percent < score.bar for score in report.scores(outcomes)))


def run(
    drawn: Sequence[sampling.Mutant], tests: Sequence[str], jobs: int, limit: float
) -> list[report.Outcome]:
    """Run the tests of each mutant for at most `limit` seconds, `jobs` mutants at a time."""
    from tools.mutation import coverage_map, trial
    from tools.mutation.session import Answer, Question, answers

    reached = coverage_map.load_map(ROOT, tests, BUILD / "pure.json")
    listed = report.read_equivalents(EQUIVALENTS)
    equivalent = [mutant for mutant in drawn if report.is_listed(mutant, listed)]
    judged = [mutant for mutant in drawn if mutant not in equivalent]
    questions: list[Question] = []
    at_import: set[sampling.Mutant] = set()
    for mutant in judged:
        reaching = reached.tests_of(mutant.path, mutant.change.lines)
        if mutant.change.lines is None or not reaching:
            # It runs while its module is imported, as a table of fields does, or may do so.
            at_import.add(mutant)
            below = reached.tests_below(f"tests/unit/{mutant.folder}")
            reaching = list(dict.fromkeys([*reaching, *below]))
        of_it = chosen(reaching, mutant.path, reached.seconds, limit)
        seconds = sum(reached.seconds[test] for test in of_it)
        number = mutant.change.number
        questions.append(Question(str(ROOT / mutant.path), number, of_it, seconds))
    found = answers(questions, jobs)
    suspects = sorted({answer.killer for answer in found if answer.killer})
    without = answers([Question("", None, [test], 60.0) for test in suspects], jobs)
    unreliable = {test for test, answer in zip(suspects, without, strict=True) if answer.killer}
    print(f"{sum(answer.in_place for answer in found)} tried in one process", flush=True)

    def judge(mutant: sampling.Mutant, question: Question, answer: Answer) -> report.Outcome:
        change = mutant.change
        reliable = [test for test in question.tests if test not in unreliable]
        is_certain = mutant not in at_import and answer.killer not in unreliable
        if answer.killer is not None and is_certain:
            return report.Outcome(mutant, "killed")
        name = "not reached"
        if reliable:  # in a fresh process, where what runs at import is changed as well
            durations = [reached.seconds[test] for test in reliable]
            with contextlib.suppress(trial.NotImportedError):
                survives = trial.survives(ROOT / mutant.path, change.number, reliable, durations)
                name = "survived" if survives else "killed"
        if name == "killed":
            return report.Outcome(mutant, name)
        print(f"{name}: {mutant.path}:{change.line}: {change.before} -> {change.after}", flush=True)
        return report.Outcome(mutant, name)

    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(judge, judged, questions, found))
    return outcomes + [report.Outcome(mutant, "listed") for mutant in equivalent]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="mutation score of the pure-Python modules")
    parser.add_argument("--mutants", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", default=",".join(sampling.FOLDERS))
    parser.add_argument("--tests", default=TESTS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long the tests of a mutant may take"
    )
    parser.add_argument("--record", action="store_true", help="write bench/MUTATION.md")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
