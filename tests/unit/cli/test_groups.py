from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated, get_type_hints

from aioproducer.cli.groups import grouped


@dataclass(frozen=True, kw_only=True)
class Place:
    host: Annotated[str, "a host"]
    port: int = 1


@grouped
def command(*, name: str, place: Place, loud: bool = False) -> int:
    """Print the help."""
    return len(f"{name} {place.host}:{place.port} {loud}")


def test_a_group_is_taken_apart_in_its_place() -> None:
    parameters = signature(command).parameters
    assert list(parameters) == ["name", "host", "port", "loud"]
    assert parameters["port"].default == 1
    assert parameters["host"].default is parameters["host"].empty
    hints = get_type_hints(command, include_extras=True)
    assert hints["host"] == Annotated[str, "a host"]
    assert command.__doc__ == "Print the help."


def test_the_command_gets_its_group_whole() -> None:
    assert command(name="n", host="h", port=2, loud=True) == len("n h:2 True")  # type: ignore[call-arg]
