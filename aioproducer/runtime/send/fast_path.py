"""The fast path of `send()`: the choice of its implementation.

`_fast_path.pyx` (native) and `_fast_path_py.py` (pure Python) implement it; `AIOPRODUCER_IMPL`
chooses, as for the native core. `fast_path_protocol.py` has the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.records import IMPLEMENTATION

if TYPE_CHECKING:
    from aioproducer.runtime.send.fast_path_protocol import Lane

__all__ = ["LANE_IMPLEMENTATION", "FastLane", "shorten", "wall_clock_ms"]

LANE_IMPLEMENTATION: str = IMPLEMENTATION
"""Implementation that this process uses: `native` or `pure`."""

if not TYPE_CHECKING and IMPLEMENTATION == "native":
    try:
        from aioproducer.runtime.send import _fast_path  # noqa: F401
    except ImportError:
        # Each native module is compiled separately; every combination with pure Python works.
        LANE_IMPLEMENTATION = "pure"

if TYPE_CHECKING or LANE_IMPLEMENTATION == "native":
    from aioproducer.runtime.send._fast_path import FastLane, shorten, wall_clock_ms
else:
    from aioproducer.runtime.send._fast_path_py import FastLane, shorten, wall_clock_ms

if TYPE_CHECKING:
    from aioproducer.runtime.send import _fast_path_py

    _LANES: tuple[type[Lane], ...] = (FastLane, _fast_path_py.FastLane)
