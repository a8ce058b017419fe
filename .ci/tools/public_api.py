"""Writes `tests/public_api.txt`: every public name with its signature and the summary of its docs.

The interfaces of other clients are left out: they are theirs, and have tests beside them.

    PYTHONPATH=.ci python -m tools.public_api

A test compares the file with the code, so that no name, parameter or default changes unnoticed. A
change that is meant is made by running this, and shows in the diff.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aioproducer
from aioproducer.config import OPTIONS
from tools.site.api import MODULES

TARGET = Path(__file__).parents[2] / "tests" / "public_api.txt"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
MORE_MODULES = ("aioproducer.config", "aioproducer.errors", "aioproducer.types")


def lines() -> Iterator[str]:
    """The file's lines: modules, their names, and the members of classes."""
    yield "# Made by `python -m tools.public_api`."
    for name, values in _modules():
        yield f"\n[{name}]"
        for each, value in values.items():
            yield from _described(each, value)
    yield "\n[options]"
    for name, option in sorted(OPTIONS.items()):
        yield f"{name}: {option.kind.value} = {option.default!r}"


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public class and function, and the functions of the classes."""
    for name, values in _modules():
        for each, value in values.items():
            if inspect.isclass(value):
                yield f"{name}.{each}", value
                for member, found in _members(value).items():
                    function = found.fget if isinstance(found, property) else found
                    yield f"{name}.{each}.{member}", function
            elif inspect.isfunction(value):
                yield f"{name}.{each}", value


def _modules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each public module with its public names, sorted."""
    documented = {module.name for module in MODULES if "compat" not in module.name}
    for name in sorted(documented | {*MORE_MODULES}):
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        found = {each: getattr(module, each) for each in sorted(public)}
        yield (
            name,
            {
                each: value
                for each, value in found.items()
                if getattr(value, "__module__", name).startswith("aioproducer")
                and not inspect.ismodule(value)
            },
        )


def _described(name: str, value: Any, indent: str = "") -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"{indent}class {name}({bases}): {_summary(value)}"
        if issubclass(value, enum.Enum):
            yield f"{indent}  members: {', '.join(value.__members__)}"
            return
        if dataclasses.is_dataclass(value):
            yield f"{indent}  fields: {', '.join(f.name for f in dataclasses.fields(value))}"
        for member, found in sorted(_members(value).items()):
            if isinstance(found, property):
                yield f"{indent}  {member}: property: {_summary(found)}"
            else:
                yield from _described(member, found, f"{indent}  ")
    elif callable(value):
        yield f"{indent}{name}{_signature(value)}: {_summary(value)}"
    else:
        yield f"{indent}{name}: {type(value).__name__}"


def _members(value: type) -> dict[str, Any]:
    """The public calls and properties of a class that no other public class has given it."""
    found: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        is_inherited = base is not value and base.__name__ in aioproducer.__all__
        if not base.__module__.startswith("aioproducer") or is_inherited:
            continue
        for name, member in vars(base).items():
            plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            is_ours = inspect.isroutine(plain) or isinstance(plain, property)
            if is_ours and (name[0] != "_" or name == "__init__"):
                found[name] = plain
    return found


def _signature(value: Any) -> str:
    try:
        return _ADDRESS.sub("", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "(...)"


def _summary(value: Any) -> str:
    summary = (inspect.getdoc(value) or "").partition("\n")[0]
    return "" if summary.startswith("Initialize self.") else summary


def text() -> str:
    """The whole file."""
    return "\n".join(line.rstrip(": ") for line in lines()) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
