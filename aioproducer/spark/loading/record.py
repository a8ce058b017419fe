"""The progress of a load by Spark, for the next run of it.

Exactly once, each step records by itself that it was written (`job.id`). In addition the files of
the load have to be stored: with other files the steps would differ, and rows that are in the topic
already would be written again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from aioproducer.config import ProducerConfig
from aioproducer.core.transactions import coordinator_queries
from aioproducer.loader.errors import StateError
from aioproducer.loader.state_file import read_state, write_state
from aioproducer.spark.exactly_once.ledger import Ledger
from aioproducer.spark.exactly_once.writes import prefix_for_job
from aioproducer.spark.loading.files import Step, digest
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.types import OffsetAndMetadata, TopicPartition

_VERSION = 1
_MARK = "aioproducer-spark-load"


@dataclass(frozen=True, slots=True)
class SparkLoadState:
    """The progress of a load.

    Attributes:
        topic: where to.
        files: a digest of the files of all steps.
        steps: how many there are.
        done: how many of them are loaded.
        rows: records in the steps that are.
        rejected: rows that became none.
        dead_letter_bytes: how long the dead-letter file was then.
    """

    topic: str
    files: str
    steps: int
    done: int = 0
    rows: int = 0
    rejected: int = 0
    dead_letter_bytes: int = 0

    @classmethod
    def begin(cls, topic: str, steps: Sequence[Step]) -> Self:
        """Return the progress of a load that begins."""
        return cls(topic, digest(steps), len(steps))

    @property
    def complete(self) -> bool:
        """Whether all is loaded."""
        return self.done == self.steps

    def with_step(self, rows: int, rejected: int, dead_letter_bytes: int) -> SparkLoadState:
        """Return the progress after one more step."""
        return replace(
            self,
            done=self.done + 1,
            rows=self.rows + rows,
            rejected=self.rejected + rejected,
            dead_letter_bytes=dead_letter_bytes,
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace the file at `path` atomically; raise `StateError`."""
        write_state(path, {"version": _VERSION, "engine": "spark", **asdict(self)})

    def resumed(self, path: str | os.PathLike[str], *, goes_on: bool = True) -> SparkLoadState:
        """Return the state in the file at `path`; itself without one, or unless `goes_on`."""
        found = read_state(path, _decoded, of="a load by Spark")
        if found is None or not goes_on:
            return self
        if (found.topic, found.files) != (self.topic, self.files):
            raise StateError(
                f"the state file {path} belongs to a load of other files, or into another topic",
                advice="name another state file, or leave out resume to start over",
            )
        return found


def _decoded(content: Any) -> SparkLoadState:
    content = dict(content)
    if content.pop("version") != _VERSION or content.pop("engine") != "spark":
        raise ValueError("another version")
    return SparkLoadState(**content)


async def written(config: ProducerConfig, job: str, topic: str) -> tuple[bool, bool]:
    """Return whether a step that is a job of this id is decided, and whether all is visible."""
    async with Ledger(config, prefix_for_job(job, topic), topic) as ledger:
        last, is_completed = await ledger.last_decision_and_end()
        is_decided = last is not None and last.owner == job
        return is_decided, is_decided and is_completed


async def check_files(config: ProducerConfig, load: str, state: SparkLoadState) -> None:
    """Store the files of a new exactly-once load; raise if those of a resumed one differ."""
    place = TopicPartition(state.topic, 0)
    wanted = OffsetAndMetadata(state.steps, f"{_MARK}:{state.files}")
    async with TransactionAdmin(config) as admin:
        found = (await admin.committed_offsets(load, [place])).get(place)
        if found is None or found.offset < 0:
            await admin._asks().ask(coordinator_queries.commit(load, {place: wanted}))
        elif (found.offset, found.metadata) != (wanted.offset, wanted.metadata):
            raise StateError(
                f"the files are not those that the load {load!r} was begun with",
                advice="restore them, or make it another load by -X transactional.id=NAME: that "
                "one loads all files",
            )
