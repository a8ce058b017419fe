"""`aioproducer load`: files into a topic.

Owns: the command's options and their way into the loader. Must not know: how loading works.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from aioproducer.cli import options
from aioproducer.cli.groups import grouped
from aioproducer.cli.interrupts import run_command
from aioproducer.cli.loading import LoadJob, run_load
from aioproducer.cli.options import File, Text, Texts
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.loader import (
    FORMATS,
    CsvFormat,
    FileSource,
    Format,
    LinesFormat,
    LoadOptions,
    NdjsonFormat,
    RecordMapping,
)
from aioproducer.loader.formats import MAX_ROW_BYTES
from aioproducer.loader.values import TimestampUnit

PRODUCER_DEFAULTS: Mapping[str, Any] = {"linger_ms": 20, "batch_size": 128 * 1024}
"""A load has many records at hand: larger batches than a service's cost it no latency."""


def _about(panel: str, *names: str, **given: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **given)


_record = partial(_about, "What becomes of a row")
_input = partial(_about, "Input")
_run = partial(_about, "Run")


_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What becomes of a row."""

    key: Annotated[
        Text, _record("--key", "-k", metavar="COLUMNS", help="The key: a column, or columns a+b.")
    ] = None
    key_join: Annotated[
        str, _record("--key-join", metavar="TEXT", help="Stands between a key's columns.")
    ] = "+"
    value: Annotated[
        Text, _record("--value", metavar="COLUMN", help="The value; without: the row as JSON.")
    ] = None
    raw: Annotated[
        bool, _record("--raw", help="The value is the row's own text, as it stands in the input.")
    ] = False
    header: Annotated[
        Texts, _record("--header", metavar="NAME=VALUE", help="A header of every record; repeat.")
    ] = None
    header_column: Annotated[
        Texts,
        _record(
            "--header-column",
            metavar="[NAME=]COLUMN",
            help="A header from a column, by the column's name unless given another; repeat.",
        ),
    ] = None
    timestamp: Annotated[
        Text,
        _record(
            "--timestamp",
            metavar="COLUMN",
            help="The record's time: ISO 8601, or a number; without: the time of sending.",
        ),
    ] = None
    timestamp_unit: Annotated[
        str,
        _record(
            "--timestamp-unit",
            metavar="UNIT",
            help="Of numbers in --timestamp, since 1970: s, ms, us or ns.",
            autocompletion=options.choices(*_UNITS),
        ),
    ] = "ms"
    partition_by: Annotated[
        Text,
        _record(
            "--partition-by",
            metavar="COLUMNS",
            help="Columns whose text is hashed to choose the partition, in place of the key.",
        ),
    ] = None
    partition: Annotated[
        Text, _record("--partition", metavar="COLUMN", help="A column with the partition's number.")
    ] = None

    def mapping(self) -> RecordMapping:
        """As the loader knows it."""
        return RecordMapping(
            key=options.names(self.key),
            key_join=self.key_join,
            value=self.value,
            value_format="raw" if self.raw else "json",
            headers=options.headers(self.header),
            header_columns=_header_columns(self.header_column),
            timestamp=self.timestamp,
            timestamp_unit=cast("TimestampUnit", self.timestamp_unit),
            partition=self.partition,
            partition_by=options.names(self.partition_by),
        )


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What the files hold."""

    format_: Annotated[
        Text,
        _input(
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"One of {', '.join(FORMATS)}; without: by the file's name.",
            autocompletion=options.choices(*FORMATS),
        ),
    ] = None
    member: Annotated[
        Text,
        _input("--member", metavar="PATTERN", help="Only these files of an archive: '*.csv'."),
    ] = None
    delimiter: Annotated[
        Text,
        _input(
            "--delimiter",
            metavar="CHARACTER",
            help="CSV: what stands between fields.",
            show_default="comma; tab for tsv",
        ),
    ] = None
    columns: Annotated[
        Text,
        _input(
            "--columns", metavar="NAMES", help="CSV: the columns a,b,c of a file without a header."
        ),
    ] = None
    encoding: Annotated[
        str, _input("--encoding", metavar="CODEC", help="CSV: of the text, in Python's names.")
    ] = "utf-8"
    null: Annotated[
        Text, _input("--null", metavar="TEXT", help="CSV: the text that means null; none if not.")
    ] = None
    max_row_bytes: Annotated[
        int,
        _input(
            "--max-row-bytes", metavar="BYTES", min=1, help="A longer row is damage, not a row."
        ),
    ] = MAX_ROW_BYTES

    def source(self, files: Sequence[str]) -> FileSource:
        """As the loader knows it."""
        table = CsvFormat(
            columns=options.names(self.columns) or None,
            encoding=self.encoding,
            null=self.null,
            max_row_bytes=self.max_row_bytes,
        )
        formats = _formats(table, self.delimiter)
        return FileSource(files, format=self.format_, formats=formats, member=self.member)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the load goes on, and what it leaves."""

    dead_letter: Annotated[
        File,
        _run(
            "--dead-letter",
            metavar="FILE",
            help="Where bad rows go, with their reasons, as NDJSON; without: the first ends it.",
        ),
    ] = None
    state: Annotated[
        File,
        _run(
            "--state",
            metavar="FILE",
            help="Where the position is kept; given, the file stays when all is loaded.",
            show_default="INPUT.TOPIC.load-state.json here",
        ),
    ] = None
    resume: Annotated[
        bool, _run("--resume", help="Go on where the last run ended, by its state file.")
    ] = False
    exactly_once: Annotated[
        bool,
        _run(
            "--exactly-once",
            help="In transactions that hold the position too: run it again, and it goes on.",
        ),
    ] = False
    transaction_rows: Annotated[
        int,
        _run("--transaction-rows", metavar="ROWS", min=1, help="At most so many per transaction."),
    ] = 50_000
    max_outstanding: Annotated[
        int,
        _run(
            "--max-outstanding",
            metavar="ROWS",
            min=1,
            help="At most so many that are read and not acknowledged: the bound of memory.",
        ),
    ] = 20_000

    def load_options(self, files: Sequence[str], topic: str, mapping: RecordMapping) -> LoadOptions:
        """As the loader knows it."""
        state = self.state
        if state is None and not self.exactly_once:
            state = _default_state(files, topic)
        return LoadOptions(
            mapping=mapping,
            dead_letter=self.dead_letter,
            state=state,
            resume=self.resume,
            exactly_once=self.exactly_once,
            transaction_rows=self.transaction_rows,
            max_outstanding=self.max_outstanding,
        )


EXAMPLES = options.examples(
    "aioproducer load orders.csv -t orders --key id --timestamp ordered_at",
    "aioproducer load logs.ndjson.gz -t logs --raw --dead-letter bad.ndjson",
    "aioproducer load orders.csv -t orders --key id --resume",
    "cat events.ndjson | aioproducer load - -f ndjson -t events",
    "aioproducer load archive.zip --member '*.csv' -t orders --exactly-once",
)


@grouped
def load(
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Files, gzipped or zipped too; - is standard input."
        ),
    ],
    topic: options.Topic,
    record: RecordOptions,
    given: InputOptions,
    run: RunOptions,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    connection: options.Connection,
) -> int:
    """Load CSV, NDJSON, Parquet or text files, gzipped and zipped ones too, into a topic.

    Bad rows go to the --dead-letter file; without one the first ends the load. Ctrl-C ends the
    reading, delivers what was accepted and says how to go on. Delivery is at least once; with
    --exactly-once the rows are committed with their position, so that read_committed consumers see
    each once however often a load dies and is run again.
    """
    config = connection.config(**PRODUCER_DEFAULTS)
    job = LoadJob(
        config=transactional(config, files, topic) if run.exactly_once else config,
        source=given.source(files),
        topic=topic,
        options=run.load_options(files, topic, record.mapping()),
        keep_state=run.state is not None or run.resume,
        quiet=quiet,
        as_json=as_json,
    )
    return run_command(partial(run_load, job))


def transactional(config: ProducerConfig, files: Sequence[str], topic: str) -> ProducerConfig:
    """The configuration of a load that is exactly once.

    Its transactional id stands for the load: the same files into the same topic, unless given.

    Raises:
        ConfigError: an option excludes transactions.
    """
    if config.transactional_id is not None:
        return config
    what = "\n".join([topic, *(os.path.realpath(file) for file in files)])
    digest = sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    # Asked for by name, so that the error says which option excludes it.
    asked = {} if "enable_idempotence" in config.explicitly_set else {"enable_idempotence": True}
    try:
        return config.replace(transactional_id=f"aioproducer-load-{digest}", **asked)
    except ConfigError as error:
        raise ConfigError(f"--exactly-once: {error}") from error


def _formats(table: CsvFormat, delimiter: str | None) -> Mapping[str, Format]:
    return {
        **FORMATS,
        "csv": replace(table, delimiter=delimiter or ","),
        "tsv": replace(table, delimiter=delimiter or "\t"),
        "ndjson": NdjsonFormat(table.max_row_bytes),
        "lines": LinesFormat(max_row_bytes=table.max_row_bytes),
    }


def _header_columns(texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """`NAME=COLUMN`, or just `COLUMN` for a header of the column's name."""
    return tuple(
        options.pair(text, "--header-column") if "=" in text else (text, text)
        for text in texts or ()
    )


def _default_state(files: Sequence[str], topic: str) -> Path | None:
    """A file in the working directory; none where nothing can be written and nobody asked."""
    if not os.access(Path(), os.W_OK):
        return None
    name = "stdin" if files[0] == "-" else Path(files[0]).name
    return Path(f"{name}.{topic.replace('/', '_')}.load-state.json")
