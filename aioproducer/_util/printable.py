"""Text from elsewhere, such as a broker, a registry or the name of a file, as it may be shown.

Errors, log lines and the command line pass what they show through `printable`: control characters
move a terminal's cursor or change its title, and line ends forge lines of a log.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

MAX_CHARACTERS: Final = 1000
"""How much of a text is shown."""

_OF_TYPES = (TypeError, AttributeError, NameError, ImportError, OSError, UnicodeError)
"""Exceptions whose texts name types, names and files; those of others may quote the data."""

_BETWEEN = frozenset({"aioproducer", "asyncio", "concurrent"})
"""Packages that call the application's code."""


def printable(text: str, limit: int = MAX_CHARACTERS) -> str:
    r"""Return a text in which everything that is not printable is an escape such as `\x1b`.

    That includes line ends, C1 controls, bidirectional controls, invisible characters and lone
    surrogates. Of a text with more than `limit` characters, the beginning and its length are shown.
    """
    if len(text) <= limit and text.isprintable():
        return text
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:limit])
    if len(text) <= limit and len(shown) <= limit:
        return shown
    return f"{shown[:limit]}... ({len(text)} characters)"


def printable_lines(text: str) -> str:
    """Return a text of several lines, each of them printable and as long as it is."""
    return "\n".join(printable(line, sys.maxsize) for line in text.split("\n"))


def repr_of(thing: object) -> str:
    """Return the `repr` of an object of the application; its type if that raises."""
    try:
        return repr(thing)
    except Exception:
        return f"<{type(thing).__name__}, whose repr() failed>"


def exception_without_data(error: BaseException) -> str:
    """Return an exception of the application's code as it may be shown, without a record's data.

    It has the class and the line of the application that led to it. Only exceptions about types
    have their text: that of a `ValueError`, or of a validator, often quotes the value.
    """
    text = type(error).__name__
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _BETWEEN:
            file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
            text = f"{text} at {file}:{trace.tb_lineno}"
            break
        trace = trace.tb_next
    if isinstance(error, _OF_TYPES):
        with suppress(Exception):  # of an exception's __str__
            return f"{text}: {printable(str(error), 200)}"
    return text
