"""Why something has not happened, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.errors import advice as _advice


class Reason(NamedTuple):
    """A cause in words, empty where there is none, and the advice that goes with it."""

    text: str = ""
    advice: str | None = None


NO_REASON = Reason()


def all_of(*reasons: Reason) -> Reason:
    """Several reasons as one."""
    texts = (reason.text for reason in reasons)
    advices = (reason.advice for reason in reasons)
    return Reason("; ".join(filter(None, texts)), _advice.joined(*advices))
