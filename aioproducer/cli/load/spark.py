"""Running a load on Spark for people: progress, a summary, an exit code.

Invariant: whatever ends the load, the summary says how many records were written, and the state
file stays while a later run can resume from it.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aioproducer.cli.console import megabytes, one_or_two_lines, print_facts, print_json, say
from aioproducer.cli.display import Display, display_for
from aioproducer.cli.exit_codes import ExitCode, exit_code_for
from aioproducer.cli.interrupts import Interrupts
from aioproducer.cli.missing_topic import check_topic
from aioproducer.cli.options import Connection
from aioproducer.cli.pointers import doctor_command, pointed_to_doctor
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.loader import Progress
from aioproducer.spark.loading.options import SparkLoadOptions
from aioproducer.spark.session import session_at

if TYPE_CHECKING:
    from aioproducer.spark.loading.load import SparkLoad, SparkLoadResult


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A load by Spark, and how to report it.

    Attributes:
        config: the producer's, to see whether there is a cluster before Spark starts.
        master: where Spark runs.
        connection: the options that `config` was made of, for the commands that messages name.
        settings: Spark's.
        keep_state: leave the state file after a complete load, too.
    """

    config: ProducerConfig
    options: SparkLoadOptions
    master: str
    connection: Connection = field(default_factory=Connection)
    settings: Mapping[str, str] = field(default_factory=dict)
    keep_state: bool = False
    quiet: bool = False
    as_json: bool = False

    @property
    def name(self) -> str:
        """The name of the input for people."""
        first, more = Path(self.options.inputs[0]).name, len(self.options.inputs) - 1
        return f"{first} and {more} more" if more else first


def for_tasks(properties: Mapping[str, str]) -> dict[str, str]:
    """Return producer options without those that tasks set themselves.

    Files for Java's producer have its serializers, which mean bytes here and are refused there.
    """
    own = {"transactional_id", "key_serializer", "value_serializer"}
    return {name: value for name, value in properties.items() if name.replace(".", "_") not in own}


async def run_spark_load(job: SparkJob, interrupts: Interrupts) -> int:
    """Load, report, return the exit code."""
    await check_topic(job.config, job.options.topic, job.connection, job.options.topic_timeout_s)
    display = display_for(job.name, quiet=job.quiet)
    running = _Running(job, display)
    interrupts.on_stop(running.stop, message="giving up the running step; Ctrl-C again to abort")
    with display:
        await asyncio.to_thread(running.run)
    return _report(job, running, interrupts.code)


class _Running:
    """A load in another thread: Spark's calls block."""

    def __init__(self, job: SparkJob, display: Display[Progress]) -> None:
        self.result: SparkLoadResult | None = None
        self.error: KafkaError | None = None
        self._job = job
        load = replace(job.options.load, on_progress=display.show)
        self._options = replace(job.options, load=load)
        self._load: SparkLoad | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Stop the load; called in another thread than `run`."""
        self._is_stopped = True
        if self._load is not None:
            self._load.stop()

    def run(self) -> None:
        """Run the load; `result` and `error` have the outcome."""
        from aioproducer.spark.loading.load import SparkLoad

        job = self._job
        # The error covers what goes wrong; PySpark's warnings about its next release are of no use
        # to the user of a command.
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        settings = {"spark.log.level": "FATAL", **job.settings}
        spark = session_at(job.master, f"aioproducer load {job.name}", settings)
        try:
            self._load = SparkLoad(spark, self._options)
            if not self._is_stopped:
                self._load.run()
        except KafkaError as error:
            self.error = pointed_to_doctor(error, doctor_command(job.connection))
        finally:
            if self._load is not None:
                self.result = self._load.result
            spark.stop()


def _report(job: SparkJob, running: _Running, signal: ExitCode | None) -> int:
    result, error = running.result, running.error
    complete = result is not None and error is None and result.state.complete
    if error is not None:
        code = exit_code_for(error)
        say(one_or_two_lines(error))
    elif not complete:
        code = signal or ExitCode.INTERRUPTED
    else:
        rejected = result is not None and result.state.rejected
        code = ExitCode.SOME_FAILED if rejected else ExitCode.OK
    if result is None:
        return code
    if complete and not job.keep_state and job.options.load.state is not None:
        Path(job.options.load.state).unlink(missing_ok=True)
    for remark in _remarks(job, result, complete=complete):
        say(remark)
    progress, state = result.progress, result.state
    if not job.as_json:
        print_facts(f"{job.name} -> {job.options.topic}", _facts(result))
        return code
    print_json(
        {
            "engine": "spark",
            "input": job.name,
            "topic": job.options.topic,
            "complete": complete,
            "exit_code": int(code),
            "error": None if error is None else str(error),
            "rows": progress.read,
            "acknowledged": progress.acknowledged,
            "rejected": progress.rejected,
            "bytes": progress.bytes_sent,
            "seconds": round(progress.elapsed_s, 3),
            "rows_per_second": round(progress.rows_per_second, 1),
            "steps": {"all": state.steps, "done": state.done, "skipped": result.skipped},
            "all_runs": {"acknowledged": state.rows, "rejected": state.rejected},
        }
    )
    return code


def _remarks(job: SparkJob, result: SparkLoadResult, *, complete: bool) -> Iterator[str]:
    state, options = result.state, job.options
    if result.progress.rejected:
        yield f"rejected rows and their reasons are in {options.load.dead_letter}"
    if not complete and state.steps > 0:
        yield f"{state.done} of {state.steps} steps are loaded"
        if options.load_id is not None:
            yield "the same command resumes after them"
        elif options.load.state is not None:
            yield "resume after them with --resume"
    elif complete and not result.progress.read and options.load_id is not None:
        yield "it was loaded before; -X transactional.id=NAME makes it another load"


def _facts(result: SparkLoadResult) -> Iterator[tuple[str, str]]:
    progress, state = result.progress, result.state
    yield "engine", "Spark"
    yield "rows read", f"{progress.read:,}"
    yield "acknowledged", f"{progress.acknowledged:,}"
    yield "rejected", f"{progress.rejected:,}"
    yield "keys and values", megabytes(progress.bytes_sent)
    yield "seconds", f"{progress.elapsed_s:,.1f}"
    yield "rows/s", f"{progress.rows_per_second:,.0f}"
    yield "steps", f"{state.done} of {max(0, state.steps)}, {result.skipped} of them before"
