"""The classes of the commands: help without a placeholder for the value of a flag.

Owns: the parameters as typer's help sees them, the errors of its output. Not here: any command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

from aioproducer.cli.console import standard_output


def _flags_without_values(parameters: Iterable[Any]) -> list[Any]:
    """Typer names the type of a flag (`<bool>`) where other options have their value."""
    found = list(parameters)
    for parameter in found:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return found


def _print_help(print_it: Callable[[], None]) -> None:
    """Print help, with the errors of every other output."""
    with standard_output():
        try:
            print_it()
        except SystemExit as error:  # rich ends the program where a pipe is broken
            raise BrokenPipeError from error


class Command(TyperCommand):
    """A command whose flags take no value in its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _print_help(partial(super().format_help, ctx, formatter))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that click adds included."""
        return _flags_without_values(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; what is left over is not shown beside options that may be secrets."""
        has_options = any(each.startswith("-X") for each in args)
        ctx.allow_extra_args = ctx.allow_extra_args or has_options
        left = super().parse_args(ctx, args)
        if has_options and left and not ctx.resilient_parsing:
            ctx.fail("too many arguments; -X takes NAME=VALUE without a space around =")
        return left


class Group(TyperGroup):
    """A group of commands whose flags take no value in its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _print_help(partial(super().format_help, ctx, formatter))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that click adds included."""
        return _flags_without_values(super().get_params(ctx))
