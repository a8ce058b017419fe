"""Four planted defects are found: the simulation watches what it says it watches."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("mutants", Path(__file__).with_name("mutants.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
mutants = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(mutants)

QUICKLY_FOUND = (
    "retry after younger batches",
    "count a lost answer as not written",
    "drop the waiter for an answer",
    "end a transaction while batches are out",
)
ALL = mutants.MUTANTS + mutants.TRANSACTIONAL_MUTANTS


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_defect_is_found(name: str) -> None:
    (mutant,) = (m for m in ALL if m.name == name)
    assert mutants.hunt(mutant, 60) is not None


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.name)
def test_every_defect_still_has_its_place(mutant: object) -> None:
    source = mutants.PACKAGE / mutant.file  # type: ignore[attr-defined]
    assert source.read_text(encoding="utf-8").count(mutant.old) == 1  # type: ignore[attr-defined]


def test_every_defect_is_above_the_call_that_hunts_them() -> None:
    source = Path(mutants.__file__).read_text(encoding="utf-8")
    assert source.endswith('if __name__ == "__main__":\n    sys.exit(main())\n')
