"""The fuzzer's command line: `PYTHONPATH=tests python -m fuzz COMMAND`; `make fuzz` calls it.

run [TARGET ...]     fuzz these targets, or all, for --seconds each; fails on a finding
replay FILE          run one input a campaign found, or kept, and show what it does
remember FILE WHY    keep such an input for ever in regressions/
keep [TARGET ...]    put what the working corpus has over the seeds into corpus/
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from fuzz import archive, campaign
from fuzz.guard import Target, check
from fuzz.minimise import worth_keeping
from fuzz.targets import NAMES, load

_KEPT_BYTES = 16_000
"""Per target, before base64."""


def _run(targets: list[Target], seconds: int, jobs: int) -> int:
    if find_spec("atheris") is None:
        print(
            "make fuzz needs atheris, which has wheels for Linux on x86-64 only: pip install "
            "'atheris>=3.0'.\nElsewhere `pytest tests/fuzz` is what there is: the kept inputs and "
            "random damage to them.",
            file=sys.stderr,
        )
        return 2
    print(campaign.HEADLINE)
    reports = []
    with ThreadPoolExecutor(jobs) as pool:
        for report in pool.map(lambda target: campaign.fuzz(target, seconds), targets):
            print(report.line(), flush=True)
            reports.append(report)
    broken = [report for report in reports if not report.is_clean]
    for report in broken:
        print(report.failure())
    executions = sum(report.executions for report in reports)
    print(f"{executions:,} executions, {len(broken)} of {len(reports)} targets failed")
    return 1 if broken else 0


def _target_of(path: Path) -> Target:
    """Findings are called after their target, inputs of the working corpus are in its folder."""
    for name in (path.name.partition("-")[0], path.parent.name):
        if name in NAMES:
            return load(name)
    raise SystemExit(f"the name of {path} names no target")


def _replay(path: Path) -> int:
    target, data = _target_of(path), path.read_bytes()
    print(f"{target.name}, {len(data)} bytes: {data!r}")
    check(target, data, always=True)
    print("nothing is wrong with it")
    return 0


def _remember(path: Path, why: str) -> int:
    kept = archive.REGRESSIONS / f"{_target_of(path).name}.txt"
    with kept.open("a", encoding="ascii") as file:
        file.write(archive.line(path.read_bytes(), why) + "\n")
    return 0


def _keep(targets: list[Target]) -> int:
    for target in targets:
        folder = campaign.working_corpus(target)
        inputs = [path.read_bytes() for path in folder.iterdir()]
        kept = worth_keeping(target, inputs, _KEPT_BYTES)
        archive.write(archive.CORPUS, target.name, kept)
        size = sum(map(len, kept))
        print(f"{target.name:<12}{len(kept):>5} of {len(inputs)} inputs, {size:,} bytes")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--seconds", type=int, default=60)
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    keep = commands.add_parser("keep")
    for each in (run, keep):
        each.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    replay, remember = commands.add_parser("replay"), commands.add_parser("remember")
    for each in (replay, remember):
        each.add_argument("file", type=Path)
    remember.add_argument("why")
    options = parser.parse_args()
    if options.command == "replay":
        return _replay(options.file)
    if options.command == "remember":
        return _remember(options.file, options.why)
    unknown = set(options.targets) - set(NAMES)
    if unknown:
        parser.error(f"no target is called {', '.join(sorted(unknown))}")
    targets = [load(name) for name in options.targets or NAMES]
    return (
        _keep(targets)
        if options.command == "keep"
        else _run(targets, options.seconds, options.jobs)
    )


if __name__ == "__main__":
    sys.exit(main())
