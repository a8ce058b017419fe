"""Producers that begin late or end within a transaction in a healthy cluster.

They end by a cancelled task, or a close.

Owns: which calls and which task, and what the calls must do. Not here: when a run makes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError
from aioproducer.testing.faults import FaultScript
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    import random

    from aioproducer.testing.world.faults import World
    from aioproducer.testing.world.producer import SimProducer
    from simulation.ledger import Ledger
    from simulation.transactions.outsider import SimAdmin

_MOMENTS_S = (0.0, 0.001, 0.01)
_AT_ONCE_S, _LONGER = 0.1, 1.5
_ABSENT_TOPIC = "zz-absent"


async def begin_after_a_late_start(producer: SimProducer, world: World, ledger: Ledger) -> None:
    """Begin once the coordinator is there, which a start in the background has waited for."""
    faults, block_s = FaultScript(world.cluster.faults), producer.config.max_block_ms / 1000
    name = producer.config.transactional_id
    fault = faults.every("init_producer_id", topic=name).answers("COORDINATOR_LOAD_IN_PROGRESS")
    try:
        await producer.start(wait=False)
        await asyncio.sleep(_LONGER * block_s)
        faults.remove(fault)
        await asyncio.sleep(producer.config.retry_backoff_max_ms / 1000 + _LONGER)
        await producer.begin_transaction()
        await producer.abort_transaction()
    except KafkaError as error:
        ledger.unrecovered.append(f"a producer that has started in the background: {error!r}")
    await producer.close(0)


async def close_when_prepared(
    producer: SimProducer, topic: str, admin: SimAdmin, ledger: Ledger
) -> None:
    """Close a producer in the block of a prepared transaction: it stays open, the block ends."""
    block = producer.transaction()
    try:
        await producer.start()
        await block.__aenter__()
        await block.send_offsets({TopicPartition(topic, 0): 1}, f"of {producer.client_id}")
        prepared = await block.prepare()
        await producer.close()
        await block.__aexit__(None, None, None)
        async with admin:
            if not await admin.still_prepared(prepared):
                ledger.false_reports.append(f"a close has ended {prepared}")
            await admin.finish(prepared, commit=False)
    except KafkaError as error:
        ledger.false_reports.append(f"a prepared transaction, a close, and {error!r}")
        await producer.close(0)


async def end_a_task(producer: SimProducer, topic: str, rng: random.Random, ledger: Ledger) -> None:
    """Cancel one task of a transactional producer: its calls end at once, with errors."""
    try:
        await producer.start()
        await producer.begin_transaction()
    except KafkaError as error:
        ledger.unrecovered.append(f"a producer whose task is to end does not begin: {error!r}")
        await producer.close(0)
        return
    works = {
        "send": producer.send(_ABSENT_TOPIC, b"never sent", partition=0),
        "send_offsets": producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "cut"),
        "commit": producer.commit_transaction(),
    }
    calls = {asyncio.ensure_future(work): name for name, work in works.items()}
    await asyncio.sleep(rng.choice(_MOMENTS_S))
    engine = producer.engine
    ending = rng.choice((engine.sender_task, engine.metadata_task, engine.transactions))
    if ending is None or ending._task is None:
        raise RuntimeError("the producer has no such task")
    name = ending._task.get_name()
    ending._task.cancel()
    _, pending = await asyncio.wait(calls, timeout=_AT_ONCE_S)
    for call in pending:
        ledger.false_reports.append(f"{name} was cancelled, and {calls[call]} waits on")
        call.cancel()
    for ended in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(ended, Exception) and not isinstance(ended, KafkaError):
            ledger.undocumented.append(f"{name} was cancelled, and a call raises {ended!r}")
    await producer.close(0)
