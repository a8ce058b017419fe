"""Options of a load by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aioproducer.loader.formats.format import Format
from aioproducer.loader.options import LoadOptions
from aioproducer.spark.loading.files import STEP_BYTES


@dataclass(frozen=True, slots=True)
class SparkLoadOptions:
    """Source, destination and manner of a load.

    Attributes:
        inputs: files, folders and patterns, of this machine or any file system Spark supports.
        topic: where to.
        kafka: producer options by Kafka's names.
        formats: what the names of formats mean.
        format: one of them; None for that of the files' names.
        load: mapping, files beside the load, whether to resume and `on_progress`, which is called
            in the thread of `run` or another one; the other options are those of the loader alone.
        load_id: names the load, which then is exactly once; None for at least once.
        topic_timeout_s: how long to wait for a topic that does not exist.
        step_bytes: how much is loaded at a time.
    """

    inputs: tuple[str, ...]
    topic: str
    kafka: Mapping[str, str] = field(repr=False)
    formats: Mapping[str, Format]
    format: str | None = None
    load: LoadOptions = field(default_factory=LoadOptions)
    load_id: str | None = None
    topic_timeout_s: float = 10.0
    step_bytes: int = STEP_BYTES

    @property
    def sink(self) -> dict[str, str]:
        """The options of the data source."""
        found = {f"kafka.{name}": value for name, value in self.kafka.items()}
        found["topic"] = self.topic
        if self.load_id is not None:
            found["delivery.guarantee"] = "exactly-once"
        return found
