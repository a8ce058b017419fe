"""The exit codes of every command: one table, for scripts to rely on.

Invariant: a code keeps its meaning; `aioproducer --help` and the documentation show this table.
"""

from __future__ import annotations

from enum import IntEnum

from aioproducer import errors
from aioproducer.cli.console import FileError
from aioproducer.loader import (
    DeadLetterError,
    MappingError,
    RejectedRowError,
    SourceError,
    StateError,
)


class ExitCode(IntEnum):
    """The meaning of a command's exit code."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """Return a code and its meaning."""
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    OK = 0, "everything asked for was done"
    SOME_FAILED = (
        1,
        "it ran to its end, but some records failed or were rejected; or a bad row ended it",
    )
    USAGE = 2, "the command line or an option is wrong"
    UNREACHABLE = 3, "the cluster cannot be reached, stopped answering, or could not be started"
    INPUT = 4, "the input is missing, unreadable or damaged"
    REFUSED = 5, "the cluster refused, or is not as it should be (authorization, topic, TLS, ...)"
    FILES = 6, "a file the command writes (dead letters, state, histogram, output) cannot be used"
    BUG = 70, "a bug in aioproducer"
    TERMINAL_CLOSED = 129, "ended by SIGHUP (the terminal was closed), otherwise as 130"
    INTERRUPTED = 130, "interrupted by Ctrl-C (SIGINT); what was accepted is delivered and counted"
    BROKEN_PIPE = 141, "standard output was closed by its reader (broken pipe)"
    TERMINATED = 143, "ended by SIGTERM, otherwise as 130"


_BY_ERROR: tuple[tuple[type[Exception], ExitCode], ...] = (
    (RejectedRowError, ExitCode.SOME_FAILED),
    (SourceError, ExitCode.INPUT),
    (MappingError, ExitCode.USAGE),
    (DeadLetterError, ExitCode.FILES),
    (StateError, ExitCode.FILES),
    (FileError, ExitCode.FILES),
    (errors.ConfigError, ExitCode.USAGE),
    (errors.UnsupportedCodecError, ExitCode.USAGE),
    (errors.RecordTooLargeError, ExitCode.SOME_FAILED),
    (errors.KafkaTimeoutError, ExitCode.UNREACHABLE),
    (errors.KafkaConnectionError, ExitCode.UNREACHABLE),
    (errors.ProtocolError, ExitCode.UNREACHABLE),
    (errors.KafkaError, ExitCode.REFUSED),
)
"""The first row that fits decides."""


def exit_code_for(error: BaseException) -> ExitCode:
    """Return the exit code an error ends a command with."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.BUG)
