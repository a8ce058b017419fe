"""Reads a producer's metrics from the thread of an exporter.

Invariants: metrics are read in the loop that counts them, so that nothing changes meanwhile; a loop
that does not answer in time is given up for this once; nothing here keeps a producer alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from aioproducer.metrics import Metric

TIMEOUT_S = 5.0
"""How long an exporter waits for a busy loop."""


class Measured(Protocol):
    """The part of a producer that an exporter needs."""

    @property
    def client_id(self) -> str:
        """The producer's name, by which its metrics differ from others'."""
        ...

    def all_metrics(self) -> Sequence[Metric]:
        """Return every metric with its value now; called in the loop."""
        ...

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The producer's loop, None before the start."""
        ...


def read(producer: Measured) -> Sequence[Metric]:
    """Return every metric, or nothing from a loop that is closed or too busy."""
    loop = producer.event_loop
    if loop is None or asyncio._get_running_loop() is loop or not loop.is_running():
        return producer.all_metrics()
    answer: Future[Sequence[Metric]] = Future()

    def collect() -> None:
        if answer.set_running_or_notify_cancel():
            try:
                answer.set_result(producer.all_metrics())
            except Exception as error:
                answer.set_exception(error)

    with suppress(RuntimeError, TimeoutError):  # the loop was closed meanwhile, or is too busy
        loop.call_soon_threadsafe(collect)
        return answer.result(TIMEOUT_S)
    answer.cancel()
    return ()
