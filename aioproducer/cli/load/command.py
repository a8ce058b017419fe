"""`aioproducer load`: files into a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

import typer

from aioproducer._util.paths import real_path
from aioproducer.cli import options
from aioproducer.cli.console import say
from aioproducer.cli.groups import grouped
from aioproducer.cli.load.engines import Engine, Wanted, choose
from aioproducer.cli.load.options import EngineOptions, InputOptions, RecordOptions, RunOptions
from aioproducer.cli.load.run import LoadJob, run_load
from aioproducer.cli.load.spark import SparkJob, for_tasks, run_spark_load
from aioproducer.cli.pointers import run_connected
from aioproducer.config import ProducerConfig
from aioproducer.config.permissions import pass_on
from aioproducer.errors import ConfigError
from aioproducer.spark.loading.files import is_remote
from aioproducer.spark.loading.options import SparkLoadOptions

PRODUCER_DEFAULTS: Mapping[str, Any] = {"linger_ms": 20, "batch_size": 128 * 1024}
"""A load has many records at hand: larger batches than a service's cost it no latency."""

EXAMPLES = options.examples(
    "aioproducer load orders.csv -t orders --key id --timestamp ordered_at",
    "aioproducer load logs.ndjson.gz -t logs --raw --dead-letter bad.ndjson",
    "aioproducer load orders.csv -t orders --key id --resume",
    "cat events.ndjson | aioproducer load - -f ndjson -t events",
    "aioproducer load archive.zip --member '*.csv' -t orders --exactly-once",
    "aioproducer load warehouse/orders -t orders --engine spark --master 'local[4]'",
)


@grouped
def load(
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Files, also gzipped or zipped; - is standard input."
        ),
    ],
    topic: options.Topic,
    record: RecordOptions,
    given: InputOptions,
    run: RunOptions,
    work: EngineOptions,
    topic_timeout: options.TopicTimeout = options.TOPIC_TIMEOUT_S,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    connection: options.Connection,
) -> int:
    """Load CSV, NDJSON, Parquet, ORC, Avro or text files into a topic, also gzipped or zipped.

    Folders, remote file systems and large inputs are loaded by Spark.

    Bad rows are written to the --dead-letter file; without one, the first ends the load. Ctrl-C
    stops reading, delivers what was accepted and prints how to resume. Delivery is at least once.
    With --exactly-once the rows are committed with their position, so read_committed consumers
    see each row once, even if the load crashes and is run again.
    """
    config = connection.config(**PRODUCER_DEFAULTS)
    named = transactional(config, files, topic) if run.exactly_once else config
    wanted = run.load_options(
        files, topic, record.mapping(topic, connection.registry()), topic_timeout
    )
    keep_state = run.state is not None or run.resume
    choice = choose(work.engine, Wanted(files, given.format_, given.member, work.master))
    if not quiet:
        say(f"engine: {choice.engine.value} ({choice.reason})")
    if choice.engine is Engine.SPARK:
        spark_job = SparkJob(
            config=config,
            options=SparkLoadOptions(
                inputs=tuple(files),
                topic=topic,
                kafka=for_tasks(connection.given()),
                formats=given.formats(),
                format=given.format_,
                load=wanted,
                load_id=named.transactional_id if run.exactly_once else None,
                topic_timeout_s=topic_timeout,
            ),
            connection=connection,
            master=work.master or "local[*]",
            settings=work.settings(),
            keep_state=keep_state,
            quiet=quiet,
            as_json=as_json,
        )
        pass_on(connection.allowed())
        return run_connected(partial(run_spark_load, spark_job), connection)
    if not run.exactly_once:
        options.without_transactions(named, otherwise=", or add --exactly-once")
    job = LoadJob(
        config=named,
        source=given.source(files),
        topic=topic,
        connection=connection,
        options=wanted,
        keep_state=keep_state,
        quiet=quiet,
        as_json=as_json,
    )
    return run_connected(partial(run_load, job), connection)


def transactional(config: ProducerConfig, files: Sequence[str], topic: str) -> ProducerConfig:
    """Return the configuration of an exactly-once load.

    Its transactional id names the load: the same files into the same topic, unless given.
    """
    if config.transactional_id is not None:
        return config
    names = (file if is_remote(file) else real_path(file) for file in files)
    what = "\n".join([topic, *names])
    digest = sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    # Asked for by name, so that the error says which option excludes it.
    asked: dict[str, Any] = {"transactional_id": f"aioproducer-load-{digest}"}
    if "enable_idempotence" not in config.explicitly_set:
        asked["enable_idempotence"] = True
    try:
        return config.replace(**asked)
    except ConfigError as error:
        raise ConfigError(f"--exactly-once: {error}") from error
