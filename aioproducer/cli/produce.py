"""`aioproducer produce`: lines of standard input into a topic.

Owns: the command's options. Must not know: how loading works; a line is a row like any other.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from aioproducer.cli import options
from aioproducer.cli.interrupts import run_command
from aioproducer.cli.loading import LoadJob, run_load
from aioproducer.loader import FileSource, LinesFormat, LoadOptions, RecordMapping
from aioproducer.loader.formats import KEY_VALUE_COLUMNS


def produce(
    *,
    topic: options.Topic,
    key_separator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--key-separator", "-K", help="A line is KEY, this, VALUE."),
    ] = None,
    header: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--header", metavar="NAME=VALUE", help="A header of every record."),
    ] = None,
    dead_letter: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--dead-letter", help="Where lines without a separator go."),
    ] = None,
    as_json: options.AsJson = False,
    bootstrap_server: options.BootstrapServer = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
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
        config=options.producer_config(bootstrap_server, config_file, properties),
        source=FileSource("-", format=LinesFormat(key_separator=key_separator or None)),
        topic=topic,
        options=LoadOptions(mapping=mapping, dead_letter=dead_letter),
        as_json=as_json,
        brief=True,
    )
    return run_command(partial(run_load, job))
