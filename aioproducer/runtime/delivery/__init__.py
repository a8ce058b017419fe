"""Delivery: one record's share in the outcome of its batch, in the form this process uses.

Owns: the choice between the native form (`_delivery.pyx`) and its pure-Python fallback
(`_delivery_py.py`, which documents a delivery) or `core.sending.produce_answers`, along with that
of the fast path. Not here: anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.runtime.send.fast_path import LANE_IMPLEMENTATION

if TYPE_CHECKING or LANE_IMPLEMENTATION == "pure":
    from aioproducer.core.sending.produce_answers import usual_outcome
    from aioproducer.runtime.delivery._delivery_py import Delivery, WakeUps
else:
    from aioproducer.runtime.delivery._delivery import Delivery, WakeUps, usual_outcome

__all__ = ["Delivery", "WakeUps", "usual_outcome"]
