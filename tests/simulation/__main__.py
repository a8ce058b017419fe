"""`make sim`: one seed in detail, or many in parallel.

Owns: arguments and terminal output. Not here: how runs work.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from simulation.campaign import Summary, keep_only, report, run_campaign, setup_of
from simulation.recorded import SEEDS, Comparison, record
from simulation.simulation import Setup, run_seed

_REPORTED_FAILURES = 3
_BAR_WIDTH = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what the arguments ask for; 0 if every guarantee held, and runs are as recorded."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        setup = setup_of(heals_early=options.heals_early)
        if options.keep is not None:
            setup = keep_only(options.seed, options.keep, setup)
        return _one(options.seed, setup, trace=options.trace)
    if options.record:
        record(run_campaign(SEEDS, options.jobs, lambda summary: None).courses)
        return 0
    return _many(options.seeds, options.jobs, heals_early=options.heals_early)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make sim SIM_ARGS=")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, help="run one seed, and explain it if it fails")
    what.add_argument(
        "--seeds", type=_seeds, default=range(1, 501), help="A..B, or N for 1..N (default: 500)"
    )
    what.add_argument(
        "--record", action="store_true", help="record what the first seeds do, to compare later"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--keep", type=_places, help="places in the schedule to keep, or -")
    parser.add_argument(
        "--heals-early", action="store_true", help="all faults in the first 10 s, then none"
    )
    parser.add_argument("--trace", action="store_true", help="print the whole trace of --seed")
    return parser


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last) + 1) if dots else range(1, int(first) + 1)


def _places(text: str) -> list[int]:
    return [] if text == "-" else [int(place) for place in text.split(",")]


def _one(seed: int, setup: Setup, *, trace: bool) -> int:
    result = run_seed(seed, setup)
    if trace:
        print("\n".join(result.trace.lines))
    print(
        f"seed {seed}: {result.records} records, {len(result.schedule)} faults, "
        f"{result.virtual_s:.0f} virtual s, trace {result.trace.digest()[:16]}"
    )
    if not result.violations:
        print("every guarantee held")
        return 0
    print("\n".join(report(result, setup)))
    return 1


def _many(seeds: range, jobs: int, *, heals_early: bool) -> int:
    began = time.monotonic()
    show = sys.stderr.isatty()

    def progress(summary: Summary) -> None:
        if show or summary.seeds % 100 == 0:
            done = summary.seeds / len(seeds)
            bar = "#" * int(done * _BAR_WIDTH)
            elapsed = time.monotonic() - began
            which = "".join(f" {outcome.seed}" for outcome in summary.failures[:_REPORTED_FAILURES])
            print(
                f"[{bar:<{_BAR_WIDTH}}] {summary.seeds}/{len(seeds)} seeds, "
                f"{len(summary.failures)} failed{which}, {elapsed:.0f} s",
                end="\r" if show else "\n",
                file=sys.stderr,
                flush=True,
            )

    summary = run_campaign(seeds, jobs, progress, heals_early=heals_early)
    if show:
        print(file=sys.stderr)
    print("\n".join(summary.lines()), f"wall time {time.monotonic() - began:.0f} s", sep="\n")
    for outcome in summary.failures[:_REPORTED_FAILURES]:
        setup = setup_of(heals_early=heals_early)
        print("\n".join(["", *report(run_seed(outcome.seed, setup), setup)]))
    if not summary.courses:
        return 0 if summary.is_clean else 1
    comparison = Comparison(summary.courses)
    print("", *comparison.lines(), sep="\n")
    return 0 if summary.is_clean and not comparison.differing else 1


if __name__ == "__main__":
    sys.exit(main())
