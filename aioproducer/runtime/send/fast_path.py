"""The fast path of `send()`: `_fast_path.pyx` (native) or `_fast_path_py.py` (pure Python)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._util.implementation import implementation_with
from aioproducer.records import IMPLEMENTATION

__all__ = ["FAST_PATH_IMPLEMENTATION", "FastPath", "install_native_send", "wall_clock_ms"]

FAST_PATH_IMPLEMENTATION: str = IMPLEMENTATION
"""`native` or `pure`: which implementation this process uses. Both work with any builder."""

# Assigned twice: `_fast_path` imports `runtime.delivery`, which reads the name meanwhile.
FAST_PATH_IMPLEMENTATION = implementation_with(
    IMPLEMENTATION, "aioproducer.runtime.send._fast_path"
)

if TYPE_CHECKING or FAST_PATH_IMPLEMENTATION == "native":
    from aioproducer.runtime.send._fast_path import FastPath, install_native_send, wall_clock_ms
else:
    from aioproducer.runtime.send._fast_path_py import FastPath, install_native_send, wall_clock_ms
