"""Streaming queries that share a Spark session, and its lives: each can be killed whole.

To start Spark takes most of a life's time, so several queries run at once, each with its own topic
and checkpoint: a process that dies hits each of them at a different moment.

Owns: starting and killing lives. Not here: Spark, what queries write.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.children import environment
from support.spark_faults.deaths import PLANNED, kill_session
from support.spark_faults.query import FaultyQuery

LIFE_S = 600.0
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.task.maxFailures": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.shuffle.partitions": "3",
    # To start and compile takes longer here than what is run.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "support.spark_faults.daemon",
}


@dataclass
class Life:
    """One start of a session.

    Attributes:
        name: another one for each.
        queries: those that were started.
        process: the first of its processes.
        output: what they print.
        planned: by topic, how many batches had been planned before, where that is noted.
    """

    name: str
    queries: Sequence[FaultyQuery]
    process: subprocess.Popen[bytes]
    output: Path
    planned: Mapping[str, int]

    def wait_until_paused(self) -> list[FaultyQuery]:
        """Wait until each query pauses where it was to pause, or has ended; return those paused."""
        deadline = time.monotonic() + LIFE_S
        while True:
            running = self.running()
            found = [each for each in running if each.pause(self.name).exists()]
            if self.process.poll() is not None or len(found) == len(running):
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(self.text())
            time.sleep(0.05)

    def running(self) -> list[FaultyQuery]:
        """The queries that have not ended by themselves."""
        return [each for each in self.queries if not each.end(self.name).exists()]

    def planning(self) -> list[FaultyQuery]:
        """Those of them that have begun with a batch, where that is noted."""
        return [each for each in self.running() if each.notes[PLANNED] > self.planned[each.topic]]

    def go_on(self, query: FaultyQuery) -> None:
        """Ends its pause."""
        query.pause(self.name).unlink()

    def failures(self) -> list[str]:
        """The errors by which queries ended."""
        ends = [each.end(self.name) for each in self.queries]
        return [text for end in ends if end.exists() and (text := end.read_text(encoding="utf-8"))]

    def kill(self) -> None:
        """SIGKILL, for all of it."""
        kill_session(self.process.pid)
        self.process.wait(30)

    def ended(self, timeout: float = LIFE_S) -> int:
        """Waits for the end; its exit code, positive when a query has failed."""
        try:
            return self.process.wait(timeout)
        finally:
            kill_session(self.process.pid)

    def text(self) -> str:
        """Its failures, and what it printed last."""
        printed = self.output.read_text(encoding="utf-8", errors="replace")[-6000:]
        return "\n".join([*self.failures(), printed])


@dataclass
class FaultySession:
    """Queries that live and die together.

    Attributes:
        folder: an empty one.
        queries: all of them.
        rng: what may vary between lives.
        lives: those until now.
        started: when the first could begin, by the monotonic clock.
    """

    folder: Path
    queries: Sequence[FaultyQuery]
    rng: random.Random = field(default_factory=random.SystemRandom)
    lives: list[Life] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def notes(self) -> Counter[str]:
        """The events of all of them, counted by name."""
        return sum((each.notes for each in self.queries), Counter())

    def is_done(self) -> bool:
        """Return whether every file of each is written."""
        return all(each.files_done() == each.files for each in self.queries)

    def set_goal(self, more: int) -> None:
        """Lets each have so many more files."""
        for each in self.queries:
            each.set_goal(each.files + more)

    def start(
        self,
        *,
        master: str | None = None,
        partitions: int | None = None,
        spark: Mapping[str, str] | None = None,
        **faults: Any,
    ) -> Life:
        """Starts it anew, with another parallelism.

        Args:
            master: instead of this process with some cores.
            partitions: of the batches, instead of some.
            spark: more settings.
            faults: by name, `_` for a dot; a value may be a function of the query.
        """
        name = f"life {len(self.lives) + 1}"
        settings = {
            "master": master or f"local[{self.rng.randint(1, 5)},4]",
            "spark": {
                **_SETTINGS,
                "spark.local.dir": str(self.folder / "spark"),
                **(spark or {}),
            },
            "queries": [
                each.settings(name, partitions, _for_query(each, faults)) for each in self.queries
            ],
        }
        planned = {each.topic: each.notes[PLANNED] for each in self.queries}
        output = self.folder / f"{name}.log"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "support.spark_faults.job", json.dumps(settings)],
                stdout=sink,
                stderr=sink,
                cwd=self.folder,
                env=environment(),
                start_new_session=True,
            )
        self.lives.append(Life(name, self.queries, process, output, planned))
        return self.lives[-1]

    def finish(self, **faults: Any) -> None:
        """Lets all come to their ends.

        Raises:
            AssertionError: they do not.
        """
        life = self.start(**faults)
        if life.ended() != 0 or not self.is_done():
            raise AssertionError(life.text())

    def close(self) -> None:
        """Leaves nothing running."""
        for life in self.lives:
            life.kill()

    def wrong(self) -> tuple[int, int]:
        """Return how many rows a foreign read_committed reader finds twice, and how many never."""
        twice, never = zip(*(each.wrong() for each in self.queries), strict=True)
        return sum(twice), sum(never)


def _for_query(query: FaultyQuery, faults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace("_", "."): value(query) if callable(value) else value
        for name, value in faults.items()
    }
