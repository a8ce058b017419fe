"""A load by Spark, step by step.

    list files --> [ read, map --> write --> record ] for each step

Invariants
- A step that failed or was stopped is not recorded, and repeated by the next run. At least once its
  rows may then be in the topic twice; exactly once none of them was visible.
- The dead-letter file holds the rejected rows of a step before the step is recorded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from aioproducer.client.producer import Producer
from aioproducer.errors import KafkaError
from aioproducer.loader.dead_letter_file import DeadLetterFile
from aioproducer.loader.progress import Progress
from aioproducer.loader.rows import Position
from aioproducer.loader.topic import wait_for_topic
from aioproducer.spark.loading.errors import error_of
from aioproducer.spark.loading.files import Step, digest, format_of, has_file, list_steps
from aioproducer.spark.loading.frames import SETTINGS, Input, rows_of
from aioproducer.spark.loading.options import SparkLoadOptions
from aioproducer.spark.loading.record import SparkLoadState, check_files, written
from aioproducer.spark.loading.records import REJECTION, RowsToRecords
from aioproducer.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from aioproducer.config import ProducerConfig

_REPORT_INTERVAL_S: Final = 0.5


class _StoppedError(Exception):
    """`SparkLoad.stop` was called."""


@dataclass(frozen=True, slots=True)
class SparkLoadResult:
    """The progress of this run, and the state after all; `skipped` counts steps of earlier ones."""

    progress: Progress
    state: SparkLoadState
    skipped: int


class SparkLoad:
    """Loads files into a topic; runs once, and waits for Spark meanwhile."""

    def __init__(self, spark: SparkSession, options: SparkLoadOptions) -> None:
        self._spark = spark
        self._options = options
        self._progress = Progress()
        self._state = SparkLoadState(options.topic, "", -1)
        self._skipped = 0
        self._is_stopped = threading.Event()
        self._started_at = time.monotonic()

    @property
    def result(self) -> SparkLoadResult:
        """The state of the load."""
        elapsed = time.monotonic() - self._started_at
        return SparkLoadResult(
            replace(self._progress, elapsed_s=elapsed), self._state, self._skipped
        )

    def stop(self) -> None:
        """End the running step, which then counts as not done; from any thread."""
        self._is_stopped.set()
        if _is_connect(self._spark):
            self._spark.interruptAll()
        else:
            self._spark.sparkContext.cancelAllJobs()

    def run(self) -> SparkLoadResult:
        """Load until the end, `stop()` or an error.

        Raises:
            LoaderError: the input, the mapping or a file of ours cannot be used, or a row was
                rejected and there is no dead-letter file.
            KafkaError: records could not be written. `result` has what was, in all these cases.
        """
        from pyspark.errors import PySparkException

        try:
            self._run()
        except KafkaError:
            raise
        except Exception as error:
            if self._is_stopped.is_set():
                return self.result
            is_of_java = type(error).__module__.startswith("py4j.")
            if not isinstance(error, PySparkException) and not is_of_java:
                raise
            raise error_of(error) from error
        return self.result

    def _run(self) -> None:
        options = self._options
        config = self._config()
        partitions = asyncio.run(_partition_count(config, options.topic, options.topic_timeout_s))
        # Spark searches for data sources in the session that is active in this thread. This is
        # the only public call that makes this one active.
        self._spark.createDataFrame([], "nothing int")
        for name, value in SETTINGS.items():
            self._spark.conf.set(name, value)
        steps = list_steps(self._spark, options.inputs, options.step_bytes)
        options.load.check_paths([path for step in steps for path in step.local_paths])
        name = options.format or format_of(steps)
        files = Input(name, options.formats[name])
        self._state = SparkLoadState.begin(options.topic, steps)
        if options.load_id is not None:
            asyncio.run(check_files(config, options.load_id, self._state))
        elif options.load.state is not None:
            self._state = self._state.resumed(options.load.state, goes_on=options.load.resume)
            self._state.write(options.load.state)  # to find out now whether it can be written
        keeps = options.load.dead_letter is not None
        to_records = RowsToRecords(files, options.load.mapping, partitions, keeps)
        self._progress = Progress(input_total=sum(step.size for step in steps))
        with self._dead_letter(steps) as dead_letter:
            for number, step in enumerate(steps):
                self._check_not_stopped()
                if number < self._state.done:
                    self._skipped += 1
                else:
                    self._load(step, to_records, dead_letter)
                done = self._progress.input_bytes + step.size
                self._progress = replace(self._progress, input_bytes=done)
                self._report()

    def _check_not_stopped(self) -> None:
        """Raise once the load is stopped: Spark cancels only jobs that run by then."""
        if self._is_stopped.is_set():
            raise _StoppedError

    def _load(
        self, step: Step, to_records: RowsToRecords, dead_letter: DeadLetterFile | None
    ) -> None:
        from pyspark import StorageLevel

        records = to_records.of(rows_of(self._spark, step, to_records.files))
        rejected = 0
        with self._reporting(step):
            if dead_letter is None:
                sent, size = self._write_once(records, step)
            else:
                every = records.persist(StorageLevel.DISK_ONLY)
                try:
                    rejected = _write_rejected(every, dead_letter)
                    good = every.where(f"{REJECTION} IS NULL").drop(REJECTION)
                    sent, size = self._write_once(good, step)
                finally:
                    every.unpersist()
        before = self._progress
        self._progress = replace(
            before,
            read=before.read + sent + rejected,
            rejected=before.rejected + rejected,
            sent=before.sent + sent,
            acknowledged=before.acknowledged + sent,
            bytes_sent=before.bytes_sent + size,
        )
        kept = 0 if dead_letter is None else dead_letter.size
        self._state = self._state.with_step(sent, rejected, kept)
        if self._options.load.state is not None:
            self._state.write(self._options.load.state)

    def _write_once(self, records: DataFrame, step: Step) -> tuple[int, int]:
        """Write a step unless an earlier run has; return how many records and bytes are new."""
        if self._options.load_id is None:
            return self._write(records, {})
        job = f"{self._options.load_id}/{digest([step])}"
        is_decided, is_visible = asyncio.run(written(self._config(), job, self._options.topic))
        new = (0, 0) if is_visible else self._write(records, {"job.id": job})
        self._skipped += is_decided
        return (0, 0) if is_decided else new

    def _write(self, records: DataFrame, options: Mapping[str, str]) -> tuple[int, int]:
        """Write records; return their number, and the bytes of keys and values."""
        self._check_not_stopped()
        from pyspark.sql import Observation
        from pyspark.sql.functions import expr

        seen = Observation()
        has_key = "key" in records.columns
        size = f"coalesce(octet_length(value), 0){' + coalesce(octet_length(key), 0)' * has_key}"
        counted = records.observe(
            seen, expr("count(*) AS rows"), expr(f"coalesce(sum({size}), 0) AS bytes")
        )
        writer = counted.write.format("aioproducer").mode("append")
        writer.options(**self._options.sink, **options).save()
        found = seen.get
        return int(found["rows"]), int(found["bytes"])

    def _config(self) -> ProducerConfig:
        return SourceOptions.parse(self._options.sink, "write").config()

    def _dead_letter(self, steps: Sequence[Step]) -> AbstractContextManager[DeadLetterFile | None]:
        path = self._options.load.dead_letter
        if path is None:
            return nullcontext()
        kept, is_input = self._state.dead_letter_bytes, partial(has_file, steps)
        return closing(DeadLetterFile(path, keep_bytes=kept, is_input=is_input))

    @contextmanager
    def _reporting(self, step: Step) -> Iterator[None]:
        """Report the progress of a step's tasks periodically, within the block."""
        over = threading.Event()

        def report_until_over() -> None:
            while not over.wait(_REPORT_INTERVAL_S):
                self._report(step.size * _share_done(self._spark))

        if self._options.load.on_progress is None or _is_connect(self._spark):
            yield
            return
        thread = threading.Thread(
            target=report_until_over, name="aioproducer load progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _report(self, more_bytes: float = 0) -> None:
        if self._options.load.on_progress is not None:
            now = self.result.progress
            self._options.load.on_progress(
                replace(now, input_bytes=now.input_bytes + int(more_bytes))
            )


def _write_rejected(records: DataFrame, dead_letter: DeadLetterFile) -> int:
    """Write the rejected rows; return their number. Their row numbers are not known."""
    count = 0
    rejections = records.where(f"{REJECTION} IS NOT NULL").select(f"{REJECTION}.*")
    for file, reason, raw in rejections.toLocalIterator():
        dead_letter.write(Position(file, None, 0), "row", reason, bytes(raw))
        count += 1
    dead_letter.sync()
    return count


def _share_done(spark: SparkSession) -> float:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    tasks = sum(each.numTasks for each in stages if each is not None)
    return sum(each.numCompletedTasks for each in stages if each is not None) / max(1, tasks)


def _is_connect(spark: SparkSession) -> bool:
    return not hasattr(spark, "_jsc") and not hasattr(spark, "_sc")


async def _partition_count(config: ProducerConfig, topic: str, within_s: float) -> int:
    # Coordinators would say that it is missing only after `max_block_ms`, and tasks one by one.
    async with Producer(config.replace(transactional_id=None)) as producer:
        await wait_for_topic(producer, topic, within_s)
        return len(await producer.partitions_for(topic))
