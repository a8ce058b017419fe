"""Causes of a delay, with advice for the user."""

from __future__ import annotations

from typing import NamedTuple

from aioproducer.errors import advice as _advice


class Reason(NamedTuple):
    """A cause as text (empty if there is none) and the advice for it."""

    text: str = ""
    advice: str | None = None


NO_REASON = Reason()


def all_of(*reasons: Reason) -> Reason:
    """Join several reasons into one."""
    texts = (reason.text for reason in reasons)
    advices = (reason.advice for reason in reasons)
    return Reason("; ".join(filter(None, texts)), _advice.joined(*advices))
