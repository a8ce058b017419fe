"""Names that are not implemented here come from the installed client."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from aioproducer.compat._shared_classes import is_ours


def forwarded(name: str, here: str, package: str, distribution: str) -> Any:
    """Return what another client has under a name; raise AttributeError or ImportError.

    The module `here` was asked for the name; `package` is the client's module of the same content,
    and `distribution` what to install.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {here!r} has no attribute {name!r}")
    try:
        module = _client_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise ImportError(
            f"{here} has no {name!r} itself, and {distribution} is not installed; "
            f"install {distribution} to use its {name!r}"
        ) from error
    if not hasattr(module, name):
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            raise AttributeError(f"neither {here!r} nor {package!r} has {name!r}") from None
    return getattr(module, name)


def _client_module(package: str) -> ModuleType:
    """Import a module of the client, also where `sys.modules` has ours under the client's name."""
    root = sys.modules.get(package.partition(".")[0])
    if is_ours(getattr(root, "__name__", None)):
        return _replaced_module(package)
    return import_module(package)


@cache
def _replaced_module(package: str) -> ModuleType:
    names = {package.partition(".")[0], package}
    ours = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        return import_module(package)
    finally:
        sys.modules.update(ours)


def version_of(package: str, interface_version: str) -> str:
    """Return the version of a client, or without the client that of the interface implemented here.

    Programs decide by it which classes there are.
    """
    try:
        return str(_client_module(package).__version__)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return interface_version
