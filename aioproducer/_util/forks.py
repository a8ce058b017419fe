"""Functions that run around `os.fork()`, which Windows does not have."""

from __future__ import annotations

import os
from collections.abc import Callable


def _nothing() -> None:
    """Do nothing."""


def at_fork(
    *,
    before: Callable[[], object] = _nothing,
    after_in_parent: Callable[[], object] = _nothing,
    after_in_child: Callable[[], object],
) -> None:
    """Do `os.register_at_fork` where processes can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )
