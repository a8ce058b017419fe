"""`make compat`: what its runner reads, compares and skips; no test of another project is run."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tools.compat import __main__ as runner
from tools.compat import sources as sources_module
from tools.compat.programs import PROGRAMS
from tools.compat.runs import Results, _read
from tools.compat.sources import NoSourcesError, sources_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestB" name="test_passes" />
<testcase classname="tests.test_a" name="test_c[x.y]"><failure message="no&#10;more" /></testcase>
<testcase classname="tests.test_a" name="test_d"><skipped message="-" /></testcase>
<testcase classname="tests.test_a" name="test_e" />
<testcase classname="tests.test_a" name="test_e"><error message="at teardown" /></testcase>
<testcase classname="" name="tests.test_broken"><error message="collection" /></testcase>
</testsuite></testsuites>"""


def test_report_is_read_by_names_that_pytest_takes(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = _read(report)
    assert found.passed == {"tests/test_a.py::TestB::test_passes"}
    assert found.skipped == {"tests/test_a.py::test_d"}
    assert found.failures == {
        "tests/test_a.py::test_c[x.y]": "no",
        "tests/test_a.py::test_e": "at teardown",
    }
    assert _read(tmp_path / "missing.xml") == Results()


def test_every_known_difference_names_a_program_and_says_why() -> None:
    known = runner.differences()
    assert known
    for name, reason in known.items():
        program, _, test = name.partition(" ")
        assert program in {each.short for each in PROGRAMS}
        assert "::" in test
        assert len(reason) > 20


@pytest.mark.parametrize(
    ("ours_passes", "known", "counted"),
    [
        ({"t.py::a", "t.py::b"}, {}, []),
        ({"t.py::a"}, {}, ["aiokafka t.py::b: wrong"]),
        ({"t.py::a"}, {"aiokafka t.py::b": "reads a private attribute"}, []),
    ],
)
def test_only_differences_without_a_reason_count(
    monkeypatch: pytest.MonkeyPatch,
    ours_passes: set[str],
    known: dict[str, str],
    counted: list[str],
) -> None:
    def run(program: Any, sources: Any, environment: Any, client: str, *rest: Any) -> Results:
        if client == "theirs":
            return Results({"t.py::a", "t.py::b"})
        failed = {"t.py::a", "t.py::b"} - ours_passes
        return Results(set(ours_passes), set(), dict.fromkeys(failed, "wrong"))

    monkeypatch.setattr(runner, "run_tests", run)
    program: Any = SimpleNamespace(short="aiokafka", version="1", tests=("t.py",), stand_ins={})
    environment: Any = None
    line, found = runner.compare(program, Path(), environment, known, time.monotonic() + 60)
    assert found == counted
    assert f"2 pass with the client, {len(ours_passes)} of them with ours" in line


@pytest.mark.parametrize(
    ("theirs", "ours", "is_different"),
    [
        ([True] * 6, [False] * 6, True),
        ([True] * 6, [False, True] * 3, True),
        ([True, False, True, False], [False, False, True, True], False),
        ([True, True], [True, True], False),
    ],
    ids=["never passes", "passes less often", "both fail by chance", "passes again"],
)
def test_a_difference_is_seen_in_several_turns(
    monkeypatch: pytest.MonkeyPatch, theirs: list[bool], ours: list[bool], is_different: bool
) -> None:
    outcomes = {"theirs": iter(theirs), "ours": iter(ours)}
    order = []

    def run(program: Any, sources: Any, environment: Any, client: str, *rest: Any) -> Results:
        order.append(client)
        return Results({"t"} if next(outcomes[client]) else set())

    monkeypatch.setattr(runner, "run_tests", run)
    parts: Any = (None, Path(), None, "t", time.monotonic() + 60)
    assert runner.is_different(*parts) is is_different
    assert order[:4] == ["theirs", "ours", "ours", "theirs"]


def test_sources_that_cannot_be_fetched_are_said_to_be_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        return subprocess.CompletedProcess(arguments, 1)

    monkeypatch.setattr(sources_module, "WORK", tmp_path)
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(NoSourcesError, match=r"aiokafka==0\.14\.0 cannot be fetched"):
        sources_of(PROGRAMS[0], None)


def test_checkout_is_used_without_its_own_package_and_with_stubs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sources_module, "WORK", tmp_path / "work")
    checkout = tmp_path / "aiokafka"
    for name in (*PROGRAMS[0].tests, "tests/conftest.py", "aiokafka/__init__.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(name)
    found = sources_of(PROGRAMS[0], tmp_path)
    assert not (found / "aiokafka").exists()
    assert (found / "tests/their_conftest.py").read_text() == "tests/conftest.py"
    assert "their_conftest" in (found / "tests/conftest.py").read_text()


def test_run_of_all_programs_is_recorded_with_the_reasons(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "RECORD", tmp_path / "COMPAT.md")
    runner.record(["kstreams 1: 2 pass with the client"], "4.3.1", ["kstreams t.py::a: wrong"])
    text = (tmp_path / "COMPAT.md").read_text()
    assert "- kstreams 1: 2 pass" in text
    assert "- kstreams t.py::a: wrong" in text
    for name, reason in runner.differences().items():
        assert f"| {name} | {reason} |" in text


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("one 1.0: 3 pass with the client, 3 of them with ours as well", True),
        ("one: SKIPPED: its source distribution has no tests", False),
        ("one 1.0: 3 pass with the client; no time for tests/test_b.py", False),
    ],
)
def test_run_that_lacks_a_program_is_not_recorded(line: str, whole: bool) -> None:
    assert runner.is_whole(["two 1.0: 5 pass with the client", line]) is whole
