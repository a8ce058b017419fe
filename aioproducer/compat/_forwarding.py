"""Names and modules that are not implemented here come from the installed client."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, Final, cast

replaced: Final[dict[str, ModuleType]] = {}
"""Modules of clients that were imported where `sys.modules` has one of ours in their place."""


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


def preferred(name: str, here: str, package: str, distribution: str, own: ModuleType) -> Any:
    """Return what the installed client has under a name, else what is `own`.

    The client's functions check for its classes, and raise its errors.
    """
    if name.startswith("__") or not hasattr(own, name):
        return forwarded(name, here, package, distribution)
    try:
        return getattr(_client_module(package), name, None) or getattr(own, name)
    except ImportError:
        return getattr(own, name)


def names_of_errors(own: ModuleType) -> list[str]:
    """Return the names of the error classes of a module, and of its `for_code`."""
    return [name for name, each in vars(own).items() if name == "for_code" or _is_error(each)]


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def is_ours(module: object) -> bool:
    """Return whether this is the name of a module of the drop-ins."""
    return isinstance(module, str) and module.startswith(f"{__package__}.")


@cache
def load(package: str) -> None:
    """Import a module of the client, if it is installed.

    Where its import fails, as by a warning that is an error, no handler can name its classes.
    """
    with suppress(Exception):
        _client_module(package)


def _client_module(package: str) -> ModuleType:
    """Import a module of the client, also where `sys.modules` has ours under the client's name."""
    root = package.partition(".")[0]
    if any(_is_replaced(name) for name in (root, package)):
        return _replaced_module(package)
    return import_module(package)


def _is_replaced(name: str) -> bool:
    """Return whether `sys.modules` has one of our modules under a name."""
    return is_ours(getattr(sys.modules.get(name), "__name__", None))


def _replaced_module(package: str) -> ModuleType:
    if package not in replaced:
        replaced[package] = _original_module(package)
    return replaced[package]


def _original_module(package: str) -> ModuleType:
    parent, _, child = package.rpartition(".")
    loaded = None if _is_replaced(parent) else getattr(sys.modules.get(parent), child, None)
    if isinstance(loaded, ModuleType) and not is_ours(loaded.__name__):
        return loaded
    root = package.partition(".")[0]
    names = [name for name in sys.modules if f"{name}.".startswith(f"{root}.")]
    ours = {name: sys.modules.pop(name) for name in names if _is_replaced(name)}
    try:
        return import_module(package)
    finally:
        if root in ours:  # the client has imported its own producer: ours is asked for
            sys.modules.pop(f"{root}.producer", None)
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


_CLIENTS: Final = {
    f"{__package__}.aiokafka": ("aiokafka", "aiokafka"),
    f"{__package__}.confluent": ("confluent_kafka", "confluent-kafka"),
    f"{__package__}.kafka": ("kafka", "kafka-python"),
}
"""The client's package and its distribution, by the drop-in."""

_OVERLAYS: Final = {
    "aiokafka.producer.producer": "aiokafka.producer",
    "confluent_kafka.aio.producer": "confluent.aio",
    "confluent_kafka.cimpl": "confluent",
    "confluent_kafka.error": "confluent.errors",
    "confluent_kafka.serializing_producer": "confluent.serialization",
    "kafka.producer.future": "kafka.future",
    "kafka.producer.kafka": "kafka.producer",
}
"""Modules of the clients with names that are implemented here in another module."""


class _Loaded(Loader):
    """Loader of a module that exists."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self._module  # what the import system returns


class _ClientFinder:
    """Finds a drop-in's modules that are not here: the installed client's, the same objects.

    Where `sys.modules` has a drop-in under the client's name, modules are found by that name, too.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, dot, rest = name.partition(".")
        here = next((each for each in _CLIENTS if name.startswith(f"{each}.")), None)
        module: ModuleType | None = None
        if name.endswith("__"):  # such as `__main__`
            return None
        if dot and _is_replaced(root):
            module = import_module(f"{sys.modules[root].__name__}.{rest}")
        elif here is not None and not self._is_found_by_others(name, path, target):
            module = _module_of_client(name, here)
        return None if module is None else spec_from_loader(name, _Loaded(module))

    def _is_found_by_others(self, name: str, *details: Any) -> bool:
        if not _is_replaced(name.rpartition(".")[0]):
            return False  # the package is the client's: others would load its module a second time
        others = (finder for finder in sys.meta_path if finder is not self)
        return any(finder.find_spec(name, *details) for finder in others)


def _module_of_client(name: str, here: str) -> ModuleType | None:
    package, distribution = _CLIENTS[here]
    theirs = f"{package}{name.removeprefix(here)}"
    if theirs in _OVERLAYS:
        ours = import_module(f"{__package__}.{_OVERLAYS[theirs]}")
        overlay: Any = ModuleType(name, ours.__doc__)
        vars(overlay).update({each: getattr(ours, each) for each in ours.__all__})
        overlay.__path__ = []
        overlay.__getattr__ = partial(
            forwarded, here=name, package=theirs, distribution=distribution
        )
        return cast("ModuleType", overlay)
    try:
        return _client_module(theirs)
    except ModuleNotFoundError as error:
        if error.name == package or sys.modules.get(package) is None:
            raise ModuleNotFoundError(
                f"{name} is a module of {distribution}, which is not installed; "
                f"install {distribution} to use it",
                name=name,
            ) from error
        if f"{theirs}.".startswith(f"{error.name}."):
            return None
        raise


# One finder, also after a reload of this module: two would ask each other.
_others = [each for each in sys.meta_path if type(each).__name__ != _ClientFinder.__name__]
sys.meta_path[:] = [_ClientFinder(), *_others]
