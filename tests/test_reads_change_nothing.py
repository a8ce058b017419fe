"""Reads never change state: properties and the methods for `len()`, `bool()` and the like.

Read from the syntax trees: an assignment to an attribute or item of `self`, a call that changes a
container of `self`, and the same in the methods of the class that are called on the way.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioproducer"

_READS = frozenset(
    f"__{name}__"
    for name in (
        "len", "bool", "iter", "repr", "str", "format", "contains", "eq", "ne", "lt", "le", "gt",
        "ge", "hash", "getitem", "getattr", "sizeof", "length_hint", "reversed", "int", "float",
        "index", "bytes", "dir",
    )
)  # fmt: skip
_CHANGES = frozenset(
    [
        "append",
        "appendleft",
        "add",
        "pop",
        "popleft",
        "popitem",
        "clear",
        "update",
        "remove",
        "discard",
        "extend",
        "extendleft",
        "insert",
        "setdefault",
        "sort",
        "reverse",
        "rotate",
        "move_to_end",
        "set_result",
        "set_exception",
        "__setitem__",
        "__setattr__",
        "__delitem__",
        "__delattr__",
    ]
)
_PROPERTIES = frozenset({"property", "getter"})

Method = ast.FunctionDef | ast.AsyncFunctionDef


def changes(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, class with method, and code of each change of state in a read."""
    for found in ast.walk(ast.parse(source)):
        if isinstance(found, ast.ClassDef):
            methods = {each.name: each for each in found.body if isinstance(each, Method)}
            for method in found.body:
                if isinstance(method, Method) and _is_read(method):
                    for node in _changes_of(method, methods, {method.name}):
                        yield node.lineno, f"{found.name}.{method.name}", ast.unparse(node)


def _is_read(method: Method) -> bool:
    names = {ast.unparse(each).rpartition(".")[2] for each in method.decorator_list}
    return method.name in _READS or bool(names & _PROPERTIES)


def _changes_of(
    method: Method, methods: dict[str, Method], seen: set[str]
) -> Iterator[ast.stmt | ast.expr]:
    """Yield what changes the first parameter, here and in the methods that are called on it."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    if not arguments:
        return
    me = arguments[0].arg
    for node in _run_by(method):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target, value=ast.expr()):
                targets = [target]
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[first, *_]):
                if _belongs_to(first, me):
                    yield node
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)) if owner == me:
                if name in methods and name not in seen:
                    seen.add(name)
                    yield from _changes_of(methods[name], methods, seen)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _CHANGES:
                is_of_object = isinstance(owner, ast.Name) and owner.id == "object"
                if is_of_object or (_belongs_to(owner, me) and not isinstance(owner, ast.Name)):
                    yield node
        for target in targets:
            for part in ast.walk(target):
                is_place = isinstance(part, ast.Attribute | ast.Subscript)
                if is_place and isinstance(part.ctx, ast.Store | ast.Del) and _belongs_to(part, me):
                    yield node


def _run_by(method: Method) -> Iterator[ast.AST]:
    """Yield the nodes of a method without those of functions that it only defines."""
    waiting: list[ast.AST] = list(method.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Method | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _belongs_to(node: ast.expr, me: str) -> bool:
    """Return whether an expression is an attribute or item of the object, or the object."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name) and node.id == me


@pytest.mark.parametrize(
    "body",
    [
        "self._found = 1",
        "self.count += 1",
        "self._cache[1] = 2",
        "del self._x",
        "self._a, b = 1, 2",
        "self._items.append(1)",
        "self._by_name.setdefault('a', [])",
        "setattr(self, 'x', 1)",
        "object.__setattr__(self, 'x', 1)",
        "self._make()",
    ],
)
@pytest.mark.parametrize("head", ["@property\n    def size(self):", "def __len__(self):"])
def test_a_read_that_changes_state_is_found(head: str, body: str) -> None:
    source = f"class A:\n    {head}\n        {body}\n    def _make(self):\n        self.made = 1\n"
    assert len(list(changes(source))) == 1


@pytest.mark.parametrize("body", ["found = []; found.append(1)", "return self._items.count(1)"])
def test_what_a_read_makes_for_itself_is_no_change(body: str) -> None:
    assert not list(changes(f"class A:\n    @property\n    def size(self):\n        {body}\n"))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_read_changes_state(path: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {where}: {code}"
        for line, where, code in changes(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
