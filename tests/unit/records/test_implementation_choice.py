import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = "import aioproducer.records as r; print(r.IMPLEMENTATION, r.RecordBatchBuilder.__module__)"
WITHOUT_NATIVE = "import sys; sys.modules['aioproducer.records._native'] = None; "


def run(code: str, implementation: str | None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "AIOPRODUCER_IMPL"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    if implementation is not None:
        environment["AIOPRODUCER_IMPL"] = implementation
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_both_implementations_have_the_names_of_the_stub_and_the_same_members_of_a_builder(both):
    stub = ast.parse(Path(both[1].__file__).with_name("_native.pyi").read_text("utf-8"))
    stubbed = {name.asname for node in stub.body for name in node.names}
    assert "RecordBatchBuilder" in stubbed
    for implementation in both:
        assert stubbed <= public(vars(implementation))
    native, pure = (public(dir(each.RecordBatchBuilder)) for each in both)
    assert native == pure


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("implementation", [None, "native"])
def test_native_core_is_used_where_it_is_built(both, implementation):
    assert run(SHOW, implementation).stdout.split() == ["native", "aioproducer.records._native"]


def test_pure_python_is_used_when_it_is_asked_for():
    assert run(SHOW, "pure").stdout.split() == ["pure", "aioproducer.records._pure"]


def test_pure_python_is_used_where_the_native_core_is_not_built():
    result = run(WITHOUT_NATIVE + SHOW, None)
    assert result.stdout.split() == ["pure", "aioproducer.records._pure"]


def test_native_core_asked_for_but_missing_says_what_to_do():
    result = run(WITHOUT_NATIVE + SHOW, "native")
    assert result.returncode != 0
    assert "ImportError: AIOPRODUCER_IMPL=native" in result.stderr
    assert "Install a C compiler" in result.stderr


@pytest.mark.parametrize("implementation", ["native", "pure"])
def test_a_python_that_runs_without_the_gil_is_refused(both, implementation):
    result = run("import sys; sys._is_gil_enabled = lambda: False; " + SHOW, implementation)
    assert result.returncode != 0
    assert "ImportError: aioproducer needs the GIL" in result.stderr
    assert run("import sys; sys._is_gil_enabled = lambda: True; " + SHOW, implementation).stdout


def test_unknown_implementation_is_refused():
    result = run(SHOW, "fast")
    assert result.returncode != 0
    assert "must be 'native' or 'pure', not 'fast'" in result.stderr


def test_choosing_an_implementation_loads_no_third_party_library():
    code = (
        "import sys, aioproducer.records.batch;"
        "print([m for m in ('crc32c', 'lz4', 'zstandard', 'cramjam') if m in sys.modules])"
    )
    assert run(code, None).stdout.strip() == "[]"
