"""Causes and contexts of exceptions, which may be a cycle: `raise error from error`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

_E = TypeVar("_E", bound=BaseException)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause, the cause of that and so on, each once."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def root_of(error: _E, wrappers: tuple[type[_E], ...], base: type[_E]) -> _E:
    """Return the exception that wrappers were raised from, or the last one that is a `base`."""
    root = error
    for each in causes_of(error):
        if not isinstance(each, base):
            break
        root = each
        if not isinstance(each, wrappers):
            break
    return root


def chain_of(error: BaseException, outer: BaseException | None = None) -> Iterator[BaseException]:
    """Yield an exception, its causes, contexts and group members, each once, without `outer`."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or each is outer or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        yield each
