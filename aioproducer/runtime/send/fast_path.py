"""The fast path of `send()`: `_fast_path.pyx` (native) or `_fast_path_py.py` (pure Python)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.runtime.delivery import FAST_PATH_IMPLEMENTATION

__all__ = ["FAST_PATH_IMPLEMENTATION", "FastPath", "install_native_send", "wall_clock_ms"]

if TYPE_CHECKING or FAST_PATH_IMPLEMENTATION == "native":
    from aioproducer.runtime.send._fast_path import FastPath, install_native_send, wall_clock_ms
else:
    from aioproducer.runtime.send._fast_path_py import FastPath, install_native_send, wall_clock_ms
