"""Native code keeps to its packages as Python code does: the linter sees no imports of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from aioproducer.runtime.send import _fast_path_py, fast_path

PACKAGE = Path(__file__).parents[4] / "aioproducer"
"""The sources, which are not beside what `make asan` and wheels import."""
BELOW = {
    "records": {"errors", "records", "types"},
    "runtime": {"core", "errors", "records", "runtime", "types"},
}
"""The packages that hold native modules, and what those may use."""
FAST_PATH = {
    "aioproducer.records._native",
    "aioproducer.runtime.delivery._delivery",
    "aioproducer.runtime.send.validation",
}
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", re.MULTILINE)
_PURE_PACKAGES = {"asyncio", "random", "select", "selectors", "socket", "ssl", "threading", "time"}


def imports_of(path: Path) -> set[str]:
    return {one or other for one, other in _IMPORT.findall(path.read_text("utf-8"))}


def native_modules() -> list[Path]:
    return [path for suffix in ("pyx", "pxd", "pxi") for path in PACKAGE.glob(f"**/*.{suffix}")]


def ours(path: Path) -> set[str]:
    return {name for name in imports_of(path) if name.split(".")[0] == "aioproducer"}


def test_native_modules_use_only_the_packages_below_them():
    modules = native_modules()
    assert {"_native.pyx", "_fast_path.pyx"} <= {path.name for path in modules}
    for path in modules:
        room = path.relative_to(PACKAGE).parts[0]
        used = {name.split(".")[1] for name in ours(path)}
        assert used <= BELOW[room], path


def test_fast_path_uses_nothing_but_the_builder_and_deliveries():
    assert ours(PACKAGE / "runtime/send/_fast_path.pyx") == FAST_PATH


def test_native_modules_of_pure_packages_have_no_loop_clock_or_thread():
    for path in native_modules():
        if path.relative_to(PACKAGE).parts[0] != "runtime":
            assert not {name.split(".")[0] for name in imports_of(path)} & _PURE_PACKAGES, path


def test_native_fast_path_has_the_members_of_the_pure_one():
    members = set(vars(_fast_path_py.FastPath))
    if fast_path.FAST_PATH_IMPLEMENTATION == "native":
        members |= _attributes_of_the_pure_one()
    assert {"append", "delivery", "close"} <= public(members) <= public(dir(fast_path.FastPath))


def _attributes_of_the_pure_one() -> set[str]:
    tree = ast.parse(Path(_fast_path_py.__file__).read_text("utf-8"))
    pure = next(
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "FastPath"
    )
    return {
        node.attr
        for node in ast.walk(pure)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}
