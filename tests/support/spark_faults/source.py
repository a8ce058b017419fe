"""The data source `aioproducer`, which fails and dies at given moments.

Owns: the moments, and how a task or its process dies. Not here: the killing of a whole query.

    task.share    how many of the first two attempts of tasks fail, at a random moment
    task.ways     how, at random: `raise`, `kill` its process, or kill the `executor` as well
    executors     whether it is noted when a task runs in an executor that no other one had
    task.slow     seconds that the first attempt at partition 0 pauses at a random moment
    moment        where the query is hit, one of `deaths.MOMENTS` or `deaths.PHASES`; `any` to note
                  when a batch is planned
    batch         in which batch; None for every one
    how           `raise` in its commit, or `pause` until a file is gone, or the query
    pause         that file
    notes         where it is noted what has happened
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from aioproducer.spark.exactly_once.decision import Decision, Part
from aioproducer.spark.exactly_once.ledger import Ledger
from aioproducer.spark.exactly_once.two_phase import TwoPhaseCommit
from aioproducer.spark.options import Guarantee
from aioproducer.spark.source import AioproducerSource
from aioproducer.spark.writers import StreamWriter, TaskMessage
from aioproducer.types import PreparedTransaction
from support.spark_faults.deaths import MOMENTS, PLANNED, executor_process, kill_executor

_TIMEOUT_S = 900.0


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
    """A writer that dies at given moments."""

    def __init__(self, plan: Any, faults: dict[str, Any]) -> None:
        super().__init__(plan)
        self._faults = faults

    def __getstate__(self) -> dict[str, Any]:
        if not self._is_begun:
            if self._faults.get("moment") == "planning":
                hit(self._faults)
            if self._faults.get("moment") == "any":
                note(self._faults, PLANNED)
        return super().__getstate__()

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        context, chance = TaskContext.get(), random.SystemRandom()
        is_first = context.attemptNumber() == context.partitionId() == 0
        if context.attemptNumber() > 0:
            note(self._faults, "another attempt")
        if self._faults.get("executors"):
            _note_executor(self._faults)
        share = self._faults.get("task.share", 0)
        if context.attemptNumber() <= 1 and chance.random() < share:
            way = chance.choice(self._faults.get("task.ways", ("raise", "kill")))
            return self._interrupted(iterator, lambda moment: _fail(self._faults, way, moment))
        if is_first and self._faults.get("moment") == "writing":
            return self._interrupted(iterator, lambda _: hit(self._faults))
        if is_first and "task.slow" in self._faults:
            return self._interrupted(iterator, lambda moment: _stand(self._faults, moment))
        return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        moment = self._faults.get("moment")
        if moment not in MOMENTS or self._faults["batch"] not in {batchId, None}:
            super().commit(messages, batchId)
            return
        if moment != "ended" and self._plan.options.guarantee is not Guarantee.EXACTLY_ONCE:
            hit(self._faults)  # nothing is decided there
        with _doomed(self._faults):
            super().commit(messages, batchId)
        if moment == "ended":
            hit(self._faults)

    def _interrupted(self, iterator: Iterator[Any], act: Callable[[str], None]) -> TaskMessage:
        """Writes, and does something before, in the middle or at the end of it."""
        chance = random.SystemRandom()
        moment = chance.choice(("before", "middle", "end"))

        def cut() -> Iterator[Any]:
            is_due = True
            for batch in iterator:
                yield batch
                if is_due and chance.random() < 0.5:
                    is_due = False
                    act("in the middle")
            if is_due:
                act("in the middle")

        if moment == "before":
            act("before the write")
        message = super().write(cut() if moment == "middle" else iterator)
        if moment == "end":
            act("before the return")
        return message


def _fail(faults: dict[str, Any], way: str, moment: str) -> None:
    note(faults, f"{way} {moment}")
    if way == "executor":
        kill_executor()
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("a task fails on purpose")


def _stand(faults: dict[str, Any], moment: str) -> None:
    note(faults, f"slow {moment}")
    time.sleep(faults["task.slow"])


@contextmanager
def _doomed(faults: dict[str, Any]) -> Iterator[None]:
    """The query is hit within the commit in this block, if that is its moment."""
    moment = faults["moment"]
    decide, end = Ledger.decide, TwoPhaseCommit._is_committed

    async def deciding(
        self: Ledger, driver: PreparedTransaction, decision: Decision, **more: bool
    ) -> None:
        if moment == "before decision":
            hit(faults)
        await decide(self, driver, decision, **more)
        if moment == "decided":
            hit(faults)

    is_hit, turns = False, asyncio.Lock()

    async def ending(self: TwoPhaseCommit, part: Part) -> bool:
        nonlocal is_hit
        async with turns:  # so that the first one is the only one when the query is hit
            done = await end(self, part)
            if moment == "half ended" and not is_hit:
                is_hit = True
                hit(faults)
            return done

    Ledger.decide = deciding  # type: ignore[method-assign]
    TwoPhaseCommit._is_committed = ending  # type: ignore[method-assign]
    try:
        yield
    finally:
        Ledger.decide = decide  # type: ignore[method-assign]
        TwoPhaseCommit._is_committed = end  # type: ignore[method-assign]


def hit(faults: dict[str, Any]) -> None:
    """Raise, or pause until the file is gone or the query is killed."""
    note(faults, faults["moment"])
    if faults["how"] == "raise":
        raise RuntimeError("a commit fails on purpose")
    pause, deadline = Path(faults["pause"]), time.monotonic() + _TIMEOUT_S
    pause.touch()
    while pause.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the pause {faults['moment']} is not ended")
        time.sleep(0.01)


def _note_executor(faults: dict[str, Any]) -> None:
    known, own = Path(f"{faults['notes']} of executors"), str(executor_process())
    if known.exists() and own in known.read_text(encoding="utf-8").splitlines():
        return
    with known.open("a", encoding="utf-8") as executors:
        executors.write(own + "\n")
    note(faults, "another executor")


def note(faults: dict[str, Any], what: str) -> None:
    """Append an event to the notes, to be counted."""
    with Path(faults["notes"]).open("a", encoding="utf-8") as notes:
        notes.write(what + "\n")
