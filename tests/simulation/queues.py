"""Rules for what waits: serialized records, calls for metadata, the end of a transaction.

Owns: whether each may wait where it is, at an idle moment. Not here: for how long, see
`simulation.waiting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aioproducer.core.transactions.rules import Rpc

if TYPE_CHECKING:
    from aioproducer.runtime.engine import ProducerEngine


def serialized_records_wait(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield topics whose first serialized record waits, and calls that wait after the close."""
    serializing = engine.appender.serializing
    for topic, queue in serializing._topics.items():
        turn = queue.waiting[0].turn if queue.waiting else None
        if turn is not None and not turn.done():
            yield f"a serialized record of {topic} waits, and none is before it"
        bounds = [place.timeout for place in queue.waiting if serializing._error is not None]
        if any(each is not None and not each.expired() for each in bounds):
            yield f"a call waits for serializers of {topic}, and the producer is closed"


def keeps_ended_waits(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield topics whose metadata are requested for calls that have ended."""
    for topic, waiters in engine.metadata_task.waits._waiting.items():
        if any(each.future.done() for each in waiters):
            yield f"metadata of {topic} are requested for a call that has ended"


def ends_with_batches_out(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield transactions that are ended, or given to another process, while batches are sent.

    A late batch would begin another transaction, which nothing ends (V1).
    """
    if engine.transactions is None or not engine.accumulator.pinned:
        return
    request = engine.transactions._coordinator_session._in_flight
    manager = engine.transactions.manager
    if manager.is_prepared or (request is not None and request.rpc is Rpc.END):
        yield f"a transaction is {manager.state.value}, and batches of it are sent"
