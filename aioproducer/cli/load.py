"""`aioproducer load`: files into a topic.

Owns: the command's options and their way into the loader. Must not know: how loading works.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Optional, cast

import typer

from aioproducer.cli import options
from aioproducer.cli.avro import avro_encoder
from aioproducer.cli.console import say
from aioproducer.cli.engines import Engine, Wanted, choose
from aioproducer.cli.interrupts import run_command
from aioproducer.cli.loading import LoadJob, run_load
from aioproducer.cli.spark_loading import SparkJob, run_spark_load, without_identity
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
from aioproducer.spark.loading.files import is_remote
from aioproducer.spark.loading.options import SparkLoadOptions

PRODUCER_DEFAULTS: Mapping[str, Any] = {"linger_ms": 20, "batch_size": 128 * 1024}
"""A load has many records at hand: larger batches than a service's cost it no latency."""


def _about(panel: str, *names: str, **given: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **given)


_record = partial(_about, "What becomes of a row")
_input = partial(_about, "Input")
_run = partial(_about, "Run")
_spark = partial(_about, "Spark")

# Typer evaluates these at run time; `Optional` is what its oldest supported release understands.
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
File = Optional[Path]  # noqa: UP045


def load(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Files; - is standard input.")
    ],
    *,
    topic: options.Topic,
    key: Annotated[Text, _record("--key", "-k", help="Column, or columns a+b.")] = None,
    key_join: Annotated[str, _record("--key-join", help="Stands between a key's columns.")] = "+",
    value: Annotated[Text, _record("--value", help="Column; without: the row as JSON.")] = None,
    raw: Annotated[bool, _record("--raw", help="The row's own text is the value.")] = False,
    value_json: Annotated[bool, _record("--value-json", help="The row as JSON (default).")] = False,
    value_avro: Annotated[
        Text, _record("--value-avro", metavar="FILE|latest", help="By a schema of a registry.")
    ] = None,
    schema_registry: Annotated[Text, _record("--schema-registry", metavar="URL")] = None,
    register_schema: Annotated[bool, _record("--register-schema", help="If it is new.")] = False,
    header: Annotated[Texts, _record("--header", metavar="NAME=VALUE", help="For all.")] = None,
    header_column: Annotated[Texts, _record("--header-column", metavar="NAME=COLUMN")] = None,
    timestamp: Annotated[Text, _record("--timestamp", help="Column: ISO 8601 or number.")] = None,
    timestamp_unit: Annotated[str, _record("--timestamp-unit", help="s, ms, us or ns.")] = "ms",
    partition_by: Annotated[Text, _record("--partition-by", help="Column(s) to hash.")] = None,
    partition: Annotated[Text, _record("--partition", help="Column with its number.")] = None,
    format_: Annotated[Text, _input("--format", "-f", help=", ".join(FORMATS))] = None,
    member: Annotated[Text, _input("--member", help="Only these in archives: '*.csv'.")] = None,
    delimiter: Annotated[Text, _input("--delimiter", help="CSV: between fields.")] = None,
    columns: Annotated[Text, _input("--columns", help="CSV: names; no header row.")] = None,
    encoding: Annotated[str, _input("--encoding", help="CSV.")] = "utf-8",
    null: Annotated[Text, _input("--null", help="CSV: the text that means null.")] = None,
    max_row_bytes: Annotated[int, _input("--max-row-bytes", min=1)] = MAX_ROW_BYTES,
    dead_letter: Annotated[File, _run("--dead-letter", help="Where bad rows go.")] = None,
    state: Annotated[File, _run("--state", help="State file; kept at the end.")] = None,
    resume: Annotated[bool, _run("--resume", help="Go on where the last run ended.")] = False,
    exactly_once: Annotated[bool, _run("--exactly-once", help="In transactions.")] = False,
    transaction_rows: Annotated[int, _run("--transaction-rows", min=1)] = 50_000,
    max_outstanding: Annotated[int, _run("--max-outstanding", min=1)] = 20_000,
    engine: Annotated[str, _spark("--engine", help="auto, local or spark.")] = "auto",
    master: Annotated[Text, _spark("--master", help="Where it runs. [default: local[*]]")] = None,
    spark_conf: Annotated[Texts, _spark("--spark-conf", metavar="KEY=VALUE")] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    bootstrap_server: options.BootstrapServer = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> int:
    """Load CSV, NDJSON, Parquet, ORC, Avro or text files, gzipped and zipped too, into a topic.

    Folders, file systems of others and large inputs are loaded by Spark.

    Bad rows go to the --dead-letter file; without one the first ends the load. Ctrl-C ends the
    reading, delivers what was accepted and says how to go on. Delivery is at least once; with
    --exactly-once the rows are committed with their position, so that read_committed consumers see
    each once however often a load dies and is run again.
    """
    if value_json and (value is not None or raw or value_avro is not None):
        raise ConfigError("--value-json excludes --value, --raw and --value-avro")
    mapping = RecordMapping(
        key=options.names(key),
        key_join=key_join,
        value=value,
        value_format="raw" if raw else "json",
        headers=options.headers(header),
        header_columns=_header_columns(header_column),
        timestamp=timestamp,
        timestamp_unit=cast("TimestampUnit", timestamp_unit),
        partition=partition,
        partition_by=options.names(partition_by),
        value_encoder=avro_encoder(value_avro, schema_registry, topic, register=register_schema),
    )
    table = CsvFormat(
        columns=options.names(columns) or None,
        encoding=encoding,
        null=null,
        max_row_bytes=max_row_bytes,
    )
    formats = _formats(table, delimiter)
    keep_state = state is not None
    config = options.producer_config(bootstrap_server, config_file, properties, **PRODUCER_DEFAULTS)
    if not exactly_once:
        state = state or _default_state(files, topic)
    choice = choose(engine, Wanted(files, format_, member, master))
    if not quiet:
        say(f"engine: {choice.engine.value} ({choice.reason})")
    if choice.engine is Engine.SPARK:
        load_id = transactional(config, files, topic).transactional_id if exactly_once else None
        given = options.producer_properties(bootstrap_server, config_file, properties)
        spark_job = SparkJob(
            config=config,
            options=SparkLoadOptions(
                inputs=tuple(files),
                topic=topic,
                kafka=without_identity(given),
                formats=formats,
                format=format_,
                mapping=mapping,
                load_id=load_id,
                dead_letter=dead_letter,
                state=state,
                resume=resume,
            ),
            master=master or "local[*]",
            settings=dict(options.pair(text, "--spark-conf") for text in spark_conf or ()),
            keep_state=keep_state or resume,
            quiet=quiet,
            as_json=as_json,
        )
        return run_command(partial(run_spark_load, spark_job))
    job = LoadJob(
        config=transactional(config, files, topic) if exactly_once else config,
        source=FileSource(files, format=format_, formats=formats, member=member),
        topic=topic,
        options=LoadOptions(
            mapping=mapping,
            dead_letter=dead_letter,
            state=state,
            resume=resume,
            exactly_once=exactly_once,
            transaction_rows=transaction_rows,
            max_outstanding=max_outstanding,
        ),
        keep_state=keep_state or resume,
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
    names = (file if is_remote(file) else os.path.realpath(file) for file in files)
    what = "\n".join([topic, *names])
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
