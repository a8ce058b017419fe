"""What can be told of a user's function before it is called.

Owns: telling functions from coroutine functions. Must not know: what the function is for.
"""

from __future__ import annotations

import inspect


def makes_coroutines(function: object) -> bool:
    """Whether calling it only makes a coroutine, which nobody would await: no use as a callback."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not whether it is callable: how
    )
