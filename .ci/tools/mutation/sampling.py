"""A reproducible random sample of all mutants, with a part for each folder."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.mutation.operators import Change, changes_of

FOLDERS = ("core", "runtime", "net", "records", "wire")


class Mutant(NamedTuple):
    """A change of one file; the path is relative to the repository."""

    folder: str
    path: str
    change: Change


def all_mutants(root: Path, folders: Iterable[str]) -> dict[str, list[Mutant]]:
    """Return every mutant of the Python modules below `aioproducer`, by folder."""
    return {
        folder: [
            Mutant(folder, str(file.relative_to(root)), change)
            for file in sorted((root / "aioproducer" / folder).rglob("*.py"))
            for change in changes_of(file.read_text(encoding="utf-8"))
        ]
        for folder in folders
    }


def sample(mutants: Mapping[str, Sequence[Mutant]], size: int, seed: int) -> list[Mutant]:
    """Draw `size` mutants; each folder gets its share of all mutants, and at least one."""
    total = sum(map(len, mutants.values()))
    drawn: list[Mutant] = []
    for folder, candidates in mutants.items():
        share = min(len(candidates), max(1, round(size * len(candidates) / total)))
        drawn += random.Random(f"{seed} {folder}").sample(candidates, share)
    return drawn
