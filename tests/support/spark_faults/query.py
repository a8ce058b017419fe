"""A streaming query over all its lives, each in a session of processes that can be killed whole.

Owns: starting and killing lives, what is written in all, what a reader finds. Must not know: Spark,
how anything is made exactly once.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.confluent import read_all_blocking
from support.spark_faults.deaths import kill_session

ROOT = Path(__file__).parents[3]
LIFE_S = 300.0
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.task.maxFailures": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
    "spark.sql.shuffle.partitions": "3",
    # To start and compile takes longer here than what is run.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
}


@dataclass
class Life:
    """One start of a query: a session of processes.

    Attributes:
        process: the first of them.
        output: what they print.
        pause: a file that is there while it stands where it was told to.
    """

    process: subprocess.Popen[bytes]
    output: Path
    pause: Path

    def pauses(self) -> bool:
        """Waits until it stands where it was told to; False when it ended before."""
        deadline = time.monotonic() + LIFE_S
        while not self.pause.exists():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(self.text())
            time.sleep(0.01)
        return True

    def go_on(self) -> None:
        """Ends the pause."""
        self.pause.unlink()

    def kill(self) -> None:
        """SIGKILL, for all of it."""
        kill_session(self.process.pid)
        self.process.wait(30)

    def ended(self, timeout: float = LIFE_S) -> int:
        """Waits for the end; its exit code, negative when it was killed."""
        try:
            return self.process.wait(timeout)
        finally:
            kill_session(self.process.pid)

    def text(self) -> str:
        """What it printed last."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-6000:]


@dataclass
class FaultyQuery:
    """A query that writes the lines of some files, so many per batch.

    Attributes:
        folder: an empty one.
        servers: the cluster.
        topic: an existing topic.
        files: how many; one per batch.
        lines: how many lines each has.
        options: of the sink.
        rng: what may vary between lives.
        lives: those until now.
        started: when the first could begin, by the monotonic clock.
    """

    folder: Path
    servers: str
    topic: str
    files: int
    lines: int = 120
    options: Mapping[str, str] = field(default_factory=dict)
    rng: random.Random = field(default_factory=random.SystemRandom)
    lives: list[Life] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        (self.folder / "input").mkdir()
        goal, self.files = self.files, 0
        self.set_goal(goal)

    def set_goal(self, files: int) -> None:
        """Lets there be so many files."""
        for number in range(self.files, files):
            file = self.folder / "input" / f"{number:04}.txt"
            rows = (f"{number:04}-{row:05}" for row in range(self.lines))
            file.write_text("\n".join(rows), encoding="ascii")
        self.files = max(files, self.files)

    @property
    def notes(self) -> Counter[str]:
        """What has happened on purpose."""
        path = self.folder / "notes"
        return Counter(path.read_text(encoding="utf-8").splitlines() if path.exists() else ())

    def start(
        self,
        *,
        master: str | None = None,
        partitions: int | None = None,
        spark: Mapping[str, str] | None = None,
        **faults: Any,
    ) -> Life:
        """Starts it anew, with another parallelism; faults by name, `_` for a dot."""
        name = f"life {len(self.lives) + 1}"
        output, pause = self.folder / f"{name}.log", self.folder / f"{name} pauses"
        own = {"batch": None, "notes": str(self.folder / "notes"), "pause": str(pause)}
        settings = {
            "master": master or f"local[{self.rng.randint(1, 4)},4]",
            "spark": {
                **_SETTINGS,
                "spark.local.dir": str(self.folder / "spark"),
                **(spark or {}),
            },
            "input": str(self.folder / "input"),
            "checkpoint": str(self.folder / "checkpoint"),
            "files per batch": "1",
            "partitions": partitions or self.rng.randint(1, 5),
            "options": {
                "kafka.bootstrap.servers": self.servers,
                "topic": self.topic,
                "delivery.guarantee": "exactly-once",
                **self.options,
            },
            "faults": own | {name.replace("_", "."): value for name, value in faults.items()},
        }
        paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "support.spark_faults.job", json.dumps(settings)],
                stdout=sink,
                stderr=sink,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
                start_new_session=True,
            )
        self.lives.append(Life(process, output, pause))
        return self.lives[-1]

    def end(self) -> None:
        """Leaves nothing running."""
        for life in self.lives:
            life.kill()

    def batches(self) -> int:
        """How many batches Spark has noted as done."""
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def files_done(self) -> int:
        """How many files these batches have: more than one where Spark was killed between its logs.

        A file source notes a file before the batch is noted; what has happened behind that note is
        taken into the next batch.
        """
        last = self.batches() - 1
        if last < 0:
            return 0
        offsets = (self.folder / "checkpoint" / "offsets" / str(last)).read_text(encoding="utf-8")
        return int(json.loads(offsets.splitlines()[-1])["logOffset"]) + 1

    def wait_for_batch(self, life: Life, number: int) -> bool:
        """Until so many batches are done; False when the life ended before."""
        deadline = time.monotonic() + LIFE_S
        while self.batches() < number:
            if life.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def finish(self, **faults: Any) -> None:
        """Lets it come to its end.

        Raises:
            AssertionError: it does not.
        """
        life = self.start(**faults)
        if life.ended() != 0 or self.files_done() < self.files:
            raise AssertionError(life.text())

    def wrong(self) -> tuple[int, int]:
        """How many rows somebody else's read_committed reader finds twice, and how many never."""
        found = Counter(
            (record.value or b"").decode() for record in read_all_blocking(self.servers, self.topic)
        )
        wanted = {
            f"{number:04}-{row:05}" for number in range(self.files) for row in range(self.lines)
        }
        twice = sum(count - 1 for count in found.values())
        return twice, len(wanted - set(found))
