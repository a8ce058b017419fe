"""`aioproducer produce`: lines of standard input into a topic."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from aioproducer.cli import options
from aioproducer.cli.groups import grouped
from aioproducer.cli.load.run import LoadJob, run_load
from aioproducer.cli.pointers import run_connected
from aioproducer.loader import FileSource, LinesFormat, LoadOptions, RecordMapping
from aioproducer.loader.formats.text import KEY_VALUE_COLUMNS, MAX_ROW_BYTES
from aioproducer.loader.rows import LINE_COLUMNS

EXAMPLES = options.examples(
    "echo hello | aioproducer produce -t greetings",
    "aioproducer produce -t users -K : --header source=shell < users.txt",
    "echo ada: | aioproducer produce -t users -K : --null ''",
    "tail -f app.log | aioproducer produce -t logs -X linger.ms=100",
)


@grouped
def produce(
    *,
    topic: options.Topic,
    key_separator: Annotated[
        options.Text,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            callback=options.separator,
            help="Parts each line into its key and its value, such as : or \\t; without: the line "
            "is the value.",
        ),
    ] = None,
    null: Annotated[
        options.Text,
        typer.Option(
            "--null",
            metavar="TEXT",
            callback=options.kafka_text,
            help="The line, key or value that means null, as in a tombstone; '' for an empty one.",
        ),
    ] = None,
    header: Annotated[
        options.Texts,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of every record; repeat."),
    ] = None,
    dead_letter: Annotated[
        options.File,
        typer.Option(
            "--dead-letter",
            metavar="FILE",
            help="Where lines without a separator go, with the reason, as NDJSON; without: the "
            "first ends it.",
        ),
    ] = None,
    topic_timeout: options.TopicTimeout = options.TOPIC_TIMEOUT_S,
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Send every line of standard input as a record.

    Lines are sent as they come. Ctrl-C or the end of the input ends the command once everything
    sent is acknowledged.
    """
    columns = KEY_VALUE_COLUMNS if key_separator else LINE_COLUMNS
    mapping = RecordMapping(
        key=columns[:-1],
        value=columns[-1],
        headers=options.headers(header),
    )
    config = options.without_transactions(connection.config())
    lines = LinesFormat(
        key_separator=key_separator or None,
        max_row_bytes=max(MAX_ROW_BYTES, config.max_request_size),
        null=null,
    )
    job = LoadJob(
        config=config,
        source=FileSource("-", format=lines),
        topic=topic,
        connection=connection,
        options=LoadOptions(
            mapping=mapping,
            dead_letter=dead_letter,
            topic_timeout_s=topic_timeout,
            unsent_fail=True,
        ),
        as_json=as_json,
        brief=True,
    )
    return run_connected(partial(run_load, job), connection)
