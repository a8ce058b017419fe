"""Times as other libraries have them."""

from __future__ import annotations

from datetime import datetime


def is_no_time(value: object) -> bool:
    """Return whether this is `NaT`: the time or duration that pandas has for none."""
    return isinstance(value, datetime) and value != value  # noqa: PLR0124
