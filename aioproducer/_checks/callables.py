"""Checks of a user's functions and objects before they are called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial

from aioproducer.errors import ConfigError


def makes_coroutines(function: object) -> bool:
    """Return whether a call only makes a coroutine that is not awaited: no use as a callback."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not whether it is callable: how
    )


def parameters_of(function: object) -> list[str]:
    """Return the names of a callable's parameters; none if they are not known."""
    if not callable(function):
        return []
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def refuse_coroutine_function(name: str, function: object) -> None:
    """Raise `ConfigError` if a callback is a coroutine function."""
    if makes_coroutines(function):
        raise ConfigError(
            f"{name} must be a plain function, not the coroutine function {function!r}",
            advice="what it returns is not awaited; a callback may start a task",
        )


def refuse_coroutines(hook: object, names: Iterable[str]) -> None:
    """Raise `ConfigError` if one of these methods of an object is a coroutine function."""
    for name in names:
        if makes_coroutines(getattr(hook, name, None)):
            raise ConfigError(
                f"{name} of {hook!r} is a coroutine function, which would not be awaited"
            )
