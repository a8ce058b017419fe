"""Delivery: one record's share in the outcome of its batch, in the form this process uses.

Owns: the choice between the native form (`_delivery.pyx`) and its twin (`_puredelivery.py`, which
says what a delivery is) or `core.produce_answers`, along with that of the fast lane. Must not know:
anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.runtime.lane import LANE_IMPLEMENTATION

if TYPE_CHECKING or LANE_IMPLEMENTATION == "pure":
    from aioproducer.core.produce_answers import usual_outcome
    from aioproducer.runtime._puredelivery import Delivery, WakeUps
else:
    from aioproducer.runtime._delivery import Delivery, WakeUps, usual_outcome

__all__ = ["Delivery", "WakeUps", "usual_outcome"]
