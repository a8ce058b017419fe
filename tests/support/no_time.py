"""pandas' `NaT`, without pandas."""

from __future__ import annotations

from datetime import datetime


class NoTime(datetime):
    """The time that pandas has for none."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        return "NaT"
