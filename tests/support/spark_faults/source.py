"""The data source `aioproducer`, which fails and dies where it is told to.

Owns: the moments, and how a task, its process or the whole query dies. Must not know: who decides.

    task.share      how many first attempts of tasks fail, at a random moment, in a random way
    task.slow       seconds that the first attempt at partition 0 takes longer
    driver.moment   where the whole query dies, one of `deaths.MOMENTS`; at `stall`, which is
                    before the decision, it waits for a file instead
    driver.batch    in which batch; None for every one
    driver.raises   whether the commit fails there, instead of the whole query being killed
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from aioproducer.spark.decision import Decision, Part
from aioproducer.spark.ledger import Ledger
from aioproducer.spark.source import AioproducerSource, TaskMessage
from aioproducer.spark.streaming import StreamWriter
from aioproducer.spark.two_phase import TwoPhaseCommit
from aioproducer.types import PreparedTransaction
from support.spark_faults.deaths import kill_session

_PATIENCE_S = 120.0


class FaultySource(AioproducerSource):
    """`format("faulty")`: everything else is as in production."""

    def __init__(self, options: Any) -> None:
        self._faults: dict[str, Any] = json.loads(options.get("faults", "{}"))
        super().__init__({key: value for key, value in options.items() if key != "faults"})

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        writer = super().streamWriter(schema, overwrite)
        return FaultyWriter(writer._plan, self._faults)


class FaultyWriter(StreamWriter):
    """Dies where it is told to."""

    def __init__(self, plan: Any, faults: dict[str, Any]) -> None:
        super().__init__(plan)
        self._faults = faults

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context = TaskContext.get()
        chance = random.SystemRandom()
        if context.attemptNumber() == context.partitionId() == 0 and "task.slow" in self._faults:
            _note(self._faults, "slow")
            time.sleep(self._faults["task.slow"])
        if context.attemptNumber() > 1 or chance.random() >= self._faults.get("task.share", 0):
            return super().write(iterator)
        moment = chance.choice(("before", "middle", "end"))
        if moment == "before":
            self._fail(chance)
        message = super().write(self._cut(iterator, chance) if moment == "middle" else iterator)
        self._fail(chance)
        return message

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        moment = self._faults.get("driver.moment")
        if moment is None or self._faults["driver.batch"] not in {batchId, None}:
            super().commit(messages, batchId)
            return
        with _doomed(self._faults):
            super().commit(messages, batchId)
        if moment == "ended":
            _die(self._faults)

    def _cut(self, iterator: Iterator[Any], chance: random.Random) -> Iterator[Any]:
        for batch in iterator:
            yield batch
            if chance.random() < 0.5:
                self._fail(chance)

    def _fail(self, chance: random.Random) -> None:
        _note(self._faults, "task")
        if chance.random() < 0.5:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("a task fails on purpose")


@contextmanager
def _doomed(faults: dict[str, Any]) -> Iterator[None]:
    """The commit in this block takes the whole query with it, unless its moment is later."""
    moment = faults["driver.moment"]
    decide, end = Ledger.decide, TwoPhaseCommit._is_committed

    async def deciding(self: Ledger, driver: PreparedTransaction, decision: Decision) -> None:
        if moment in {"before decision", "stall"}:
            _die(faults)
        await decide(self, driver, decision)
        if moment == "decided":
            _die(faults)

    async def ending(self: TwoPhaseCommit, part: Part) -> bool:
        done = await end(self, part)
        if moment == "half ended":
            _die(faults)
        return done

    Ledger.decide = deciding  # type: ignore[method-assign]
    TwoPhaseCommit._is_committed = ending  # type: ignore[method-assign]
    try:
        yield
    finally:
        Ledger.decide = decide  # type: ignore[method-assign]
        TwoPhaseCommit._is_committed = end  # type: ignore[method-assign]


def _die(faults: dict[str, Any]) -> None:
    _note(faults, faults["driver.moment"])
    if faults.get("driver.raises"):
        raise RuntimeError("a commit fails on purpose")
    if faults["driver.moment"] != "stall":
        kill_session(os.getsid(0))
        return
    deadline = time.monotonic() + _PATIENCE_S
    while not Path(faults["go.on"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _note(faults: dict[str, Any], what: str) -> None:
    """What has happened, for whoever counts."""
    with Path(faults["notes"]).open("a", encoding="utf-8") as notes:
        notes.write(what + "\n")
