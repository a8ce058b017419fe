"""Explore the core and the Spark sink's commit: every interleaving of bounded configurations.

    python -m exploration [--small] [--minutes N] [--jobs N] [NAME ...]
    python -m exploration --mutants [NAME ...]

`--mutants` plants defects in copies of the core, one by one; the small configurations have to find
them.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from exploration.configs import LARGE, SMALL, SMALL_STATES
from exploration.defects import DEFECTS, hunt
from exploration.explorer import Explorer, Result, explore_for
from exploration.two_phase import (
    LARGE_TWO_PHASE,
    SMALL_TWO_PHASE,
    TwoPhaseConfig,
    explore_two_phase,
)
from exploration.world import Config

AnyConfig = Config | TwoPhaseConfig


def explore_any(config: AnyConfig, seconds: float) -> Result:
    """Explore one configuration for so many seconds of CPU time at most."""
    if isinstance(config, TwoPhaseConfig):
        logging.disable(logging.CRITICAL)
        return explore_two_phase(config, seconds=seconds)
    return explore_for(config, seconds)


def explore(configs: Sequence[AnyConfig], seconds: float, jobs: int) -> int:
    """Explore the configurations, each for that long at most; how many violations there are."""
    results: list[Result] = []
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(explore_any, configs, repeat(seconds)):
            print(result, flush=True)
            results.append(result)
    states, transitions = sum(r.states for r in results), sum(r.transitions for r in results)
    spent = sum(r.seconds for r in results)
    print(f"{states:,} states, {transitions:,} transitions, {spent:.0f} s of CPU time")
    return sum(result.violation is not None for result in results)


def find_defects(names: Sequence[str], jobs: int) -> int:
    """Plant the defects of these names, or all; how many are not found."""
    defects = [defect for defect in DEFECTS if not names or defect.name in names]
    survivors = 0
    with ProcessPoolExecutor(jobs) as pool:
        for defect, found in zip(defects, pool.map(hunt, defects), strict=True):
            survivors += found is None
            print(f"{defect.name:<60} {found or 'SURVIVED'}", flush=True)
    print(f"{len(defects) - survivors} of {len(defects)} found")
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="what `make test` explores")
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--minutes", type=float, default=30.0, help="of each processor")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.mutants:
        return 1 if find_defects(arguments.names, arguments.jobs) else 0
    if arguments.quiet:
        wanted = arguments.names
        return _first_violation([each for each in SMALL if not wanted or each.name in wanted])
    small, large = (*SMALL, *SMALL_TWO_PHASE), (*LARGE, *LARGE_TWO_PHASE)
    known = small if arguments.small else large
    configs = [each for each in known if not arguments.names or each.name in arguments.names]
    began = time.monotonic()
    seconds = arguments.minutes * 60 * arguments.jobs / max(len(configs), 1)
    violations = explore(configs, seconds, arguments.jobs)
    print(f"{violations} violations, {time.monotonic() - began:.0f} s")
    return 1 if violations else 0


def _first_violation(configs: Sequence[Config]) -> int:
    for config in configs:
        result = Explorer(config).run(states=SMALL_STATES)
        if result.violation is not None:
            print(f"{config.name}, {len(result.schedule)} events: {result.violation}")
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
