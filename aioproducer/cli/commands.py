"""The classes of the commands: help without a placeholder for the value of a flag."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from aioproducer.cli.console import standard_output


class _Help:
    """Help of a command whose flags take no value there, with the errors of every other output."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        with standard_output():
            try:
                super().format_help(ctx, formatter)  # type: ignore[misc]
            except SystemExit as error:  # rich ends the program where a pipe is broken
                raise BrokenPipeError from error

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, those that click adds included."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            # Typer names the type of a flag (`<bool>`) where other options have their value.
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return found


class Command(_Help, TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; what is left over is not shown beside options that may be secrets."""
        has_options = any(each.startswith("-X") for each in args)
        ctx.allow_extra_args = ctx.allow_extra_args or has_options
        left = super().parse_args(ctx, args)
        if has_options and left and not ctx.resilient_parsing:
            ctx.fail("too many arguments; -X takes NAME=VALUE without a space around =")
        return left


class Group(_Help, TyperGroup):
    """A group of commands."""
