from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar

import typer
from typer.main import get_command

from aioproducer.cli.groups import grouped, option


@dataclass(frozen=True, kw_only=True)
class Place:
    panel: ClassVar[str] = "Connection"

    host: str = option("here", "--host -h HOST", "A host.")
    port: int = option(1, "--port", "A port.", shown=False)


@grouped
def command(*, name: str, place: Place, loud: bool = False) -> int:
    """Print the help."""
    return len(f"{name} {place.host}:{place.port} {loud}")


def test_a_group_is_taken_apart_in_its_place() -> None:
    parameters = signature(command).parameters
    assert list(parameters) == ["name", "host", "port", "loud"]
    assert parameters["name"].default is parameters["name"].empty
    assert (parameters["host"].default, parameters["port"].default) == ("here", 1)
    assert command.__doc__ == "Print the help."


def test_the_options_of_a_group_are_in_its_panel() -> None:
    app = typer.Typer()
    app.command()(command)
    options: dict[str | None, Any] = {each.name: each for each in get_command(app).params}
    host, port = options["host"], options["port"]
    assert (host.opts, host.metavar, host.help) == (["--host", "-h"], "HOST", "A host.")
    assert (port.opts, port.metavar) == (["--port"], None)
    assert host.rich_help_panel == port.rich_help_panel == "Connection"
    assert options["loud"].rich_help_panel is None


def test_a_group_shows_what_is_no_secret() -> None:
    assert repr(Place(port=7)) == "Place(host='here')"


def test_the_command_gets_its_group_whole() -> None:
    assert command(name="n", host="h", port=2, loud=True) == len("n h:2 True")  # type: ignore[call-arg]
