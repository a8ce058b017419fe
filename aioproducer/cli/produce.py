"""`aioproducer produce`: lines of standard input into a topic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from aioproducer.cli import options
from aioproducer.cli.groups import grouped, option, parameter
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


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """The options for what a line becomes."""

    key_separator: options.Text = option(
        None,
        "--key-separator -K TEXT",
        "The text between key and value of a line, such as : or \\t. Default: the line is "
        "the value.",
        callback=options.separator,
    )
    null: options.Text = option(
        None,
        "--null TEXT",
        "The text of a line, key or value that means null, such as ''.",
        callback=options.kafka_text,
    )
    header: options.Texts = option(
        None, "--header NAME=VALUE", "A header of every record; may be repeated."
    )

    def mapping(self) -> RecordMapping:
        """Return the parts of a record, from the columns of a line."""
        columns = KEY_VALUE_COLUMNS if self.key_separator else LINE_COLUMNS
        return RecordMapping(
            key=columns[:-1], value=columns[-1], headers=options.headers(self.header)
        )

    def format(self, max_request_size: int) -> LinesFormat:
        """Return how lines are read."""
        return LinesFormat(
            key_separator=self.key_separator or None,
            max_row_bytes=max(MAX_ROW_BYTES, max_request_size),
            null=self.null,
        )


@grouped
def produce(
    *,
    topic: options.Topic,
    lines: LineOptions,
    dead_letter: Annotated[
        options.File,
        parameter(
            "--dead-letter FILE",
            "The file for lines without a separator and the reason (NDJSON). Without it, the "
            "first ends the command.",
        ),
    ] = None,
    topic_timeout: options.TopicTimeout = options.TOPIC_TIMEOUT_S,
    as_json: options.AsJson = False,
    connection: options.Connection,
) -> int:
    """Send every line of standard input as a record.

    Lines are sent as they arrive. At the end of the input, or after Ctrl-C, the command ends when
    all lines are acknowledged.
    """
    config = options.without_transactions(connection.config())
    job = LoadJob(
        config=config,
        source=FileSource("-", format=lines.format(config.max_request_size)),
        topic=topic,
        connection=connection,
        options=LoadOptions(
            mapping=lines.mapping(),
            dead_letter=dead_letter,
            topic_timeout_s=topic_timeout,
            unsent_fail=True,
        ),
        as_json=as_json,
        brief=True,
    )
    return run_connected(partial(run_load, job), connection)
