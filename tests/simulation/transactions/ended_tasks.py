"""A task of a producer that is cancelled from outside while calls wait in a healthy cluster.

Owns: which calls and which task, and what the calls must do. Not here: when a run makes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aioproducer.errors import KafkaError
from aioproducer.types import TopicPartition

if TYPE_CHECKING:
    import random

    from aioproducer.testing.world.producer import SimProducer
    from simulation.ledger import Ledger

_MOMENTS_S = (0.0, 0.001, 0.01)
_AT_ONCE_S = 0.1
_ABSENT_TOPIC = "zz-absent"


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
