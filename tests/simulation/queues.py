"""Rules for what waits in a queue: batches, serialized records, calls for metadata or memory.

Owns: whether each may wait where it is, at an idle moment. Not here: for how long, see
`simulation.waiting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aioproducer.core.batching.batch import NO_PARTITION
from aioproducer.core.transactions.rules import Rpc

if TYPE_CHECKING:
    from aioproducer.core.batching.batch import ProducerBatch
    from aioproducer.runtime.engine import ProducerEngine


def batches_in_the_wrong_place(engine: ProducerEngine, now: float) -> Iterator[str]:
    """Yield batches that are queued although they have their outcome, or neither queued nor sent.

    A batch without an outcome is either in the queue of its partition, or held by a request.
    """
    accumulator = engine.accumulator
    queued: set[ProducerBatch] = set()
    for partitions in accumulator._queues.values():
        for queue in partitions.values():
            queued.update(queue.batches)
    for batch in queued:
        if batch.done or batch.pins:
            yield f"a batch of {batch.topic_partition} is queued, and has been sent or has ended"
    for batch in accumulator.incomplete():
        where = batch.topic_partition
        if where.partition != NO_PARTITION and not batch.pins and batch not in queued:
            yield f"a batch of {where} is neither queued nor sent"
    for batch in accumulator.pinned:
        if batch.done and not all(part.done for part in batch.parts):
            yield f"a batch of {batch.topic_partition} has its outcome, and its parts are sent"


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
