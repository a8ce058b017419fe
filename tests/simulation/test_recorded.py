"""The comparison of runs with those that were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.recorded import RECORDED, SEEDS, Comparison, Course, environment, record
from simulation.simulation import run_seed

_ONE = Course(1, "abc", {"delivered": 10, "metadata": 4})
_OTHER = Course(2, "def", {"delivered": 20, "metadata": 5})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    record([_OTHER, _ONE], tmp_path / "runs.txt")
    return tmp_path / "runs.txt"


def test_every_seed_of_the_file_is_read_as_it_was_written() -> None:
    lines = RECORDED.read_text().splitlines()[1:]
    courses = [Course.read(line) for line in lines]
    assert [course.seed for course in courses] == [*SEEDS]
    assert [str(course) for course in courses] == lines


def test_runs_that_are_the_same_do_not_differ(file: Path) -> None:
    comparison = Comparison([_ONE, _OTHER], file)
    assert comparison.differing == []
    assert [*comparison.lines()] == ["0 of 2 runs differ from the recorded ones"]


def test_a_run_with_another_order_of_events_differs(file: Path) -> None:
    assert Comparison([_ONE._replace(digest="xyz"), _OTHER], file).differing == [1]


def test_a_difference_shows_what_is_done_more_or_less_often(file: Path) -> None:
    now = _OTHER._replace(counts={"delivered": 20, "metadata": 2, "list_offsets": 1})
    text = "\n".join(Comparison([_ONE, now], file).lines())
    assert "seeds 2\n" in text
    assert "delivered" not in text
    assert [line.split() for line in text.splitlines() if line.startswith("  ")] == [
        ["list_offsets", "0", "recorded", "1", "now"],
        ["metadata", "9", "recorded", "6", "now"],
    ]


def test_runs_of_other_seeds_are_not_compared(file: Path) -> None:
    assert Comparison([_ONE._replace(seed=3, digest="xyz")], file).differing == []


def test_runs_are_not_compared_with_those_of_another_environment(file: Path) -> None:
    file.write_text(file.read_text().replace(environment(), "CPython 4.0"))
    comparison = Comparison([_ONE._replace(digest="xyz")], file)
    assert comparison.differing == []
    assert [*comparison.lines()] == [
        "not compared with the recorded runs: those are of CPython 4.0"
    ]


def test_what_a_run_did_is_counted_from_its_trace() -> None:
    result = run_seed(1)
    course = Course.of(result)
    produced = [line for line in result.trace.lines if ") produce #" in line]
    assert course.counts["produce"] == len(produced) > 0
    assert course.counts["delivered"] == result.delivered > 0
    assert result.trace.digest().startswith(course.digest)
