"""Options that several commands share, and what they become.

Owns: how the producer is configured from the command line, the texts `name=value`. Must not know:
single commands.

The order of precedence: `-X`, then `--bootstrap-server`, then `--config`, then the command's own
defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from aioproducer._properties import parse_properties
from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError

BootstrapServer = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it at run time
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="AIOPRODUCER_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help="Brokers to start from. [default: localhost:9092]",
        rich_help_panel="Connection",
    ),
]
ConfigFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--config",
        metavar="FILE",
        help="A Kafka properties file with producer options.",
        rich_help_panel="Connection",
    ),
]
Properties = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="A producer option by its Kafka name, as linger.ms=5; may be repeated.",
        rich_help_panel="Connection",
    ),
]
Topic = Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="Where records go.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as one line of JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]

_DEFAULT_SERVER = "localhost:9092"


def producer_config(
    bootstrap_server: str | None,
    config_file: Path | None,
    properties: Sequence[str] | None,
    **defaults: Any,
) -> ProducerConfig:
    """The producer's configuration; `defaults` hold where the user chose nothing."""
    given = producer_properties(bootstrap_server, config_file, properties)
    config = ProducerConfig.from_properties(given)
    chosen = config.explicitly_set
    return config.replace(
        **{name: default for name, default in defaults.items() if name not in chosen}
    )


def producer_properties(
    bootstrap_server: str | None, config_file: Path | None, properties: Sequence[str] | None
) -> dict[str, str]:
    """The producer's options as they were given, by Kafka's names."""
    given: dict[str, str] = {"bootstrap.servers": _DEFAULT_SERVER}
    if config_file is not None:
        given |= _from_file(config_file)
    if bootstrap_server is not None:
        given["bootstrap.servers"] = bootstrap_server
    return given | dict(pair(text, "-X") for text in properties or ())


def _from_file(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read the configuration {path}: {reason}") from error


def pair(text: str, option: str) -> tuple[str, str]:
    """`name=value`."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise ConfigError(f"{option} takes NAME=VALUE, not {text!r}")
    return name, value


def names(text: str | None) -> tuple[str, ...]:
    """`a,b` or `a+b` as names."""
    if not text:
        return ()
    return tuple(name for name in text.replace("+", ",").split(",") if name)


def headers(texts: Sequence[str] | None) -> tuple[tuple[str, bytes | None], ...]:
    """`name=value` texts as record headers."""
    pairs = (pair(text, "--header") for text in texts or ())
    return tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in pairs)
