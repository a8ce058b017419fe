"""Scores, survivors and the page bench/MUTATION.md."""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.mutation.sampling import Mutant

BARS = {"core": 95.0, "runtime": 95.0}
OTHER_BAR = 90.0


class Outcome(NamedTuple):
    """The result for a mutant: `killed`, `survived`, `not reached` or `listed`."""

    mutant: Mutant
    name: str


class Score(NamedTuple):
    """The counts of one folder; mutants that are listed as equivalent do not count."""

    folder: str
    counted: int
    killed: int
    listed: int

    @property
    def percent(self) -> float:
        """The part of the counted mutants that was killed."""
        return 100 * self.killed / self.counted if self.counted else 100.0

    @property
    def bar(self) -> float:
        """The least score."""
        return BARS.get(self.folder, OTHER_BAR)


class Equivalent(NamedTuple):
    """A mutant that no caller can observe."""

    path: str
    function: str
    """Where the same change occurs in several functions of the file: which one it is."""
    before: str
    after: str


def read_equivalents(file: Path) -> set[Equivalent]:
    """Read `path ¦ before ¦ after ¦ reason` lines; a path may end with `:function`."""
    found = set()
    for line in file.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            place, before, after, _ = (part.strip() for part in line.split(" ¦ "))
            path, _, function = place.partition(":")
            found.add(Equivalent(path, function, before, after))
    return found


def is_listed(mutant: Mutant, equivalents: Container[Equivalent]) -> bool:
    """Return whether one of the equivalents is this mutant."""
    path, change = mutant.path, mutant.change
    return any(
        Equivalent(path, function, change.before, change.after) in equivalents
        for function in ("", change.function)
    )


def scores(outcomes: Iterable[Outcome]) -> list[Score]:
    """Return the score of each folder, in the order of the outcomes."""
    by_folder: dict[str, list[str]] = {}
    for outcome in outcomes:
        by_folder.setdefault(outcome.mutant.folder, []).append(outcome.name)
    return [
        Score(
            folder, len(names) - names.count("listed"), names.count("killed"), names.count("listed")
        )
        for folder, names in by_folder.items()
    ]


def survivors(outcomes: Iterable[Outcome]) -> list[str]:
    """Return a table row for each mutant that no test found."""
    return [
        f"| {path}:{change.line} | {_code(change.before)} | {_code(change.after)} | {name} |"
        for (_, path, change), name in sorted(
            outcomes, key=lambda o: (o.mutant.path, o.mutant.change.line)
        )
        if name in {"survived", "not reached"}
    ]


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def page(outcomes: Sequence[Outcome], seed: int, tests: str, limit: float, seconds: float) -> str:
    """Return the page of one run, whose mutants had at most `limit` seconds of tests each."""
    head = f"""# Mutation score

`make mutation` changes one expression or statement of the pure-Python implementation and runs the
tests that reach it; some test has to fail. Written by that command.

- date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}
- sample: {len(outcomes)} mutants, seed {seed}
- tests: `{tests}`, at most {limit:.0f} s of them for each mutant
- time: {seconds:.0f} s, {seconds / max(1, len(outcomes)):.1f} s per mutant

| folder | mutants | killed | listed as equivalent | score | bar |
|---|---|---|---|---|---|
"""
    rows = [
        f"| {s.folder} | {s.counted + s.listed} | {s.killed} | {s.listed} | {s.percent:.1f}% |"
        f" {s.bar:.0f}% |"
        for s in scores(outcomes)
    ]
    table = survivors(outcomes)
    tail = ["", "## Survivors", ""]
    tail += (
        ["| place | before | after | outcome |", "|---|---|---|---|", *table]
        if table
        else ["None."]
    )
    return head + "\n".join([*rows, *tail]) + "\n"
