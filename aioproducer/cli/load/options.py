"""The options of `aioproducer load`, in groups."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from aioproducer.cli import options
from aioproducer.cli.load.avro import avro_encoder
from aioproducer.cli.load.engines import Engine
from aioproducer.cli.options import File, Text, Texts
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
from aioproducer.loader.formats.text import MAX_ROW_BYTES
from aioproducer.loader.values import TimestampUnit

_record: Any = partial(typer.Option, rich_help_panel="What becomes of a row")
_input: Any = partial(typer.Option, rich_help_panel="Input")
_run: Any = partial(typer.Option, rich_help_panel="Run")
_spark: Any = partial(typer.Option, rich_help_panel="Spark")

_LONGEST_NAME = 200
"""Bytes: file systems have names of up to 255, and a state is written under a longer one first."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The mapping of a row."""

    key: Annotated[
        Text, _record("--key", "-k", metavar="COLUMNS", help="The key: a column, or columns a+b.")
    ] = None
    key_join: Annotated[
        str, _record("--key-join", metavar="TEXT", help="Separator of a key's columns.")
    ] = "+"
    value: Annotated[
        Text, _record("--value", metavar="COLUMN", help="The value; without: the row as JSON.")
    ] = None
    raw: Annotated[
        bool,
        _record(
            "--raw", help="The value is the row's own text; Parquet and ORC have none, so JSON."
        ),
    ] = False
    value_json: Annotated[bool, _record("--value-json", help="The row as JSON (default).")] = False
    value_avro: Annotated[
        Text,
        _record(
            "--value-avro",
            metavar="FILE|latest",
            help="The row as Avro, by a schema in a file or the registry's latest.",
        ),
    ] = None
    schema_registry: Annotated[
        Text,
        _record(
            "--schema-registry",
            metavar="URL",
            help="The registry with --value-avro's schema; else schema.registry.url in the file of "
            "--config, or AIOPRODUCER_SCHEMA_REGISTRY_URL. Credentials: "
            "schema.registry.basic.auth.user.info or schema.registry.bearer.auth.token there, or "
            "AIOPRODUCER_SCHEMA_REGISTRY_USER_INFO or _TOKEN.",
        ),
    ] = None
    register_schema: Annotated[
        bool, _record("--register-schema", help="Register the schema if it is new.")
    ] = False
    ignore_schema_rules: Annotated[
        bool,
        _record(
            "--ignore-schema-rules",
            help="Write although the schema has rules for writers, such as encryption.",
        ),
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
            autocompletion=options.choices(*get_args(TimestampUnit)),
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

    def mapping(self, topic: str, registry: Mapping[str, str] | None = None) -> RecordMapping:
        """Return the `RecordMapping`; `registry` has the options of `--config` for a registry."""
        if self.value_json and (self.value is not None or self.raw or self.value_avro is not None):
            raise ConfigError("--value-json excludes --value, --raw and --value-avro")
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
            value_encoder=avro_encoder(
                self.value_avro,
                self.schema_registry,
                topic,
                register=self.register_schema,
                ignore_rules=self.ignore_schema_rules,
                given=registry,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """The content of the files."""

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
        Text, _input("--member", metavar="PATTERN", help="Only these files of an archive: '*.csv'.")
    ] = None
    delimiter: Annotated[
        Text,
        _input(
            "--delimiter",
            metavar="CHARACTER",
            callback=options.separator,
            help=r"CSV: the separator of fields, such as ';', \t or \x1f.",
            show_default="comma; tab for tsv",
        ),
    ] = None
    quote: Annotated[
        str,
        _input(
            "--quote",
            metavar="CHARACTER",
            callback=options.separator,
            help="CSV: what encloses a field with separators; '' if nothing does.",
        ),
    ] = '"'
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

    def formats(self) -> Mapping[str, Format]:
        """Return how each format is read."""
        table = CsvFormat(
            quote=self.quote or None,
            columns=options.names(self.columns) or None,
            encoding=self.encoding,
            null=self.null,
            max_row_bytes=self.max_row_bytes,
        )
        return {
            **FORMATS,
            "csv": replace(table, delimiter=self.delimiter or ","),
            "tsv": replace(table, delimiter=self.delimiter or "\t"),
            "ndjson": NdjsonFormat(self.max_row_bytes),
            "lines": LinesFormat(max_row_bytes=self.max_row_bytes),
        }

    def source(self, files: Sequence[str]) -> FileSource:
        """Return the `FileSource` for these files."""
        return FileSource(files, format=self.format_, formats=self.formats(), member=self.member)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The course of the load, and the files it leaves."""

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

    def load_options(
        self, files: Sequence[str], topic: str, mapping: RecordMapping, topic_timeout_s: float
    ) -> LoadOptions:
        """Return the `LoadOptions`, with the default state file unless another one is given."""
        state = self.state
        if state is None and not self.exactly_once:
            state = _default_state(files, topic)
        return LoadOptions(
            mapping=mapping,
            dead_letter=self.dead_letter,
            state=state,
            resume=self.resume,
            exactly_once=self.exactly_once,
            topic_timeout_s=topic_timeout_s,
            transaction_rows=self.transaction_rows,
            max_outstanding=self.max_outstanding,
        )


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The engine of the load."""

    engine: Annotated[
        str,
        _spark(
            "--engine",
            metavar="ENGINE",
            help="auto, local (this process) or spark; auto says which and why.",
            autocompletion=options.choices(*(each.value for each in Engine)),
        ),
    ] = "auto"
    master: Annotated[
        Text, _spark("--master", metavar="URL", help="Where Spark runs.", show_default="local[*]")
    ] = None
    spark_conf: Annotated[
        Texts, _spark("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark's; repeat.")
    ] = None

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark that `--spark-conf` gives."""
        return dict(options.pair(text, "--spark-conf") for text in self.spark_conf or ())


def _header_columns(texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Split `NAME=COLUMN`; `COLUMN` alone names the header as well."""
    return tuple(
        options.pair(text, "--header-column") if "=" in text else (text, text)
        for text in texts or ()
    )


def _default_state(files: Sequence[str], topic: str) -> Path | None:
    """Return a state file in the working directory, or None if that is not writable."""
    if not os.access(Path(), os.W_OK):
        return None
    name = "stdin" if files[0] == "-" else Path(files[0]).name
    of_load = f"{name}.{topic.replace('/', '_')}"
    if len(of_load.encode("utf-8", "surrogateescape")) > _LONGEST_NAME:
        digest = sha256(of_load.encode("utf-8", "surrogateescape")).hexdigest()
        of_load = f"{of_load[:40]}-{digest[:16]}"
    return Path(f"{of_load}.load-state.json")
