"""Idempotence where it is not asked for, as confluent-kafka and kafka-python read their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aioproducer.config.rules import MAX_IN_FLIGHT_IDEMPOTENT


def excludes_idempotence(options: Mapping[str, Any], in_flight: int | None) -> bool:
    """Return whether so many requests in flight switch idempotence off, by these options.

    This producer refuses them unless idempotence is switched off.
    """
    is_asked = options.get("enable_idempotence") is not None or options.get("transactional_id")
    return not is_asked and in_flight is not None and in_flight > MAX_IN_FLIGHT_IDEMPOTENT
