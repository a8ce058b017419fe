"""The changes that a mutant consists of, as a table over the syntax tree."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

LARGEST_CONSTANT = 16
"""Larger numbers are sizes and versions; one more or less is no boundary."""

LOGGERS = {"_logger", "logger", "_log", "log", "warnings"}
SILENT_FUNCTIONS = {"__repr__", "__str__"}

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}


class Site(NamedTuple):
    """A node, where it is attached, and the lines whose tests judge it."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    statement: ast.stmt
    function: str
    lines: range | None
    """None: the statement runs at import; all tests of the module judge it."""

    def put(self, node: ast.AST) -> None:
        """Attach another node in this place."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


class Change(NamedTuple):
    """One mutant of a module."""

    number: int
    operator: str
    line: int
    function: str
    """The classes and functions around it, such as `Sender.drain`; empty in the module itself."""
    before: str
    after: str
    lines: range | None


def _swapped(node: ast.AST) -> Iterator[ast.AST]:
    """Comparisons, arithmetic, and/or, break/continue."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            if type(operator) in _SWAPS:
                new = copy.deepcopy(node)
                new.ops[i] = _SWAPS[type(operator)]()  # type: ignore[call-overload]
                yield new
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        if type(node.op) in _SWAPS and not _is_text(node):
            new = copy.deepcopy(node)
            new.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
            yield new
    elif isinstance(node, ast.Break | ast.Continue):
        yield _SWAPS[type(node)]()


def _is_text(node: ast.AST) -> bool:
    operands = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in operands
    )


def _negated(node: ast.AST) -> Iterator[ast.AST]:
    """`not x` becomes `x`, a condition its contrary."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and not (
        isinstance(node.test, ast.Constant)
        or (isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not))
    ):
        new = copy.deepcopy(node)
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new


def _constants(node: ast.AST) -> Iterator[ast.AST]:
    """A small number is one more and one less, True is False; defaults are among them."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float) and abs(node.value) <= LARGEST_CONSTANT:
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)


def _returns_none(node: ast.AST) -> Iterator[ast.AST]:
    """False, zero and the like are left to the other operators: None is as false."""
    value = node.value if isinstance(node, ast.Return) else None
    if value is not None and not (isinstance(value, ast.Constant) and not value.value):
        yield ast.Return(ast.Constant(None))


def _removed(node: ast.AST) -> Iterator[ast.AST]:
    """A call, a raise, or what is stored in an object; a missing local name shows by itself."""
    if isinstance(node, ast.Raise | ast.AugAssign | ast.Delete):
        yield ast.Pass()
    elif isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Call | ast.Await):
            yield ast.Pass()
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            yield ast.Pass()


OPERATORS: dict[str, Callable[[ast.AST], Iterator[ast.AST]]] = {
    "swapped": _swapped,
    "negated": _negated,
    "constant": _constants,
    "returns None": _returns_none,
    "removed": _removed,
}


def changes_of(source: str) -> list[Change]:
    """Return every mutant of a module, numbered in a fixed order."""
    return [change for change, _, _ in _changes(ast.parse(source))]


def mutated(source: str, number: int) -> ast.Module:
    """Return a module with one change; its lines keep their numbers."""
    tree = ast.parse(source)
    for change, site, new in _changes(tree):
        if change.number == number:
            site.put(ast.copy_location(new, site.node))
            return ast.fix_missing_locations(tree)
    raise ValueError(f"no such mutant: {number}")


def _changes(tree: ast.Module) -> Iterator[tuple[Change, Site, ast.AST]]:
    number = 0
    for site in _sites(tree):
        for name, operator in OPERATORS.items():
            for new in operator(site.node):
                before = _shown(site.statement)
                site.put(new)
                after = _shown(new if site.node is site.statement else site.statement)
                site.put(site.node)
                line: int = site.node.lineno  # type: ignore[attr-defined]
                where = site.function
                yield Change(number, name, line, where, before, after, site.lines), site, new
                number += 1


def _shown(statement: ast.AST) -> str:
    """A statement's text, of a compound one its head."""
    shown = copy.copy(statement)
    for block in ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list"):
        if isinstance(getattr(shown, block, None), list):
            setattr(shown, block, [])
    if isinstance(shown, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        shown.body = [ast.Expr(ast.Constant(...))]
    return " ".join(ast.unparse(shown).removesuffix("\n    ...").split())


def _sites(tree: ast.Module) -> Iterator[Site]:
    for index, statement in enumerate(tree.body):
        yield from _visit(Site(statement, tree, "body", index, statement, "", None))


def _visit(site: Site) -> Iterator[Site]:
    node = site.node
    if _has_no_effect(node):
        return
    if isinstance(node, ast.stmt | ast.expr) and not _is_type(site):
        yield site
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        if isinstance(node, ast.Raise) and field == "exc":
            continue  # the text of an error
        children = enumerate(value) if isinstance(value, list) else ((None, value),)
        for index, child in children:
            if isinstance(child, ast.AST):
                yield from _visit(_below(site, field, index, child))


def _below(site: Site, field: str, index: int | None, child: ast.AST) -> Site:
    """The site of a child: a function's own lines judge what is in it, and its defaults."""
    function = site.node if isinstance(site.node, ast.FunctionDef | ast.AsyncFunctionDef) else None
    lines = site.lines
    if function and field == "args":
        lines = range(function.body[0].lineno, (function.end_lineno or 0) + 1)
    statement = child if isinstance(child, ast.stmt) else site.statement
    within = site.function
    if isinstance(site.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        within = f"{within}.{site.node.name}".removeprefix(".")
    if isinstance(child, ast.stmt) and (lines is not None or (function and field == "body")):
        lines = range(child.lineno, _head_end(child) + 1)
    return Site(child, site.node, field, index, statement, within, lines)


def _head_end(statement: ast.stmt) -> int:
    """The last line of a statement, of a compound one that of its head."""
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or 0


def _is_type(site: Site) -> bool:
    """Return whether this is a union in a type alias: `int | None` where nothing is computed."""
    node = site.node
    return site.lines is None and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def _has_no_effect(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name in SILENT_FUNCTIONS or any(
            "overload" in ast.unparse(decorator) for decorator in node.decorator_list
        )
    if isinstance(node, ast.ClassDef):
        return any("Protocol" in ast.unparse(base) for base in node.bases)
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        return isinstance(function, ast.Attribute) and ast.unparse(function.value) in LOGGERS
    if isinstance(node, ast.Assign):
        return any(ast.unparse(target).startswith("__") for target in node.targets)
    return False
