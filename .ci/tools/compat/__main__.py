"""Run other projects' own tests twice, with their client and with the drop-in, and compare.

    python -m tools.compat [--sources DIR] [--minutes N] [PROGRAM]...

1. The tests: from the project's source distribution, or from DIR/PROGRAM, or from its repository.
   What cannot be fetched is skipped, and the summary says so.
2. An environment in `build/compat` with the project and what its tests need.
3. Real Kafka. Each file of tests runs with the client itself and then with ours.
4. Tests that pass with the client and not with ours are run again, with each in turn, until they
   pass as often with ours; what still differs has to be in `differences.txt`, with its reason.
5. A run of all programs, none of them skipped, is recorded in `bench/COMPAT.md`.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tools.compat.kafka import brokers
from tools.compat.programs import PROGRAMS, Program
from tools.compat.runs import CLIENTS, LOGS, Environment, Results, run_tests
from tools.compat.sources import ROOT, NoSourcesError, sources_of

DIFFERENCES = Path(__file__).with_name("differences.txt")
RECORD = ROOT / "bench" / "COMPAT.md"
MOST_TURNS = 6


def main() -> int:
    """All programs; the exit code."""
    parser = argparse.ArgumentParser(prog="tools.compat")
    parser.add_argument("--sources", type=Path, help="a folder with checkouts, by project")
    parser.add_argument("--minutes", type=float, default=60.0, help="when no more is begun")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="all when left out")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.minutes * 60
    chosen = [p for p in PROGRAMS if not arguments.programs or p.short in arguments.programs]
    lines: list[str] = []
    unexplained: list[str] = []
    known = differences()
    with brokers() as variables:
        for program in chosen:
            try:
                sources = sources_of(program, arguments.sources)
                environment = Environment(program)
                environment.make()
            except NoSourcesError as error:
                lines.append(f"{program.short}: SKIPPED: {error}")
                print(lines[-1], flush=True)
                continue
            environment.variables = {**variables, "KAFKA_ROOT": str(sources)}
            line, found = compare(program, sources, environment, known, deadline)
            lines.append(line)
            unexplained += found
    print("\n" + "\n".join(lines))
    if not arguments.programs and is_whole(lines):
        record(lines, variables["AIOPRODUCER_COMPAT_KAFKA"], unexplained)
    for name in unexplained:
        print(f"passes with the client and not with ours: {name}")
    return 1 if unexplained else 0


def is_whole(lines: list[str]) -> bool:
    """Return whether no program was skipped and each had the time for all its tests."""
    return not any("SKIPPED" in line or "no time for" in line for line in lines)


def record(lines: list[str], kafka: str, unexplained: list[str]) -> None:
    """Write down what a run of all programs has found."""
    rows = [
        "# Other projects' own tests with the drop-ins",
        "",
        f"One run of `make compat` on {datetime.now(UTC):%d %B %Y}, Kafka {kafka}: each file of "
        "tests with the project's client, then with the drop-in in its place.",
        "",
        *(f"- {line}" for line in lines),
    ]
    if unexplained:
        rows += ["", "Passes with the client and not with the drop-in, for no known reason:", ""]
        rows += (f"- {name}" for name in unexplained)
    rows += ["", "## Tests that differ, each with its reason", "", "| test | reason |", "|---|---|"]
    rows += (f"| {name} | {reason} |" for name, reason in differences().items())
    RECORD.write_text("\n".join(rows) + "\n", encoding="utf-8")


def compare(
    program: Program,
    sources: Path,
    environment: Environment,
    known: dict[str, str],
    deadline: float,
) -> tuple[str, list[str]]:
    """Run a program's tests with both clients; return a summary and the unexplained differences."""
    results = {client: Results() for client in CLIENTS}
    unfinished = []
    for name in files_of(program, sources):
        if time.monotonic() > deadline:
            unfinished.append(name)
            continue
        for client in CLIENTS:
            results[client].add(run_tests(program, sources, environment, client, [name], deadline))
    theirs, ours = (results[client] for client in CLIENTS)
    if not theirs.passed:
        return f"{program.short}: SKIPPED: no test passes with the client: see {LOGS}", []
    suspects = sorted(name for name in theirs.passed if name not in ours.passed)
    different = [name for name in suspects if f"{program.short} {name}" in known]
    unexplained = []
    for name in suspects:
        if name in different:
            continue
        if time.monotonic() > deadline or is_different(
            program, sources, environment, name, deadline
        ):
            unexplained.append(f"{program.short} {name}: {ours.failures.get(name, 'not run')}")
    line = (
        f"{program.short} {program.version}: {len(theirs.passed)} pass with the client, "
        f"{len(theirs.passed & ours.passed)} of them with ours as well; "
        f"{len(different)} differ for a known reason, {len(unexplained)} for none"
    )
    if len(theirs.skipped):
        line += f"; {len(theirs.skipped)} skipped"
    if program.stand_ins:
        line += f"; {', '.join(program.stand_ins.values())} replaced"
    if theirs.failures:
        line += f"; {len(theirs.failures)} fail with the client"
    if unfinished:
        line += f"; no time for {', '.join(unfinished)}"
    return line, unexplained


def files_of(program: Program, sources: Path) -> list[str]:
    """The program's files of tests; both clients run one before the next begins."""
    found: list[str] = []
    for name in program.tests:
        folder = sources / name
        if folder.is_dir():
            found += (str(each.relative_to(sources)) for each in sorted(folder.glob("test_*.py")))
        else:
            found.append(name)
    return found


def is_different(
    program: Program, sources: Path, environment: Environment, name: str, deadline: float
) -> bool:
    """Return whether a test passes more often with the client than with ours, in turns.

    The order changes with each turn: a test with a consumer group often fails if it runs soon after
    another one with the same group, with either client.
    """
    passes = dict.fromkeys(CLIENTS, 0)
    theirs, ours = CLIENTS
    for turn in range(MOST_TURNS):
        for client in CLIENTS if turn % 2 == 0 else reversed(CLIENTS):
            found = run_tests(program, sources, environment, client, [name], deadline)
            passes[client] += name in found.passed
        if turn % 2 and passes[ours] >= passes[theirs]:
            return False
    return True


def differences() -> dict[str, str]:
    """The tests that may differ, each with its reason."""
    rows = (line.strip() for line in DIFFERENCES.read_text(encoding="utf-8").splitlines())
    pairs = (row.split(" -- ", 1) for row in rows if row and not row.startswith("#"))
    return {name.strip(): reason.strip() for name, reason in pairs}


if __name__ == "__main__":
    sys.exit(main())
