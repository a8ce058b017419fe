"""Classes that are ours and another client's at once.

Handlers and checks such as `except kafka.errors.KafkaError` only exist in a program that has
imported that client, so its class is looked up when an object is made. Nothing is imported here.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any, Final, TypeVar, cast

AnyError = TypeVar("AnyError", bound=BaseException)

replaced: Final[dict[str, ModuleType]] = {}
"""Modules of clients that were imported where `sys.modules` has one of ours in their place."""


def counterpart(module: str, name: str) -> Any:
    """Return the class that a module that is loaded has under a name, or None.

    Tests of an application may have a mock in the module's place, and a program this package, or
    one of its classes in the place of the client's.
    """
    loaded = sys.modules.get(module)
    if is_ours(getattr(loaded, "__name__", None)):
        loaded = replaced.get(module)
    found = getattr(loaded, name, None)
    return found if isinstance(found, type) and not is_ours(found.__module__) else None


def is_ours(module: object) -> bool:
    """Return whether this is the name of a module of the drop-ins."""
    return isinstance(module, str) and module.startswith(f"{__package__}.")


def shared_class(error_class: type[AnyError], module: str) -> type[AnyError]:
    """Return the class to raise for one of ours: also a subclass of the other client's, if loaded.

    Its instances pickle: where they are read, they are of the client's class if that is loaded.
    """
    own: Any = error_class
    named = (counterpart(module, base.__name__) for base in own.__mro__)
    theirs = next((each for each in named if each is not None), None)
    return error_class if theirs is None else cast("type[AnyError]", joined(own, theirs, module))


@cache
def joined(own: Any, theirs: Any, module: str) -> type:
    """Return the class that is both; its instances pickle as `own`, joined again where possible.

    `module` has `theirs`, which may name another one as its own.
    """

    def reduce(error: BaseException) -> tuple[Any, ...]:
        return _remade, (own, module, error.args), error.__dict__

    names = {"__module__": own.__module__, "__doc__": own.__doc__, "__reduce__": reduce}
    return type(own.__name__, (own, theirs), names)


def _remade(own: type[AnyError], module: str, arguments: tuple[Any, ...]) -> AnyError:
    return shared_class(own, module)(*arguments)
