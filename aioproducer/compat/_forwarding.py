"""Names that are not implemented here come from the installed client."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def forwarded(name: str, here: str, package: str, distribution: str) -> Any:
    """Return what another client has under a name; its submodules are imported.

    Args:
        name: The name that was asked for.
        here: The module it was asked of.
        package: The client's module of the same content.
        distribution: What to install.

    Raises:
        AttributeError: The client has no such name.
        ImportError: The client is not installed, or something that its submodule needs.
    """
    if name.startswith("__"):
        raise AttributeError(f"module {here!r} has no attribute {name!r}")
    try:
        module = import_module(package)
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


def version_of(package: str, interface_version: str) -> str:
    """Return the version of a client; programs decide by it which of its classes there are.

    Args:
        package: The client's package.
        interface_version: The version whose interface is implemented here: without the client.
    """
    try:
        return str(import_module(package).__version__)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return interface_version
