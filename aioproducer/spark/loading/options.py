"""Options of a load by Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer._checks.callables import refuse_coroutine_function
from aioproducer.errors import ConfigError
from aioproducer.loader.mapping import RecordMapping
from aioproducer.loader.progress import Progress
from aioproducer.spark.loading.files import STEP_BYTES

if TYPE_CHECKING:
    from aioproducer.loader.formats.chunks import Format


@dataclass(frozen=True, slots=True)
class SparkLoadOptions:
    """Source, destination and manner of a load.

    Attributes:
        inputs: files, folders and patterns, of this machine or any file system Spark supports.
        topic: where to.
        kafka: producer options by Kafka's names.
        formats: what the names of formats mean.
        format: one of them; None for that of the files' names.
        mapping: what becomes of a row.
        load_id: names the load, which then is exactly once; None for at least once.
        dead_letter: a file for rows that cannot become records; None to fail on the first.
        state: the state file of a load at least once; None for none.
        resume: whether to continue from it.
        topic_timeout_s: how long to wait for a topic that does not exist.
        step_bytes: how much is loaded at a time.
        on_progress: called now and then, in the thread of `run` or another one.
    """

    inputs: tuple[str, ...]
    topic: str
    kafka: Mapping[str, str] = field(repr=False)
    formats: Mapping[str, Format]
    format: str | None = None
    mapping: RecordMapping = field(default_factory=RecordMapping)
    load_id: str | None = None
    dead_letter: str | os.PathLike[str] | None = None
    state: str | os.PathLike[str] | None = None
    resume: bool = False
    topic_timeout_s: float = 10.0
    step_bytes: int = STEP_BYTES
    on_progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if self.load_id is not None and (self.resume or self.state is not None):
            raise ConfigError(
                "a load that is exactly once is remembered by Kafka and always goes on there: "
                "leave out the state file and resume"
            )
        if self.resume and self.state is None:
            raise ConfigError("to resume, a load needs its state file")
        refuse_coroutine_function("on_progress", self.on_progress)

    @property
    def sink(self) -> dict[str, str]:
        """The options of the data source."""
        found = {f"kafka.{name}": value for name, value in self.kafka.items()}
        found["topic"] = self.topic
        if self.load_id is not None:
            found["delivery.guarantee"] = "exactly-once"
        return found
