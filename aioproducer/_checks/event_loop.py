"""The event loop of a caller, which has to be asyncio's."""

from __future__ import annotations

import asyncio

from aioproducer.errors import IllegalStateError
from aioproducer.errors.advice import ADVICE


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the loop that runs here."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalStateError(
            "no asyncio event loop runs here", advice=ADVICE["asyncio-needed"]
        ) from None
