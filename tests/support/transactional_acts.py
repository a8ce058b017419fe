"""Acts of a transactional producer on virtual time, and what a reader of the log is shown.

Owns: starting and closing the producer of an act, reading committed records off the simulated log.
Not here: what is tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aioproducer.records.reader import RecordBatch
from aioproducer.testing.world.loop import VirtualLoop
from support.stage import Stage, play


def perform(
    act: Callable[[Stage], Awaitable[None]],
    level: int = 2,
    *,
    loop: VirtualLoop | None = None,
    **options: object,
) -> None:
    """Plays an act with a started transactional producer."""

    async def started(stage: Stage) -> None:
        stage.world.cluster.set_transaction_version(level)
        await stage.producer.start()
        try:
            await act(stage)
        finally:
            await stage.producer.close(5)

    play(started, loop=loop, transactional_id="tx", **options)


def slow_markers(stage: Stage, delay_ms: int) -> None:
    """Each step after the decision on a transaction's end takes so long from now on."""
    cluster = stage.world.cluster
    cluster.settings = replace(cluster.settings, marker_delay_ms=delay_ms)


def committed(stage: Stage, topic: str = "t", partition: int = 0) -> list[bytes]:
    """Return the values that a read_committed reader of the log gets."""
    shown: list[bytes] = []
    pending: dict[int, list[bytes]] = {}
    for batch in stage.batches(topic, partition):
        if batch.is_control:
            values = pending.pop(batch.producer_id, [])
            if is_commit(batch):
                shown += values
        else:
            values = [bytes(record.value or b"") for record in batch.records()]
            pending.setdefault(batch.producer_id, []).extend(values)
    assert not pending, "a transaction was left open"
    return shown


def is_commit(batch: RecordBatch) -> bool:
    """Return whether a control batch is a COMMIT marker, not an ABORT one."""
    (marker,) = batch.records()
    return bytes(marker.key or b"")[2:4] == b"\0\1"


async def settled(stage: Stage) -> None:
    """Until the markers are written."""
    await asyncio.sleep(1)
