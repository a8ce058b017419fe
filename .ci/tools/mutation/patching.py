"""A mutant in a process that has imported the module: its functions get the changed code.

Only what is inside functions can be changed this way. Defaults of arguments, class bodies and what
a module does when it is imported need a process that imports the changed module: see `trial`.
"""

from __future__ import annotations

import gc
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from tools.mutation.operators import mutated

Key = tuple[str, int]
"""Qualified name and first line of a function."""


def apply(file: Path, number: int) -> bool:
    """Change the module in this process; return False if that cannot be done."""
    source = file.read_text(encoding="utf-8")
    before = compile(source, str(file), "exec")
    after = compile(mutated(source, number), str(file), "exec")
    if not _is_same_outside(before, after):
        return False
    importlib.import_module(_module_name(file))  # some are imported once they are used
    changed = dict(_changed(before, after))
    gc.unfreeze()  # frozen objects are not listed
    functions = [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType
        and each.__code__.co_filename == str(file)
        and _key(each.__code__) in changed
    ]
    found = [(each, changed[_key(each.__code__)]) for each in functions]
    if not found or any(len(new.co_freevars) != len(each.__closure__ or ()) for each, new in found):
        return False
    for function, code in found:
        function.__code__ = code
    return True


def _module_name(file: Path) -> str:
    names = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names)


def _key(code: CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    consts = tuple(
        (type(each), repr(each)) for each in code.co_consts if not isinstance(each, CodeType)
    )
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


def _is_same_outside(before: CodeType, after: CodeType) -> bool:
    """Return whether a module or class body does the same, apart from its functions."""
    if _is_function(before):
        return True
    inner = _inner(before), _inner(after)
    return (
        _own(before) == _own(after)
        and len(inner[0]) == len(inner[1])
        and all(map(_is_same_outside, *inner))
    )


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[Key, CodeType]]:
    """The functions whose code differs, or that of a function within them."""
    if before == after:
        return
    if _is_function(before):
        yield _key(before), after
    for pair in zip(_inner(before), _inner(after), strict=False):
        yield from _changed(*pair)
