"""`Delivery`, the outcome of one record: native or pure Python, as the fast path is.

`_delivery.pyx` is native, `_delivery_py.py`, which documents a delivery, pure Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._util.implementation import implementation_with
from aioproducer.records import IMPLEMENTATION

FAST_PATH_IMPLEMENTATION: str = implementation_with(
    IMPLEMENTATION, "aioproducer.runtime.send._fast_path"
)
"""`native` or `pure`: the implementation of deliveries and of the fast path, which makes them."""

if TYPE_CHECKING or FAST_PATH_IMPLEMENTATION == "pure":
    from aioproducer.runtime.delivery._delivery_py import Delivery, WakeUps
else:
    from aioproducer.runtime.delivery._delivery import Delivery, WakeUps

__all__ = ["FAST_PATH_IMPLEMENTATION", "Delivery", "WakeUps"]
