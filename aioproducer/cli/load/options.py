"""The options of `aioproducer load`, in groups."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, cast, get_args

from aioproducer.cli import options
from aioproducer.cli.groups import option
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

_LONGEST_NAME = 200
"""Bytes: file systems have names of up to 255, and a state is written under a longer one first."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The mapping of a row."""

    panel: ClassVar[str] = "Record"

    key: Text = option(None, "--key -k COLUMNS", "The column of the key, or several: a+b.")
    key_join: str = option("+", "--key-join TEXT", "The text between the columns of a key.")
    value: Text = option(
        None, "--value COLUMN", "The column of the value. Without it, the value is the row as JSON."
    )
    raw: bool = option(
        False, "--raw", "Send the text of the row as it is. Rows of Parquet and ORC are JSON."
    )
    value_json: bool = option(False, "--value-json", "Send the row as JSON (default).")
    value_avro: Text = option(
        None,
        "--value-avro FILE|latest",
        "Send the row as Avro, by the schema in this file or the registry's latest.",
    )
    schema_registry: Text = option(
        None,
        "--schema-registry URL",
        "The schema registry for --value-avro. Default: schema.registry.url of --config, or "
        "AIOPRODUCER_SCHEMA_REGISTRY_URL. Its credentials: schema.registry.basic.auth.user.info "
        "or schema.registry.bearer.auth.token of --config, or "
        "AIOPRODUCER_SCHEMA_REGISTRY_USER_INFO or _TOKEN.",
    )
    register_schema: bool = option(False, "--register-schema", "Register the schema if it is new.")
    ignore_schema_rules: bool = option(
        False,
        "--ignore-schema-rules",
        "Send although the schema has rules for writers, such as encryption.",
    )
    header: Texts = option(
        None, "--header NAME=VALUE", "A header of every record; may be repeated."
    )
    header_column: Texts = option(
        None,
        "--header-column [NAME=]COLUMN",
        "A header with the value of a column, named like it or NAME; may be repeated.",
    )
    timestamp: Text = option(
        None,
        "--timestamp COLUMN",
        "The column of the timestamp: ISO 8601 or a number. Default: the time of sending.",
    )
    timestamp_unit: str = option(
        "ms",
        "--timestamp-unit UNIT",
        "The unit of numbers in --timestamp (since 1970): s, ms, us or ns.",
        autocompletion=options.choices(*get_args(TimestampUnit)),
    )
    partition_by: Text = option(
        None,
        "--partition-by COLUMNS",
        "Columns whose text chooses the partition, instead of the key.",
    )
    partition: Text = option(None, "--partition COLUMN", "The column of the partition's number.")

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

    panel: ClassVar[str] = "Input"

    format_: Text = option(
        None,
        "--format -f FORMAT",
        f"One of {', '.join(FORMATS)}. Default: by the file's name.",
        autocompletion=options.choices(*FORMATS),
    )
    member: Text = option(
        None, "--member PATTERN", "Load only these files of an archive, such as '*.csv'."
    )
    delimiter: Text = option(
        None,
        "--delimiter CHARACTER",
        r"CSV: the character between fields, such as ';', \t or \x1f.",
        callback=options.separator,
        show_default="comma; tab for tsv",
    )
    quote: str = option(
        '"',
        "--quote CHARACTER",
        "CSV: the character around fields that contain the delimiter; '' for none.",
        callback=options.separator,
    )
    columns: Text = option(
        None, "--columns NAMES", "CSV: names of the columns of a file without a header: a,b,c."
    )
    encoding: str = option("utf-8", "--encoding CODEC", "CSV: the encoding, by Python's name.")
    null: Text = option(
        None, "--null TEXT", "CSV: the text that means null. Default: no text does."
    )
    max_row_bytes: int = option(
        MAX_ROW_BYTES,
        "--max-row-bytes BYTES",
        "A longer row ends the load: the file is damaged.",
        min=1,
    )

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

    panel: ClassVar[str] = "Run"

    dead_letter: File = option(
        None,
        "--dead-letter FILE",
        "The file for bad rows and their reasons (NDJSON). Without it, the first ends the load.",
    )
    state: File = option(
        None,
        "--state FILE",
        "The file for the position. If you name one, it is kept after the load.",
        show_default="INPUT.TOPIC.load-state.json",
    )
    resume: bool = option(False, "--resume", "Continue after the position in the state file.")
    exactly_once: bool = option(
        False,
        "--exactly-once",
        "Commit rows and position in transactions; run the same command again to continue.",
    )
    transaction_rows: int = option(
        50_000, "--transaction-rows ROWS", "The largest number of rows per transaction.", min=1
    )
    max_outstanding: int = option(
        20_000,
        "--max-outstanding ROWS",
        "The largest number of rows in memory: read and not acknowledged yet.",
        min=1,
    )

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

    panel: ClassVar[str] = "Spark"

    engine: str = option(
        "auto",
        "--engine ENGINE",
        "local (this process), spark, or auto, which prints its choice and the reason.",
        autocompletion=options.choices(*(each.value for each in Engine)),
    )
    master: Text = option(None, "--master URL", "The Spark master.", show_default="local[*]")
    spark_conf: Texts = option(
        None, "--spark-conf KEY=VALUE", "A setting of Spark; may be repeated."
    )

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
