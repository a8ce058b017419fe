"""Output for people: messages, tables, numbers.

Invariants
- Results go to standard output, everything else to standard error.
- A closed standard error never ends a command; a closed standard output ends it with
  `OutputClosedError`, and one that cannot be written with `OutputError`, after the work is done.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from aioproducer._util.printable import printable_lines
from aioproducer.errors import KafkaError

_HANGING = 6


class OutputClosedError(Exception):
    """Standard output was closed. No `OSError`, for which click exits on its own."""


class FileError(KafkaError):
    """A file a command is to write cannot be written."""


class OutputError(FileError):
    """Standard output is open and cannot be written, as a file on a full disk."""


class Output(Console):
    """A rich console that leaves a broken pipe to its caller.

    Names of topics, hosts and files may come from anywhere: markup is off, and what is not
    printable is escaped.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render as rich does, in printable text."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable_lines(segment.text))

    def on_broken_pipe(self) -> None:
        """Rich would redirect standard output and exit, whatever is still to be delivered."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def err() -> Output:
    """Return the console of standard error."""
    return Output(stderr=True, soft_wrap=True)


def say(message: str, *, style: str | None = None) -> None:
    """Print a message for people on standard error; it is lost if that is closed."""
    with suppress(OSError):
        err().print(f"aioproducer: {message}", style=style)


def one_or_two_lines(error: BaseException) -> str:
    """Return an error for people: what happened, and on a second line what to do."""
    what, advice = str(error), getattr(error, "advice", None) or ""
    what = what.removesuffix(f" -> {advice}") if advice else what
    headline = " ".join(what.split()) or type(error).__name__
    notes: list[str] = getattr(error, "__notes__", [])
    todo = "; ".join(part for part in (advice.rstrip("."), *notes) if part)
    return f"{headline}\n  {todo}" if todo else headline


def print_json(content: Mapping[str, Any]) -> None:
    """Print one line of JSON on standard output."""
    write_line(json.dumps(content, default=str))


def write_line(text: str) -> None:
    """Print one line on standard output, at once; names in it have to be printable."""
    with standard_output():
        sys.stdout.write(f"{text}\n")


def write_data(text: str) -> None:
    """Print one line on standard output, in UTF-8; what `surrogateescape` has kept as it was."""
    with standard_output():
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "surrogateescape"))


def print_text(text: Text, *, indent: int = 0) -> None:
    """Print styled text on standard output, at once.

    On a terminal its lines are broken to fit. All but the first are indented more, so that no text
    from elsewhere begins a line as a finding or a verdict does.
    """
    console = Output()
    with standard_output():
        if console.is_terminal:
            lines = text.wrap(console, max(20, console.width - indent - _HANGING))
            console.print(Padding(Text("\n" + " " * _HANGING).join(lines), (0, 0, 0, indent)))
        else:
            console.print(Text(" " * indent) + text, soft_wrap=True)


def print_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Print a table of two columns on standard output."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in facts:
        table.add_row(name, value)
    with standard_output():
        Output(soft_wrap=True).print(table)


@contextmanager
def standard_output() -> Iterator[None]:
    """Write to standard output within the block, which is flushed at its end."""
    if sys.stdout is None:  # closed before the command began
        raise OutputClosedError
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As for standard error: a character that its encoding has not does not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot write to standard output: {reason}") from error


def abandon_stdout() -> None:
    """Keep the interpreter from failing again when it flushes standard output at exit."""
    if sys.stdout is None:
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def megabytes(size: float) -> str:
    """Return bytes as MB (10^6)."""
    return f"{size / 1e6:,.1f} MB"
