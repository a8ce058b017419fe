"""Placeholders in properties: `${env:NAME}`, `${file:PATH:KEY}`, `${dir:PATH:NAME}` (KIP-297).

Invariants
- Nothing is looked up unless `config.providers` names the provider and the application allows it:
  properties from elsewhere cannot read this machine's files or variables.
- What was looked up is not searched for placeholders again, and is in no error.
- A value that is missing is an error. Java leaves the placeholder there, as if it were the value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from aioproducer._util.printable import printable
from aioproducer._util.secrets import hides_arguments
from aioproducer.config.permissions import Permissions
from aioproducer.config.properties import parse_properties
from aioproducer.errors import ConfigError

NAMES: Final = ("config.providers", "config_providers")
"""What declares providers: in properties, and in variables."""

_PREFIX: Final = "config.providers."
_JAVAS: Final = {
    "EnvVarConfigProvider": "env",
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
}
_OWN_NAMES: Final = {"env": "env", "file": "file", "dir": "dir", "directory": "dir"}

_Lookup = Callable[[str, str], str]


@hides_arguments
def with_values(properties: Mapping[Any, object], permissions: Permissions) -> dict[Any, object]:
    """Return the properties with placeholders looked up, without those of the providers."""
    providers = _providers(properties, permissions)
    return {
        name: _with_lookups(name, value, providers)
        for name, value in properties.items()
        if name not in NAMES and not (isinstance(name, str) and name.startswith(_PREFIX))
    }


def _with_lookups(name: str, value: object, providers: Mapping[str, _Lookup]) -> object:
    if isinstance(value, str):
        return _replaced(name, value, providers)
    if isinstance(value, list | tuple):
        return [_with_lookups(name, each, providers) for each in value]
    return value


def _replaced(name: str, text: str, providers: Mapping[str, _Lookup]) -> str:
    parts: list[str] = []
    at = 0
    while (start := text.find("${", at)) >= 0 and (end := text.find("}", start)) >= 0:
        provider, _, rest = text[start + 2 : end].partition(":")
        lookup = providers.get(provider)
        if lookup is None:
            parts.append(text[at : end + 1])
        else:
            path, _, key = rest.rpartition(":")
            parts += (text[at:start], _value(name, text[start : end + 1], lookup, path, key))
        at = end + 1
    return "".join((*parts, text[at:]))


def _value(name: str, placeholder: str, lookup: _Lookup, path: str, key: str) -> str:
    try:
        return lookup(path, key)
    except ConfigError as error:
        reason, advice = error.message, error.advice
    except UnicodeDecodeError:
        reason, advice = "the file is not UTF-8", None
    except (LookupError, OSError, ValueError) as error:
        reason, advice = getattr(error, "strerror", None) or error.args[0], None
    raise ConfigError(
        f"{name}: {printable(placeholder, 200)} cannot be looked up: {reason}", advice=advice
    )


def _providers(properties: Mapping[str, object], permissions: Permissions) -> dict[str, _Lookup]:
    """Return the providers, by the names that the properties give."""
    given = [properties.get(each) or () for each in NAMES]
    named = [
        str(name)
        for each in given
        for name in (each if isinstance(each, list | tuple) else str(each).split(","))
    ]
    return {
        name.strip(): _provider(name.strip(), properties, permissions)
        for name in named
        if name.strip()
    }


def _provider(name: str, properties: Mapping[str, object], permissions: Permissions) -> _Lookup:
    java_class = properties.get(f"{_PREFIX}{name}.class")
    if java_class is None:
        kind = _OWN_NAMES.get(name)
    else:
        kind = _JAVAS.get(str(java_class).strip().rpartition(".")[2])
    if kind is None:
        raise ConfigError(
            f"config.providers: {printable(name, 100)} is none of {', '.join(_OWN_NAMES)}, nor has "
            f"it the class of one of Java's: {', '.join(_JAVAS)}"
        )
    given = {
        parameter: str(value)
        for parameter in ("allowed.paths", "allowlist.pattern")
        if (value := properties.get(f"{_PREFIX}{name}.param.{parameter}")) is not None
    }
    if kind == "env":
        return _variables(given.get("allowlist.pattern", ".*"), permissions)
    allowed = _allowed_paths(given.get("allowed.paths"), permissions)
    return _file_entry(allowed) if kind == "file" else _whole_file(allowed)


def _variables(pattern: str, permissions: Permissions) -> _Lookup:
    try:
        allowed = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise ConfigError(
            "config.providers: allowlist.pattern is not a regular expression"
        ) from None

    def lookup(path: str, name: str) -> str:
        if path:
            raise ValueError("variables have no path")
        permissions.check_variable(name)
        # First: a name of the properties' choice could keep their pattern busy for ever.
        if name not in os.environ:
            raise LookupError("there is no such variable")
        if allowed.fullmatch(name) is None:
            raise ValueError("allowlist.pattern leaves it out")
        return os.environ[name]

    return lookup


_Allowed = Callable[[Path], None]


def _allowed_paths(text: str | None, permissions: Permissions) -> _Allowed:
    roots = None if text is None else [Path(each.strip()).resolve() for each in text.split(",")]

    def check(path: Path) -> None:
        permissions.check_file(path)
        resolved = path.resolve()
        if roots is not None and not any(resolved.is_relative_to(root) for root in roots):
            raise ValueError("allowed.paths leaves it out")

    return check


def _file_entry(check: _Allowed) -> _Lookup:
    def lookup(path: str, name: str) -> str:
        if not path:
            raise ValueError("the file is not named, as in ${file:PATH:KEY}")
        check(Path(path))
        entries = parse_properties(Path(path).read_text(encoding="utf-8-sig"))
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
