"""The errors that `aioproducer doctor` explains, and its command line.

Invariant: no secret is shown, whichever client's name it was given under.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from aioproducer import errors
from aioproducer.cli.interrupts import Interrupts, run_command
from aioproducer.cli.options import Connection
from aioproducer.config.names import verdict_on
from aioproducer.config.reading import option_set_by
from aioproducer.config.verdicts import WithoutEffect

_FOR_DOCTOR = (
    errors.AuthenticationError,
    errors.AuthorizationError,
    errors.DeliveryTimeoutError,
    errors.KafkaConnectionError,
    errors.ProtocolError,
    errors.RequestTimeoutError,
)
"""Trouble on the way to the cluster; a plain `KafkaTimeoutError` is, too."""

_HIDDEN = "***"
_USER_IN_URL = re.compile(r"://[^/@\s]+@")


def doctor_command(connection: Connection) -> str:
    """Return the shell command that examines the connection to the same cluster."""
    return shlex.join(["aioproducer", "doctor", *_arguments(connection)])


def create_command(connection: Connection, topic: str) -> str:
    """Return the shell command that creates a topic in the same cluster."""
    return shlex.join(["aioproducer", "topics", "create", topic, *_arguments(connection)])


def pointed_to_doctor(error: errors.KafkaError, command: str) -> errors.KafkaError:
    """Return the error, with a note on the `doctor` command if that can examine its cause."""
    is_timeout = type(error) is errors.KafkaTimeoutError
    if command and (is_timeout or isinstance(error, _FOR_DOCTOR)):
        note = f"to find the cause step by step: {command}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
    return error


def run_connected(
    command: Callable[[Interrupts], Coroutine[Any, Any, int]], connection: Connection
) -> int:
    """Run a command's coroutine as `run_command`; its errors point to `doctor`."""
    try:
        return run_command(command)
    except errors.KafkaError as error:
        pointed_to_doctor(error, doctor_command(connection))
        raise


def _arguments(connection: Connection) -> list[str]:
    found: list[str] = []
    if connection.bootstrap_server is not None:
        found += ["-b", connection.bootstrap_server]
    if connection.config_file is not None:
        found += ["--config", str(Path(connection.config_file))]
    for text in connection.properties or ():
        name, _, value = text.partition("=")
        found += ["-X", f"{name}={_HIDDEN if _is_secret(name, value) else value}"]
    return found


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value is hidden: that of a pointer to a secret, or of an unknown option."""
    if _USER_IN_URL.search(value):
        return True
    row = option_set_by(name)
    if row is not None:
        return row.secret
    # Another client's name that sets nothing here may be for a secret.
    return isinstance(verdict_on(name), WithoutEffect)
