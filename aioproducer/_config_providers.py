"""Placeholders in properties: `${env:NAME}`, `${file:PATH:KEY}`, `${dir:PATH:NAME}` (KIP-297).

Owns: which providers properties declare, and looking values up. Must not know: options.

Invariants
- Nothing is looked up unless `config.providers` names the provider: properties from elsewhere
  cannot read this machine's files or variables.
- What was looked up is not looked through again, and stands in no error.
- A value that is missing is an error. Java leaves the placeholder there, as if it were the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aioproducer._properties import parse_properties
from aioproducer.errors import ConfigError

NAMES: Final = ("config.providers", "config_providers")
"""What declares providers: in properties, and in variables."""

_PREFIX: Final = "config.providers."
_PLACEHOLDER: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
_JAVAS: Final = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
}
_OWN_NAMES: Final = {"env": "env", "file": "file", "dir": "dir", "directory": "dir"}

_Lookup = Callable[[str, str], str]


def with_values(properties: Mapping[str, object]) -> dict[str, object]:
    """The properties with placeholders looked up, without those that declare the providers.

    Raises:
        ConfigError: a provider is unknown, or has no such value or may not show it.
    """
    providers = _providers(properties)
    return {
        name: _replaced(name, value, providers) if isinstance(value, str) else value
        for name, value in properties.items()
        if name not in NAMES and not name.startswith(_PREFIX)
    }


def _replaced(name: str, text: str, providers: Mapping[str, _Lookup]) -> str:
    def value(match: re.Match[str]) -> str:
        lookup = providers.get(match[1])
        if lookup is None:
            return match[0]
        try:
            return lookup(match[2] or "", match[3])
        except (LookupError, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error.args[0]
            raise ConfigError(f"{name}: {match[0]} cannot be looked up: {reason}") from None

    return _PLACEHOLDER.sub(value, text)


def _providers(properties: Mapping[str, object]) -> dict[str, _Lookup]:
    """What looks values up, by the names that the properties give."""
    named = [name for each in NAMES for name in str(properties.get(each, "")).split(",")]
    return {name.strip(): _provider(name.strip(), properties) for name in named if name.strip()}


def _provider(name: str, properties: Mapping[str, object]) -> _Lookup:
    java_class = properties.get(f"{_PREFIX}{name}.class")
    if java_class is None:
        kind = _OWN_NAMES.get(name)
    else:
        kind = _JAVAS.get(str(java_class).strip().rpartition(".")[2])
    if kind is None:
        raise ConfigError(
            f"config.providers: {name} is none of {', '.join(_OWN_NAMES)}, nor has it the class "
            f"of one of Java's: {', '.join(_JAVAS)}"
        )
    given = {
        parameter: str(value)
        for parameter in ("allowed.paths", "allowlist.pattern")
        if (value := properties.get(f"{_PREFIX}{name}.param.{parameter}")) is not None
    }
    if kind == "env":
        return _variables(given.get("allowlist.pattern", ".*"))
    allowed = _allowed_paths(given.get("allowed.paths"))
    return _file_entry(allowed) if kind == "file" else _whole_file(allowed)


def _variables(pattern: str) -> _Lookup:
    allowed = re.compile(pattern)

    def lookup(path: str, name: str) -> str:
        if path:
            raise ValueError("variables have no path")
        if allowed.fullmatch(name) is None:
            raise ValueError("allowlist.pattern leaves it out")
        if name not in os.environ:
            raise LookupError("there is no such variable")
        return os.environ[name]

    return lookup


_Allowed = Callable[[Path], None]


def _allowed_paths(text: str | None) -> _Allowed:
    roots = None if text is None else [Path(each.strip()).resolve() for each in text.split(",")]

    def check(path: Path) -> None:
        resolved = path.resolve()
        if roots is not None and not any(resolved.is_relative_to(root) for root in roots):
            raise ValueError("allowed.paths leaves it out")

    return check


def _file_entry(check: _Allowed) -> _Lookup:
    def lookup(path: str, name: str) -> str:
        if not path:
            raise ValueError("the file is not named, as in ${file:PATH:KEY}")
        check(Path(path))
        entries = parse_properties(Path(path).read_text(encoding="utf-8"))
        if name not in entries:
            raise LookupError("the file has no such key")
        return entries[name]

    return lookup


def _whole_file(check: _Allowed) -> _Lookup:
    def lookup(path: str, name: str) -> str:
        if not path or "/" in name or name in {"", ".", ".."}:
            raise ValueError("a directory and the name of a file in it are needed")
        file = Path(path) / name
        check(file)
        return file.read_text(encoding="utf-8")

    return lookup
