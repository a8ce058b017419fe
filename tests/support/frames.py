"""The parts of an exception that crash reporters read: text, chain, and locals of its frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

_TESTS = str(Path(__file__).parents[1])


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an exception with all its causes and contexts."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each in found:
            continue
        found.append(each)
        inner = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [other for other in (each.__cause__, each.__context__, *inner) if other]
    return found


def shown_by(error: BaseException) -> str:
    """Return everything a reporter such as Sentry or rich would show of an exception."""
    parts: list[str] = []
    for each in chain_of(error):
        parts += [str(each), repr(each), repr(each.args), repr(vars(each))]
        parts += _locals_of(each.__traceback__)
    return "\n".join(parts)


def _locals_of(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        frame = traceback.tb_frame
        # What the test itself holds is no concern of the package.
        if not frame.f_code.co_filename.startswith(_TESTS):
            for name, value in frame.f_locals.items():
                yield f"{frame.f_code.co_qualname}: {name} = {_deep(value)}"
        traceback = traceback.tb_next


def _deep(value: Any, depth: int = 6) -> str:
    """Return the repr, and that of what is inside, as reporters go into containers."""
    try:
        shown = repr(value)
    except Exception as error:
        raise AssertionError(f"repr of a {type(value).__name__} raises {error!r}") from error
    if depth and isinstance(value, Mapping):
        shown += "".join(_deep(each, depth - 1) for pair in value.items() for each in pair)
    elif depth and isinstance(value, list | tuple | set):
        shown += "".join(_deep(each, depth - 1) for each in value)
    return shown
