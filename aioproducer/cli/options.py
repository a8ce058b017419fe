"""Options that several commands share, and their conversion.

The order of precedence: `-X`, then `--bootstrap-server`, then `--config`, then the command's own
defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Optional

from aioproducer._util.arguments import utf8_size
from aioproducer._util.paths import exists
from aioproducer.cli.groups import option, parameter
from aioproducer.cli.registry_login import URL as REGISTRY_URL
from aioproducer.cli.registry_login import KeysOfFile, is_of_registry
from aioproducer.config import ProducerConfig
from aioproducer.config.permissions import ENDPOINT, FILES, REPORTERS, Permissions, class_names
from aioproducer.config.properties import parse_properties
from aioproducer.config.providers import with_values
from aioproducer.config.reading import all_names, option_set_by
from aioproducer.errors import ConfigError

OUTPUT_FORMATS = ("text", "json")

# Typer evaluates these at run time; `Optional` is what its oldest supported release understands.
Text = Optional[str]  # noqa: UP045
Texts = Optional[list[str]]  # noqa: UP045
File = Optional[Path]  # noqa: UP045


def choices(*values: str) -> Any:
    """Return a completer for shells: the values that begin as the text does."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def kafka_text(text: str | None) -> str | None:
    """Return an argument that goes to Kafka; one that is not UTF-8 is refused."""
    if text is not None and utf8_size(text) < 0:
        raise ConfigError(f"{text!r} is not valid UTF-8, and Kafka has no other text")
    return text


def separator(text: str | None) -> str | None:
    r"""Return a separator; `\t` and `\x1f`, which shells leave as they are, mean characters."""
    if text is None:
        return None
    return _ESCAPES.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else "\t", text)


_ESCAPES = re.compile(r"\\(?:t|x([0-7][0-9a-fA-F]))")

Topic = Annotated[
    str,
    parameter("--topic -t TOPIC", "The topic to send records to.", callback=kafka_text),
]
AsJson = Annotated[bool, parameter("--json", "Print the result as one line of JSON, for scripts.")]
TopicTimeout = Annotated[
    float,
    parameter(
        "--topic-timeout SECONDS", "How long to wait for a topic that does not exist.", min=0.0
    ),
]
TOPIC_TIMEOUT_S = 10.0
OutputFormat = Annotated[
    str,
    parameter(
        "--format -f text|json",
        "The form of the output.",
        autocompletion=choices(*OUTPUT_FORMATS),
    ),
]
Quiet = Annotated[bool, parameter("--quiet -q", "Show no progress.")]

_DEFAULT_SERVER = "localhost:9092"


def _property_names(incomplete: str) -> list[str]:
    """Complete names of options, for shells: `linger.ms=` for `lin`."""
    names = (each.name.replace("_", ".") for each in fields(ProducerConfig))
    return [f"{name}=" for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The address of the cluster, and all options of the producer."""

    panel: ClassVar[str] = "Connection"

    bootstrap_server: Text = option(
        None,
        "--bootstrap-server -b HOST:PORT,...",
        "Addresses of some brokers; the others are found through them.",
        envvar="AIOPRODUCER_BOOTSTRAP_SERVERS",
        show_default=_DEFAULT_SERVER,
    )
    config_file: File = option(
        None,
        "--config FILE",
        "A properties file with producer options, such as linger.ms=5, one per line. "
        "-X and --bootstrap-server override it.",
    )
    properties: Texts = option(
        None,
        "-X KEY=VALUE",
        "A producer option by its Kafka name, such as linger.ms=5 or security.protocol=SSL; "
        "may be repeated.",
        autocompletion=_property_names,
        shown=False,  # may be secrets
    )
    allow: Texts = option(
        None,
        "--allow WHAT",
        "What the file of --config may read, run and ask for tokens: env, env:NAME, file, "
        "file:PATH, url, aws, class, class:NAME, or the URL of a token endpoint; may be "
        "repeated. Options of -X need no permission.",
    )

    def config(self, **defaults: Any) -> ProducerConfig:
        """Return the producer's configuration; `defaults` hold where the user chose nothing."""
        config = ProducerConfig.from_properties(self.given(), allow=self.allowed())
        chosen = config.explicitly_set
        return config.replace(
            **{name: default for name, default in defaults.items() if name not in chosen}
        )

    def given(self) -> dict[str, str]:
        """Return the producer's options as they were given, by Kafka's names."""
        return {name: value for name, value in self._given().items() if not is_of_registry(name)}

    def registry(self) -> dict[str, str]:
        """Return the options of a schema registry that the file and the arguments have."""
        given: Mapping[str, object] = self._given()
        permissions = Permissions(self.allowed())
        if "config.providers" in given:
            given = with_values(given, permissions)
        found = {name: str(value) for name, value in given.items() if is_of_registry(name)}
        arguments = (_property(text)[0] for text in self.properties or ())
        own_address = any(name.replace("_", ".") == REGISTRY_URL for name in arguments)
        return found if own_address else KeysOfFile(found, permissions)

    def _given(self) -> dict[str, str]:
        given: dict[str, str] = {"bootstrap.servers": _DEFAULT_SERVER}
        if self.config_file is not None:
            given |= _from_file(self.config_file)
        if self.bootstrap_server is not None:
            given["bootstrap.servers"] = self.bootstrap_server
        return given | dict(_property(text) for text in self.properties or ())

    def allowed(self) -> list[str]:
        """Return what the options may read: all that the arguments say themselves."""
        allowed = list(self.allow or ())
        for name, value in map(_property, self.properties or ()):
            row = option_set_by(name)
            key = "" if row is None else row.name
            if key == "config_providers":
                allowed += ("env", "file")
            elif key == ENDPOINT and value.partition(":")[0].lower() in ("http", "https", "file"):
                allowed.append(value)
            elif key in FILES:
                allowed.append(f"file:{value}")
            elif key == REPORTERS:
                allowed += (f"class:{each}" for each in class_names(value))
            elif key == "sasl_mechanism":
                allowed.append("aws")
        return allowed


def without_transactions(config: ProducerConfig, *, otherwise: str = "") -> ProducerConfig:
    """Return the configuration of a command that sends without transactions."""
    if config.transactional_id is None:
        return config
    raise ConfigError(
        "transactional.id is given, and this command sends without transactions",
        advice=f"leave transactional.id out{otherwise}",
    )


def _from_file(path: Path) -> dict[str, str]:
    if "=" in str(path) and not exists(path):
        # Meant for -X: the value may be a password, and is not shown.
        raise ConfigError(
            "--config takes the name of a file", advice="give an option as -X NAME=VALUE"
        )
    try:
        return parse_properties(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
    except ConfigError as error:
        reason = error
    raise ConfigError(f"cannot read the configuration {path}: {reason}")


def _property(text: str) -> tuple[str, str]:
    """Return an argument of `-X` in its parts; the error for a malformed one shows no value."""
    name, found, value = text.partition("=")
    if found and name:
        return name, value
    known = (each for each in all_names(dotted=True) if text.startswith(each))
    nearest = max(known, key=len, default=None)
    hint = "" if nearest is None else f"; the one that begins with {nearest} has no ="
    raise ConfigError(f"-X takes NAME=VALUE{hint}")


def wants_json(format_: str, *, as_json: bool) -> bool:
    """Return whether `--format` or `--json` asks for JSON."""
    if format_ not in OUTPUT_FORMATS:
        raise ConfigError(f"--format takes one of {', '.join(OUTPUT_FORMATS)}, not {format_!r}")
    return as_json or format_ == "json"


def pair(text: str, option: str) -> tuple[str, str]:
    """Split `name=value`."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise ConfigError(f"{option} takes NAME=VALUE")  # what was given may be a secret
    return name, value


def names(text: str | None) -> tuple[str, ...]:
    """Split `a,b` or `a+b` into names."""
    return tuple(name for name in (text or "").replace("+", ",").split(",") if name)


def headers(texts: Sequence[str] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Convert `name=value` texts to record headers."""
    pairs = (pair(text, "--header") for text in texts or ())
    return tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in pairs)


def examples(*lines: str) -> str:
    """Return an epilog for a command's help: a heading, then one line per example."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])
