"""Every target runs its seeds, the kept inputs, and random damage to both; without atheris."""

from __future__ import annotations

import time
from random import Random

import pytest

from fuzz import archive
from fuzz.guard import Target, check
from fuzz.mutation import mutated
from fuzz.targets import NAMES, load

MOST_MUTATIONS = 1000
MOST_SECONDS = 0.6
"""CPU time of the mutations of one target; there are fifteen."""

every_target = pytest.mark.parametrize("target", [load(name) for name in NAMES], ids=NAMES)


def kept(target: Target) -> list[bytes]:
    return [
        data
        for folder in (archive.CORPUS, archive.REGRESSIONS)
        for data in archive.read(folder, target.name)
    ]


@every_target
def test_kept_inputs_break_nothing_and_stay_within_bounds(target: Target) -> None:
    for data in kept(target):
        check(target, data, always=True)


@every_target
def test_seeds_break_nothing_and_stay_within_bounds(target: Target) -> None:
    for data in target.seeds():
        check(target, data, always=True)


@every_target
def test_damaged_inputs_break_nothing_and_stay_within_bounds(target: Target) -> None:
    inputs = [*target.seeds(), *kept(target)]
    rng = Random(target.name)
    until = time.thread_time() + MOST_SECONDS
    for _ in range(MOST_MUTATIONS):
        data = mutated(rng.choice(inputs), inputs, rng, target.longest)
        try:
            check(target, data)
        except BaseException as error:
            error.add_note(f"the input, for regressions/{target.name}.txt: {archive.line(data)}")
            raise
        if time.thread_time() > until:
            break


@every_target
def test_no_bytes_at_all_break_nothing(target: Target) -> None:
    check(target, b"", always=True)


def test_the_kept_files_are_few_and_small() -> None:
    files = [*archive.CORPUS.iterdir(), *archive.REGRESSIONS.iterdir()]
    assert {path.stem for path in files} <= set(NAMES)
    assert sum(path.stat().st_size for path in files) < 300_000
