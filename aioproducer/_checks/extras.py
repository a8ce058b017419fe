"""Packages that only some users need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aioproducer.errors import ConfigError

SCHEMA_REGISTRY = "aioproducer[schema-registry]"


@contextmanager
def needed(package: str, purpose: str, *, install: str) -> Iterator[None]:
    """Make an import that fails in this block a `ConfigError`."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"the package {package} is needed {purpose}", advice=f"pip install '{install}'"
        ) from error


@contextmanager
def required(module: str, extra: str) -> Iterator[None]:
    """Make an import of others' code that fails in this block say what to install.

    A package that is installed, and too old, lacks a module or a name in one.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if not package:
            raise
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == package
        what = f"the package {package}" if is_missing else f"a newer version of {package}"
        text = f"{module} needs {what}: pip install 'aioproducer[{extra}]'"
        if not is_missing:
            text += f" ({error})"
        raise type(error)(text, name=error.name, path=error.path) from None
