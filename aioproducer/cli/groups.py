"""Groups of options: dataclasses that commands take as one argument each.

Example:

    @dataclass(frozen=True, kw_only=True)
    class Connection:
        panel: ClassVar[str] = "Connection"  # the heading of these options in the help

        server: str = option("localhost", "--server -s HOST", "...")

    @grouped
    def command(topic: Topic, connection: Connection) -> int: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

Command = Callable[..., int]

_MAKE = "make"
"""Where a field keeps what makes its `typer.Option`."""


def parameter(usage: str, text: str, **settings: Any) -> Any:
    """Return an option for `Annotated`; `usage` is as the help shows it: `--topic -t TOPIC`."""
    words = usage.split()
    metavar = None if words[-1].startswith("-") else words.pop()
    return typer.Option(*words, metavar=metavar, help=text, **settings)


def option(default: Any, usage: str, text: str, *, shown: bool = True, **settings: Any) -> Any:
    """Declare an option as a field of a group; `shown` is whether the group's `repr` has it."""
    make = partial(parameter, usage, text, **settings)
    return field(default=default, repr=shown, metadata={_MAKE: make})


def grouped(command: Command) -> Command:
    """Return the command as a function of single options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @wraps(command)
    def flat(**given: Any) -> int:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)})
            for name, group in groups.items()
        }
        return command(**given, **made)

    parameters = list(_parameters(command, hints, groups))
    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _parameters(
    command: Command, hints: Mapping[str, Any], groups: Mapping[str, Any]
) -> Iterator[Parameter]:
    for name, single in signature(command).parameters.items():
        if name not in groups:
            yield single.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            continue
        kinds, panel = get_type_hints(groups[name]), getattr(groups[name], "panel", None)
        for each in fields(groups[name]):
            made = each.metadata[_MAKE](rich_help_panel=panel)
            kind: Any = Annotated[kinds[each.name], made]
            yield Parameter(
                each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=kind
            )
