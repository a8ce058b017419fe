"""Consume, transform, produce, exactly once, by a process that is killed again and again.

Owns: the lives of the process (`support.transactions.copier`), and the verdict. Not here:
other scenarios.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from aioproducer import Producer
from support.clusters import unique_topic
from support.confluent import read_all_confluent
from support.faults.ground import PARTITIONS, FaultGround
from support.foreign import ForeignRecord
from support.transactions import copier

_TESTS = Path(__file__).parents[2]
_KILLS = 25
_FEWEST, _MOST = 5, 30
"""Transactions in one life."""
_UNDER_WAY_S = 0.03
_WHOLE_S = 300.0


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The outcome of the records.

    Attributes:
        transactions: Those that were reported to the program as committed.
        kills: Of the program, by `kill -9`.
        other_ends: How often it ended by itself, with an error.
        missing: Inputs without an output.
        duplicated: Outputs beyond the first of an input.
        reordered: Partitions whose outputs are in another order than their inputs.
    """

    inputs: int
    transactions: int
    kills: int
    other_ends: int
    missing: int
    duplicated: int
    reordered: int

    @property
    def violations(self) -> dict[str, int]:
        """The broken guarantees of exactly once by name; empty when there are none."""
        names = ("missing", "duplicated", "reordered")
        return {name: count for name in names if (count := getattr(self, name))}


async def run_pipeline(ground: FaultGround, transactions: int, seed: int = 1) -> PipelineResult:
    """Let the pipeline copy enough records for so many transactions, and compare the topics."""
    source, target = unique_topic(), unique_topic()
    for topic in (source, target):
        await ground.create_topic(topic)
        await ground.wait_in_sync(topic)
    inputs = transactions * copier.CHUNK
    await _fill(ground, source, inputs)
    lives = _Lives(ground, source, target, random.Random(seed))
    async with asyncio.timeout(_WHOLE_S):
        await lives.live()
    bootstrap = ground.bootstrap_servers
    read = [await read_all_confluent(bootstrap, topic) for topic in (source, target)]
    wanted, found = (_by_partition(records) for records in read)
    for topic in (source, target):
        await ground.delete_topic(topic)
    return PipelineResult(
        inputs,
        lives.transactions,
        lives.kills,
        lives.other_ends,
        missing=sum(len(set(wanted[p]) - set(found[p])) for p in wanted),
        duplicated=sum(len(values) - len(set(values)) for values in found.values()),
        reordered=sum(list(dict.fromkeys(found[p])) != wanted[p] for p in wanted),
    )


async def _fill(ground: FaultGround, topic: str, inputs: int) -> None:
    async with Producer(bootstrap_servers=ground.bootstrap_servers) as producer:
        for number in range(inputs):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        if await producer.flush():
            raise RuntimeError("the source could not be filled")


def _by_partition(records: Iterable[ForeignRecord]) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.offset):
        found[record.partition].append(record.value)
    return found


class _Lives:
    """The program from start to kill, again and again, and at last to its end."""

    def __init__(self, ground: FaultGround, source: str, target: str, rng: random.Random) -> None:
        self._ground = ground
        self._command = [
            sys.executable,
            "-m",
            copier.__name__,
            ground.bootstrap_servers,
            source,
            target,
        ]
        self._target = target
        self._rng = rng
        self.transactions = 0
        self.kills = 0
        self.other_ends = 0

    async def live(self) -> None:
        finished = False
        while not finished:
            last = self.kills >= _KILLS
            finished = await self._one(None if last else self._rng.randint(_FEWEST, _MOST))

    async def _one(self, most: int | None) -> bool:
        """One life of at most so many transactions; says whether it came to the end."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            cwd=_TESTS.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            done = 0
            while process.stdout is not None and await process.stdout.readline():
                done += 1
                self.transactions += 1
                if done == most:
                    await asyncio.sleep(self._rng.uniform(0, _UNDER_WAY_S))
                    break
        finally:
            ended = process.returncode is not None or (most is None or done < most)
            if not ended:
                self.kills += 1
                process.kill()
            code = await process.wait()
        if ended and code != 0:
            self.other_ends += 1
        return code == 0
