"""Functions that run around `os.fork()`, which Windows does not have."""

from __future__ import annotations

import os
from collections.abc import Callable

at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)
"""`os.register_at_fork`, without effect where processes cannot fork."""
