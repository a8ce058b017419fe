"""The classes of the commands: help without a placeholder for the value of a flag.

Owns: the parameters as typer's help sees them. Not here: any command.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


def _flags_without_values(parameters: Iterable[Any]) -> list[Any]:
    """Typer names the type of a flag (`<bool>`) where other options have their value."""
    found = list(parameters)
    for parameter in found:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return found


class Command(TyperCommand):
    """A command whose flags take no value in its help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that click adds included."""
        return _flags_without_values(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands whose flags take no value in its help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that click adds included."""
        return _flags_without_values(super().get_params(ctx))
