"""The tool of `make mutation`: its changes, its sample, and its verdict on real modules."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tools.mutation import report
from tools.mutation.__main__ import EQUIVALENTS, chosen
from tools.mutation.coverage_map import CoverageMap
from tools.mutation.operators import changes_of, mutated
from tools.mutation.patching import apply
from tools.mutation.report import Equivalent, Outcome
from tools.mutation.sampling import Mutant, all_mutants, sample
from tools.mutation.session import Question
from tools.mutation.trial import in_child

ROOT = Path(__file__).parents[1]
CLUSTER = "aioproducer/core/metadata/cluster.py"
CLUSTER_TESTS = "tests/unit/core/metadata/test_cluster.py"


def inside(*lines: str) -> str:
    return "\n".join(["def f(a, b, items):", *(f"    {line}" for line in lines)])


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("return a < b", "return a <= b"),
        ("return a is b", "return a is not b"),
        ("a = b + a", "a = b - a"),
        ("a = a and b", "a = a or b"),
        ("a = not b", "a = b"),
        ("if a: b()", "if not a:"),
        ("a = 3", "a = 2"),
        ("a = 3", "a = 4"),
        ("a = True", "a = False"),
        ("return a", "return None"),
        ("a.close()", "pass"),
        ("a.b = items", "pass"),
        ("a += items", "pass"),
        ("raise ValueError(a)", "pass"),
        ("for a in b: break", "continue"),
    ],
)
def test_operator_makes_the_change(source: str, after: str) -> None:
    assert after in [change.after for change in changes_of(inside(source))]


@pytest.mark.parametrize(
    "source",
    [
        '"""Say 1 < 2."""',
        "a: Literal[1]",
        "assert a < 1",
        '_logger.debug("one: %d", 1)',
        'a = f"{b:1}"',
        "if TYPE_CHECKING: a()",
        "return None",
        "def __repr__(self): return 1",
    ],
)
def test_what_has_no_effect_is_not_changed(source: str) -> None:
    assert changes_of(inside(source)) == []


def test_changed_module_differs_in_its_one_statement() -> None:
    source = inside("if a < 1:", "    a.close()", "return a")
    for change in changes_of(source):
        text = ast.unparse(mutated(source, change.number))
        assert change.after in text
        assert text != ast.unparse(ast.parse(source))


def test_default_is_judged_by_the_tests_of_the_function_body() -> None:
    (change, _) = changes_of("def f(a=1):\n    b = a\n    return None\n")
    assert change.lines == range(2, 4)


@pytest.fixture(scope="module")
def mutants() -> dict[str, list[Mutant]]:
    return all_mutants(ROOT, ("core", "wire"))


def test_same_seed_draws_the_same_sample(mutants: dict[str, list[Mutant]]) -> None:
    assert sample(mutants, 50, seed=7) == sample(mutants, 50, seed=7)
    assert sample(mutants, 50, seed=7) != sample(mutants, 50, seed=8)


def test_each_folder_gets_its_share_of_the_sample(mutants: dict[str, list[Mutant]]) -> None:
    drawn = sample(mutants, 100, seed=1)
    total = sum(map(len, mutants.values()))
    for folder, candidates in mutants.items():
        share = sum(mutant.folder == folder for mutant in drawn)
        assert share == round(100 * len(candidates) / total)


def test_listed_equivalents_are_changes_of_the_present_source() -> None:
    for path, function, before, after in report.read_equivalents(EQUIVALENTS):
        changes = changes_of((ROOT / path).read_text())
        assert any(
            (before, after) == (change.before, change.after) and function in {"", change.function}
            for change in changes
        ), (path, function, before, after)


def test_listed_equivalent_names_the_function_where_several_have_the_same_change() -> None:
    for path, function, before, after in report.read_equivalents(EQUIVALENTS):
        changes = changes_of((ROOT / path).read_text())
        places = {c.function for c in changes if (c.before, c.after) == (before, after)}
        assert function or len(places) == 1, (path, before, after, places)


def test_equivalent_of_one_function_is_none_of_another() -> None:
    source = "def f(a):\n    return a\n\n\nclass C:\n    def g(self, a):\n        return a\n"
    changes = [change for change in changes_of(source) if change.after == "return None"]
    listed = {Equivalent("m.py", "C.g", "return a", "return None")}
    found = [report.is_listed(Mutant("core", "m.py", change), listed) for change in changes]
    assert ([change.function for change in changes], found) == (["f", "C.g"], [False, True])


def test_score_leaves_listed_mutants_out_and_names_survivors(
    mutants: dict[str, list[Mutant]],
) -> None:
    first, second, third = mutants["core"][:3]
    outcomes = [Outcome(first, "killed"), Outcome(second, "survived"), Outcome(third, "listed")]
    (score,) = report.scores(outcomes)
    assert (score.counted, score.percent, score.bar) == (2, 50.0, 95.0)
    assert report.survivors(outcomes) == [
        row
        for row in report.page(outcomes, 1, "tests", 60.0, 1.0).splitlines()
        if "| survived |" in row
    ]
    assert f"{second.path}:{second.change.line}" in report.survivors(outcomes)[0]


def test_map_gives_the_tests_of_a_line_quickest_first() -> None:
    found = CoverageMap({"slow": 2.0, "quick": 1.0}, {"a.py": {3: ["slow", "quick"], 9: ["slow"]}})
    assert found.tests_of("a.py", range(3, 4)) == ["quick", "slow"]
    assert found.tests_of("a.py", range(9, 10)) == ["slow"]
    assert found.tests_of("a.py", None) == ["quick", "slow"]


def test_map_gives_the_tests_of_a_folder_quickest_first() -> None:
    found = CoverageMap(
        {"tests/wire/slow": 2.0, "tests/wire/quick": 1.0, "tests/wires/no": 0.5}, {}
    )
    assert found.tests_below("tests/wire") == ["tests/wire/quick", "tests/wire/slow"]


def test_child_that_does_not_end_is_killed() -> None:
    def endless() -> int:
        while True:
            pass

    assert in_child(endless, seconds=0.1) != 0


def change_of(text: str) -> int:
    """Return the number of a change of cluster.py, by the text that it has before."""
    changes = changes_of((ROOT / CLUSTER).read_text())
    return next(change.number for change in changes if text in change.before)


def verdict(tests: str) -> str:
    """Judge one change of cluster.py by these tests, in a process that has imported nothing yet."""
    number = change_of("return known.partitions[partition]")
    program = (
        "from pathlib import Path\n"
        "from tools.mutation.trial import survives\n"
        f"print(survives(Path({str(ROOT / CLUSTER)!r}), {number}, [{tests!r}], [1.0]))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".ci"), "AIOPRODUCER_IMPL": "pure"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_mutant_of_a_real_module_is_killed_by_its_tests() -> None:
    assert verdict(CLUSTER_TESTS) == "False"


def answer_of(change: str, tests: list[str]) -> str:
    """Judge one change of cluster.py in a fork of a process that has imported everything."""
    question = Question(str(ROOT / CLUSTER), change_of(change), tests, 1.0)
    program = (
        "from tools.mutation.session import Question, answers\n"
        f"print(*answers([Question{tuple(question)!r}], 1)[0])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".ci"), "AIOPRODUCER_IMPL": "pure"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


BLIND = f"{CLUSTER_TESTS}::test_the_topics_cannot_be_changed_from_outside"
SEEING = (
    f"{CLUSTER_TESTS}::test_leader_is_none_for_no_leader_an_unknown_node_and_an_unknown_partition"
)


def test_fork_with_a_mutant_names_the_test_that_kills_it() -> None:
    assert answer_of("return known.partitions[partition]", [BLIND, SEEING]) == f"{SEEING} True"


def test_fork_with_a_mutant_that_no_test_notices_names_none() -> None:
    assert answer_of("return known.partitions[partition]", [BLIND]) == "None True"


def test_chosen_tests_begin_with_the_nearest_and_fit_into_the_time() -> None:
    seconds = {
        "tests/unit/net/test_link.py::a": 1.0,
        "tests/unit/core/test_stats.py::c": 2.0,
        "tests/unit/net/test_link.py::d": 20.0,
        "tests/unit/core/sending/test_sender.py::b": 60.0,
        "tests/unit/core/sending/test_idempotence_and_retries.py::e": 20.0,
    }
    path = "aioproducer/core/sending/idempotence.py"
    assert chosen(list(seconds), path, seconds, 100.0) == [
        "tests/unit/core/sending/test_idempotence_and_retries.py::e",
        "tests/unit/core/sending/test_sender.py::b",
        "tests/unit/core/test_stats.py::c",
        "tests/unit/net/test_link.py::a",
    ]


def test_the_tests_of_both_implementations_mirror_the_pure_one() -> None:
    near, far = (f"tests/unit/runtime/send/test_{name}.py::a" for name in ("fast_paths", "direct"))
    path = "aioproducer/runtime/send/_fast_path_py.py"
    assert chosen([far, near], path, {near: 1.0, far: 1.0}, 10.0) == [near, far]


def test_the_first_test_is_chosen_even_if_it_is_too_long() -> None:
    seconds = {"tests/unit/metrics/test_totals.py::b": 80.0}
    assert chosen(list(seconds), "aioproducer/metrics/totals.py", seconds, 10.0) == list(seconds)


SOURCE = """
def outer(a=1):
    def inner():
        return a < 2
    return inner

class Thing:
    limit = 3

    @property
    def is_low(self):
        return self.limit < 4
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "patched_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "patched_module", raising=False)
    return importlib.import_module("patched_module")


def patch(module: ModuleType, after: str) -> bool:
    """Change the module in place; the change is named by its text afterwards."""
    file = Path(str(module.__file__))
    number = next(each.number for each in changes_of(SOURCE) if each.after == after)
    return apply(file, number)


def test_functions_that_exist_get_the_changed_code(module: ModuleType) -> None:
    inner = module.outer(2)
    assert not inner()
    assert patch(module, "return a <= 2")
    assert inner()
    assert module.outer(2)()


def test_a_property_gets_the_changed_code(module: ModuleType) -> None:
    thing = module.Thing()
    thing.limit = 4
    assert patch(module, "return self.limit <= 4")
    assert thing.is_low


def test_a_module_that_is_not_imported_yet_can_be_changed_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "patched_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "lazy.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    number = next(each.number for each in changes_of(SOURCE) if each.after == "return a <= 2")
    assert apply(package / "lazy.py", number)
    assert sys.modules.pop("patched_package.lazy").outer(2)()


@pytest.mark.parametrize("after", ["limit = 4", "def outer(a=2):"])
def test_what_runs_at_import_is_not_changed_in_place(module: ModuleType, after: str) -> None:
    assert not patch(module, after)


def test_mutant_that_its_tests_do_not_notice_survives(tmp_path: Path) -> None:
    blind = tmp_path / "test_blind.py"
    blind.write_text("import aioproducer.core.metadata.cluster\n\ndef test_nothing(): pass\n")
    assert verdict(str(blind)) == "True"


def test_a_test_that_fails_without_the_mutant_does_not_kill_it(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("import aioproducer.core.metadata.cluster\n\ndef test_it(): assert 0\n")
    assert verdict(str(broken)) == "True"


def test_tests_that_never_import_the_module_give_no_verdict(tmp_path: Path) -> None:
    blind = tmp_path / "test_blind.py"
    blind.write_text("def test_nothing(): pass\n")
    assert "none of these tests ran" in verdict(str(blind))
