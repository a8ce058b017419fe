"""The commands put together, and how every error ends one.

Invariant: people see one or two lines, never a traceback, unless `AIOPRODUCER_DEBUG` is set.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from aioproducer import __version__
from aioproducer._util.printable import printable
from aioproducer.cli import cluster, console, doctor, option_help, produce, topic_reading, topics
from aioproducer.cli.commands import Command, Group
from aioproducer.cli.exit_codes import ExitCode, exit_code_for
from aioproducer.cli.groups import parameter
from aioproducer.cli.load import command as load
from aioproducer.cli.perf import command as perf
from aioproducer.errors import KafkaError

_EXIT_CODES = "\n".join(
    ["Exit codes:", *(f"  {int(code):>3}  {code.meaning}" for code in ExitCode)]
)

app: typer.Typer = typer.Typer(
    name="aioproducer",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=load.EXAMPLES, cls=Command)(load.load)
app.command(epilog=produce.EXAMPLES, cls=Command)(produce.produce)
app.command(epilog=doctor.EXAMPLES, cls=Command)(doctor.doctor)
app.command(epilog=perf.EXAMPLES, cls=Command)(perf.perf)
app.command(epilog=cluster.EXAMPLES, cls=Command)(cluster.cluster)
app.command("options", epilog=option_help.EXAMPLES, cls=Command)(option_help.show_options)
topics.app.command("read", epilog=topic_reading.EXAMPLES, cls=Command)(topic_reading.read)
app.add_typer(topics.app, name="topics")


def _print_version(wanted: bool) -> None:
    if wanted:
        console.write_line(f"aioproducer {__version__}")
        raise typer.Exit


@app.callback()
def aioproducer(
    version: Annotated[
        bool,
        parameter("--version", "Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Send lines, files and tables to Apache Kafka, and find out why a cluster cannot be used."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    try:
        return int(_invoke(list(arguments)) or 0)
    except console.OutputClosedError:
        console.abandon_stdout()
        console.say("standard output was closed (broken pipe)")
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except KafkaError as error:
        if isinstance(error, console.OutputError):
            console.abandon_stdout()
        console.say(console.one_or_two_lines(error))
        return exit_code_for(error)
    except Exception as error:
        return _bug(error)


def _invoke(arguments: list[str]) -> Any:
    try:
        return app(arguments, prog_name="aioproducer", standalone_mode=False)
    except Exception as error:
        # Click's own errors have a method `show`; typer may contain another click, so they are
        # recognized by that method.
        show = getattr(error, "show", None)
        if show is None:
            raise
        if sys.stderr is not None:  # click would write to standard output
            with suppress(OSError):
                show(file=sys.stderr)
        return ExitCode.USAGE


def _bug(error: Exception) -> int:
    if os.environ.get("AIOPRODUCER_DEBUG"):
        traceback.print_exc()
    console.say(
        f"internal error: {type(error).__name__}: {printable(str(error))}\n"
        "  This is a bug; set AIOPRODUCER_DEBUG=1 to see where it happens."
    )
    return ExitCode.BUG
