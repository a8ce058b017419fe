"""Running a load for people: progress while it runs, a summary and an exit code at its end.

Invariant: whatever ends the load, the summary says how many records were acknowledged, and the
state file stays while a later run can resume from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aioproducer.cli import console
from aioproducer.cli.connecting import started_producer
from aioproducer.cli.display import display_for
from aioproducer.cli.exit_codes import ExitCode, exit_code_for
from aioproducer.cli.interrupts import Interrupts
from aioproducer.cli.missing_topic import explained_topic
from aioproducer.cli.options import Connection
from aioproducer.cli.pointers import doctor_command, pointed_to_doctor
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError, KafkaError
from aioproducer.loader import (
    DeadLetterError,
    FileSource,
    Loader,
    LoadOptions,
    LoadState,
    Progress,
    StateError,
)


@dataclass(frozen=True, slots=True)
class LoadJob:
    """The load, and how to report it.

    Attributes:
        connection: The options that `config` was made of, for the commands that messages name.
        keep_state: Leave the state file after a complete load, too.
        brief: One line instead of a table at the end, on standard error.
    """

    config: ProducerConfig
    source: FileSource
    topic: str
    options: LoadOptions
    connection: Connection = field(default_factory=Connection)
    keep_state: bool = False
    quiet: bool = False
    as_json: bool = False
    brief: bool = False


async def run_load(job: LoadJob, interrupts: Interrupts) -> int:
    """Load, report, return the exit code."""
    job.source.check()
    if job.options.exactly_once and job.source.total_bytes is None:
        raise ConfigError("--exactly-once needs inputs that can be read again: regular files")
    _check_unfinished_load(job.options, job.source)
    display = display_for(job.source.name, quiet=job.quiet or job.brief)
    unsent_fail = job.options.unsent_fail or job.source.total_bytes is None
    options = replace(job.options, on_progress=display.show, unsent_fail=unsent_fail)
    error: KafkaError | None = None
    async with started_producer(job.config) as producer:
        loader = Loader(producer, job.source, job.topic, options)
        interrupts.on_stop(loader.stop)
        try:
            with display:
                await loader.run()
        except KafkaError as failure:
            explained = await explained_topic(failure, job.config, job.connection)
            error = pointed_to_doctor(explained, doctor_command(job.connection))
        except asyncio.CancelledError:
            console.say(f"aborted: {_counted(loader.progress)}")
            if job.options.state is not None and loader.progress.acknowledged:
                console.say("--resume sends those with an unknown outcome again")
            raise
        metrics = producer.metrics()
    outcome = Outcome(job, loader.progress, loader.state, metrics, error, interrupts.code)
    outcome.tidy()
    outcome.report()
    return outcome.exit_code


def _check_unfinished_load(options: LoadOptions, source: FileSource) -> None:
    """Say that a load starts over where it could go on; refuse the state file of another one."""
    if options.resume or options.exactly_once or options.state is None:
        return
    before = LoadState.read(options.state)
    if before is None or before.complete or not before.settled.rows:
        return
    if before.position is not None and Path(before.position.file) not in source.paths:
        raise StateError(
            f"{options.state} has the position of an unfinished load, in {before.position}",
            advice="name another file by --state, or delete this one if that load is not resumed",
        )
    console.say(
        f"starting over, though {options.state} has {before.settled.rows:,} rows that "
        f"are done, up to {before.position}; --resume continues there",
        style="yellow",
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a load, as text."""

    job: LoadJob
    progress: Progress
    state: LoadState
    metrics: Mapping[str, float]
    error: KafkaError | None
    signal: ExitCode | None

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command, see `exit_codes`."""
        if self.error is not None:
            return exit_code_for(self.error)
        if not self.state.complete:
            return self.signal or ExitCode.INTERRUPTED
        bad = self.progress.failed + self.progress.rejected
        return ExitCode.SOME_FAILED if bad else ExitCode.OK

    def tidy(self) -> None:
        """Remove the state of a complete load, unless asked to keep it."""
        path = self.job.options.state
        if self.state.complete and not self.job.keep_state and path is not None:
            Path(path).unlink(missing_ok=True)

    def report(self) -> None:
        """Print remarks and summary; raise `OutputClosedError` or `OutputError` if that fails."""
        for remark in self._remarks():
            console.say(remark)
        try:
            if self.job.as_json:
                console.print_json(self.as_dict())
            elif not self.job.brief:
                console.print_facts(f"{self.job.source.name} -> {self.job.topic}", self._facts())
        except (console.OutputClosedError, console.OutputError):
            console.say(_counted(self.progress))
            raise

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as data."""
        progress, position = self.progress, self.state.position
        return {
            "input": self.job.source.name,
            "topic": self.job.topic,
            "complete": self.state.complete,
            "exit_code": int(self.exit_code),
            "error": None if self.error is None else str(self.error),
            "rows": progress.read,
            "sent": progress.sent,
            "acknowledged": progress.acknowledged,
            "failed": progress.failed,
            "rejected": progress.rejected,
            "unknown": progress.outstanding,
            "bytes": progress.bytes_sent,
            "seconds": round(progress.elapsed_s, 3),
            "rows_per_second": round(progress.rows_per_second, 1),
            "position": None if position is None else position._asdict(),
            "all_runs": {
                "acknowledged": self.state.settled.acknowledged,
                "failed": self.state.settled.failed,
                "rejected": self.state.settled.rejected,
            },
            "producer": {name: self.metrics.get(key, 0) for name, key in _METRICS.items()},
        }

    def _facts(self) -> Iterator[tuple[str, str]]:
        progress, metrics = self.progress, self.metrics
        yield "rows read", f"{progress.read:,}"
        yield "acknowledged", f"{progress.acknowledged:,}"
        yield "failed", f"{progress.failed:,}"
        yield "rejected", f"{progress.rejected:,}"
        yield "keys and values", console.megabytes(progress.bytes_sent)
        yield "seconds", f"{progress.elapsed_s:,.1f}"
        yield "rows/s", f"{progress.rows_per_second:,.0f}"
        yield "batches", f"{metrics.get('batch_total', 0):,.0f}"
        yield "records per batch", f"{metrics.get('records_per_batch_avg', 0):,.1f}"
        yield "retries", f"{metrics.get('record_retry_total', 0):,.0f}"

    def _remarks(self) -> Iterator[str]:
        progress, options, before = self.progress, self.job.options, self.state.settled
        if self.error is not None:
            yield console.one_or_two_lines(self.error)
        if self.error is not None or not self.state.complete or self.job.brief:
            yield _counted(progress)
        is_written = options.dead_letter is not None and not isinstance(self.error, DeadLetterError)
        if progress.rejected + progress.failed and is_written:
            yield f"rejected rows and their reasons are in {options.dead_letter}"
        after = self.state.position or "the start"
        # Whether anything of this run or an earlier one may be in the topic.
        has_begun = self.state.position is not None or self.metrics.get(_METRICS["requests"], 0) > 0
        if not self.state.complete and has_begun:
            if options.exactly_once:
                yield f"the same command resumes after {after}"
            elif options.state is not None:
                yield f"resume after {after} with --resume"
        elif self.state.complete and self.error is None and not progress.read and before.rows:
            if options.exactly_once:
                yield "it was loaded before; -X transactional.id=NAME makes it another load"
            elif options.resume:
                yield "it was loaded before; without --resume it is loaded again"


_METRICS = {
    "batches": "batch_total",
    "records_per_batch": "records_per_batch_avg",
    "requests": "produce_request_total",
    "retries": "record_retry_total",
    "bytes_sent": "batch_byte_total",
}


def _counted(progress: Progress) -> str:
    records = "record" if progress.acknowledged == 1 else "records"
    parts = [f"{progress.acknowledged:,} {records} acknowledged", f"{progress.failed:,} failed"]
    if progress.rejected:
        parts.append(f"{progress.rejected:,} rejected")
    if progress.outstanding:
        parts.append(f"{progress.outstanding:,} with an unknown outcome")
    return ", ".join(parts)
