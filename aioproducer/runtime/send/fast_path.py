"""The fast path of `send()`: the choice of its implementation.

`_fast_path.pyx` (native) and `_fast_path_py.py` (pure Python) implement it; `AIOPRODUCER_IMPL`
chooses, as for the native core. `fast_path_protocol.py` has the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.records import IMPLEMENTATION

if TYPE_CHECKING:
    from aioproducer.runtime.send.fast_path_protocol import FastPathProtocol

__all__ = ["FAST_PATH_IMPLEMENTATION", "FastPath", "install_native_send", "wall_clock_ms"]

FAST_PATH_IMPLEMENTATION: str = IMPLEMENTATION
"""Implementation that this process uses: `native` or `pure`."""

if not TYPE_CHECKING and IMPLEMENTATION == "native":
    try:
        from aioproducer.runtime.send import _fast_path  # noqa: F401
    except ImportError:
        # Each native module is compiled separately; every combination with pure Python works.
        FAST_PATH_IMPLEMENTATION = "pure"

if TYPE_CHECKING or FAST_PATH_IMPLEMENTATION == "native":
    from aioproducer.runtime.send._fast_path import FastPath, install_native_send, wall_clock_ms
else:
    from aioproducer.runtime.send._fast_path_py import FastPath, install_native_send, wall_clock_ms

if TYPE_CHECKING:
    from aioproducer.runtime.send import _fast_path_py

    _FAST_PATHS: tuple[type[FastPathProtocol], ...] = (FastPath, _fast_path_py.FastPath)
