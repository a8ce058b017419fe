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
from aioproducer.loader.formats.text import KEY_VALUE_COLUMNS

EXAMPLES = options.examples(
    "echo hello | aioproducer produce -t greetings",
    "aioproducer produce -t users -K : --header source=shell < users.txt",
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
    column, key = KEY_VALUE_COLUMNS[1], KEY_VALUE_COLUMNS[:1]
    mapping = RecordMapping(
        key=key if key_separator else (),
        value=column if key_separator else None,
        headers=options.headers(header),
    )
    job = LoadJob(
        config=options.without_transactions(connection.config()),
        source=FileSource("-", format=LinesFormat(key_separator=key_separator or None)),
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
