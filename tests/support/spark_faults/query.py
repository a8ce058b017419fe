"""A streaming query over all its lives: what it writes, what has happened, what a reader finds.

Owns: its folder. Not here: Spark, how anything is made exactly once.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.confluent import read_all_blocking

_MOST_PARTITIONS = 5
REPLAYED = "attempt with another number of partitions"


@dataclass
class FaultyQuery:
    """A query that writes the lines of some files, one file per batch.

    Attributes:
        folder: an empty one.
        servers: the cluster.
        topic: an existing topic.
        files: how many.
        lines: how many lines each has.
        options: of the sink.
        by_driver: whether the driver writes its batches itself, by `batch_writer`.
        rng: what may vary between lives.
        partitions: how many Spark partitions its batches had in its last life.
    """

    folder: Path
    servers: str
    topic: str
    files: int
    lines: int = 120
    options: Mapping[str, str] = field(default_factory=dict)
    by_driver: bool = False
    rng: random.Random = field(default_factory=random.SystemRandom)
    partitions: int = 0

    def __post_init__(self) -> None:
        (self.folder / "input").mkdir(parents=True)
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
    def guarantee(self) -> str:
        """The one it asks for."""
        return self.options.get("delivery.guarantee", "exactly-once")

    @property
    def notes(self) -> Counter[str]:
        """The events so far, counted by name."""
        path = self.folder / "notes"
        return Counter(path.read_text(encoding="utf-8").splitlines() if path.exists() else ())

    def note(self, what: str) -> None:
        """Something has happened."""
        with (self.folder / "notes").open("a", encoding="utf-8") as notes:
            notes.write(what + "\n")

    def settings(self, life: str, partitions: int | None, faults: Mapping[str, Any]) -> Any:
        """Return the settings of its next life, which has another number of partitions."""
        before = self.partitions
        others = [each for each in range(1, _MOST_PARTITIONS + 1) if each != before]
        self.partitions = partitions or self.rng.choice(others)
        if self._begun() > self.batches() and self.partitions != before:
            self.note(REPLAYED)
        own = {
            "batch": None,
            "how": "pause",
            "notes": str(self.folder / "notes"),
            "pause": str(self.pause(life)),
        }
        required = {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.topic,
            "delivery.guarantee": self.guarantee,
        }
        return {
            "input": str(self.folder / "input"),
            "checkpoint": str(self.folder / "checkpoint"),
            "ended": str(self.end(life)),
            "partitions": self.partitions,
            "query": self.topic if self.by_driver else None,
            "options": required | dict(self.options),
            "faults": own | dict(faults),
        }

    def pause(self, life: str) -> Path:
        """Return a file that exists while the query pauses where it was to pause."""
        return self.folder / f"{life} pauses"

    def end(self, life: str) -> Path:
        """A file that is there when it has ended by itself: its error, or empty."""
        return self.folder / f"{life} ended"

    def batches(self) -> int:
        """Return how many batches Spark has noted as done."""
        return len(list((self.folder / "checkpoint" / "commits").glob("[0-9]*")))

    def _begun(self) -> int:
        return len(list((self.folder / "checkpoint" / "offsets").glob("[0-9]*")))

    def files_done(self) -> int:
        """Return how many files these batches have: more than one if Spark died between its logs.

        A file source notes a file before the batch is noted; files after the last noted batch are
        taken into the next batch.
        """
        last = self.batches() - 1
        if last < 0:
            return 0
        offsets = (self.folder / "checkpoint" / "offsets" / str(last)).read_text(encoding="utf-8")
        return int(json.loads(offsets.splitlines()[-1])["logOffset"]) + 1

    def wrong(self) -> tuple[int, int]:
        """Return how many rows a foreign read_committed reader finds twice, and how many never."""
        found = Counter(
            (record.value or b"").decode() for record in read_all_blocking(self.servers, self.topic)
        )
        wanted = {
            f"{number:04}-{row:05}" for number in range(self.files) for row in range(self.lines)
        }
        twice = sum(count - 1 for count in found.values())
        return twice, len(wanted - set(found))
