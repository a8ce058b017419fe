"""Checks of a user's functions and objects before they are called.

Owns: distinguishing functions from coroutine functions. Not here: their purpose.
"""

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


def first_parameter(function: object) -> str | None:
    """Return the name of a callable's first parameter; None without one, or if it is not known."""
    if not callable(function):
        return None
    try:
        return next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return None


def refuse_coroutines(hook: object, names: Iterable[str]) -> None:
    """Check those of an object's methods that it has.

    Raises:
        ConfigError: one is a coroutine function.
    """
    for name in names:
        if makes_coroutines(getattr(hook, name, None)):
            raise ConfigError(
                f"{name} of {hook!r} is a coroutine function, which would not be awaited"
            )
