"""Groups of options: dataclasses that commands take as one argument each.

Example:

    @dataclass(frozen=True, kw_only=True)
    class Connection:
        server: Annotated[str, typer.Option("--server", help="...")] = "localhost"

    @grouped
    def command(topic: Topic, connection: Connection) -> int: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

Command = Callable[..., int]


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
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            yield parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        for each in fields(groups[name]):
            yield Parameter(
                each.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if each.default is MISSING else each.default,
                annotation=kinds[each.name],
            )
