"""The command line's schema registry and its credentials.

They are in the file of `--config` (or `-X`) or in environment variables, so that no password has to
be an argument, which every user of the machine can see.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from aioproducer._util.secrets import hides_arguments
from aioproducer.config.permissions import Permissions
from aioproducer.errors import ConfigError

URL: Final = "schema.registry.url"
_USER_INFO: Final = ("schema.registry.basic.auth.user.info", "basic.auth.user.info")
_TOKEN: Final = ("schema.registry.bearer.auth.token", "bearer.auth.token")
_SOURCES: Final = (
    "schema.registry.basic.auth.credentials.source",
    "schema.registry.bearer.auth.credentials.source",
    "basic.auth.credentials.source",
    "bearer.auth.credentials.source",
)
_NAMES: Final = frozenset({URL, *_USER_INFO, *_TOKEN, *_SOURCES})
VARIABLES: Final = {
    URL: "AIOPRODUCER_SCHEMA_REGISTRY_URL",
    _USER_INFO[0]: "AIOPRODUCER_SCHEMA_REGISTRY_USER_INFO",
    _TOKEN[0]: "AIOPRODUCER_SCHEMA_REGISTRY_TOKEN",
}
"""Environment variables, by the equivalent key in a file."""


class KeysOfFile(dict[str, str]):
    """Options of a registry whose address is that of `--config`, with that file's permissions."""

    def __init__(self, keys: Mapping[str, str], permissions: Permissions) -> None:
        super().__init__(keys)
        self.permissions: Permissions = permissions


def is_of_registry(name: str) -> bool:
    """Return whether a key is one of a schema registry that the command line supports."""
    return name.replace("_", ".") in _NAMES


@hides_arguments
def registry_options(
    url: str | None, given: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> tuple[str | None, dict[str, Any]]:
    """Return the registry's address, and the arguments of `SchemaRegistry` for its credentials.

    `url` comes before `given` (the keys of `--config` and `-X`), and these before the environment.
    """
    keys = {name.replace("_", "."): value for name, value in given.items()}
    found = {key: environ[name] for key, name in VARIABLES.items() if environ.get(name)}
    user_info = _first(keys, _USER_INFO)
    token = _first(keys, _TOKEN)
    if user_info is None and token is None:
        user_info, token = found.get(_USER_INFO[0]), found.get(_TOKEN[0])
        if url is None and URL in keys and isinstance(given, KeysOfFile):
            for key in (_USER_INFO[0], _TOKEN[0]):
                if key in found:
                    given.permissions.check_variable(VARIABLES[key])
    options: dict[str, Any] = {}
    if user_info is not None:
        user, colon, password = user_info.partition(":")
        if not colon:
            raise ConfigError(
                "the schema registry's user info is not of the form USER:PASSWORD",
                advice=f"correct {_USER_INFO[0]} or {VARIABLES[_USER_INFO[0]]}",
            )
        options["basic_auth"] = (user, password)
    if token is not None:
        options["bearer_token"] = token
    return url or keys.get(URL) or found.get(URL), options


def _first(keys: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((keys[name] for name in names if name in keys), None)
