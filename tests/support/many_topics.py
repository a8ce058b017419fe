"""The work and memory of one producer for each of many topics, as a program that prints JSON.

Run it with `AIOPRODUCER_IMPL` set to choose an implementation. Time is virtual and nothing is left
to chance, so that the same code gives the same figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import aioproducer
from aioproducer import Producer
from aioproducer.core.metadata.cluster import Cluster
from aioproducer.testing import run_virtual
from aioproducer.testing.virtual import VirtualKafka
from aioproducer.types import TopicMetadata

FEW, MANY = 200, 2_000
_NEW = 5
_AFTERWARDS_S = 1_000.0
_PACKAGES = ("core", "net", "records", "runtime", "wire")


async def send_to(producer: Producer, numbers: range) -> None:
    """Sends one record to each topic and awaits it."""
    for number in numbers:
        await producer.send_and_wait(f"topic-{number}", b"x")


class Instructions:
    """Counts the Python instructions of the producer's own modules."""

    def __init__(self) -> None:
        self.count = 0
        package = Path(aioproducer.__file__).parent
        self._ours = tuple(f"{package / room}/" for room in _PACKAGES)

    def __enter__(self) -> Instructions:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._ours):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._on_instruction

    def _on_instruction(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += event == "opcode"
        return self._on_instruction


async def _work_per_topic(kafka: VirtualKafka, producer: Producer, known: int) -> dict[str, float]:
    """Instructions for a new topic, and the most bytes that are held for a moment meanwhile.

    The leader of one is not ready, as it often is for a topic that was just created.
    """
    await send_to(producer, range(known, known + 1))
    slow = f"topic-{known + 1}"
    kafka.faults.next("produce", topic=slow).answers("NOT_LEADER_OR_FOLLOWER")
    with Instructions() as instructions:
        await send_to(producer, range(known + 1, known + 1 + _NEW))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    await send_to(producer, range(known + 1 + _NEW, known + 1 + 2 * _NEW))
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return {"instructions": instructions.count / _NEW, "peak_bytes": peak}


async def work(kafka: VirtualKafka) -> dict[str, Any]:
    """Return the cost of a new topic among few and among many, and what is allocated then."""
    async with kafka.producer() as producer:
        await send_to(producer, range(FEW))
        few = await _work_per_topic(kafka, producer, FEW)
        await send_to(producer, range(FEW + 1 + 2 * _NEW, MANY))
        many = await _work_per_topic(kafka, producer, MANY)
        gc.collect()
        kinds = Counter(type(each) for each in gc.get_objects())
        return {
            "few": few,
            "many": many,
            "clusters": kinds[Cluster],
            "descriptions": kinds[TopicMetadata] / (MANY + 1 + 2 * _NEW),
        }


async def memory(kafka: VirtualKafka) -> dict[str, float]:
    """Return the bytes per topic that are freed with the producer; memory of others stays."""
    held = []
    for count in (1, MANY):
        producer = kafka.producer()
        await producer.start()
        await send_to(producer, range(count))
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await producer.close()
        del producer
        # Its cancelled timers are dropped when they are due; the network keeps its connections.
        await asyncio.sleep(_AFTERWARDS_S)
        kafka.world.network.connections.clear()
        gc.collect()
        held.append(before - tracemalloc.get_traced_memory()[0])
    return {"bytes_per_topic": (held[1] - held[0]) / (MANY - 1)}


def main() -> None:
    topics = {f"topic-{number}": 1 for number in range(MANY + 1 + 2 * _NEW)}
    figures = run_virtual(work, topics=topics)
    tracemalloc.start()
    figures |= run_virtual(memory, topics=topics)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
