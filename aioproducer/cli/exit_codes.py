"""The exit codes of every command: one table, for scripts to rely on.

| code | meaning |
|---|---|
| 0 | everything asked for was done |
| 1 | it ran to its end, but some records failed or were rejected; or a bad row ended it |
| 2 | the command line or an option is wrong |
| 3 | the cluster cannot be reached, stopped answering, or could not be started |
| 4 | the input is missing, unreadable or damaged |
| 5 | the cluster refused (authorization, unknown topic, ...) |
| 6 | the dead-letter or state file cannot be used |
| 70 | a bug in aioproducer |
| 130 | interrupted by Ctrl-C (SIGINT); what was accepted is delivered and counted |
| 141 | standard output was closed by its reader (broken pipe) |
| 143 | ended by SIGTERM, otherwise as 130 |
"""

from __future__ import annotations

from enum import IntEnum

from aioproducer import errors
from aioproducer.loader import (
    DeadLetterError,
    MappingError,
    RejectedRowError,
    SourceError,
    StateError,
)


class ExitCode(IntEnum):
    """What a command's exit code means."""

    OK = 0
    SOME_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INPUT = 4
    REFUSED = 5
    FILES = 6
    BUG = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


_BY_ERROR: tuple[tuple[type[Exception], ExitCode], ...] = (
    (RejectedRowError, ExitCode.SOME_FAILED),
    (SourceError, ExitCode.INPUT),
    (MappingError, ExitCode.USAGE),
    (DeadLetterError, ExitCode.FILES),
    (StateError, ExitCode.FILES),
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
    """The exit code an error ends a command with."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.BUG)
