"""Classes that are ours and another client's at once.

Handlers and checks such as `except kafka.errors.KafkaError` only exist in a program that has
imported that client, so its class is looked up when an object is made. Only an error imports the
client, if it is installed: `except aiokafka.errors.KafkaError` names the class after the error is
raised.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, TypeVar, cast

from aioproducer.compat._forwarding import is_ours, load, replaced

AnyError = TypeVar("AnyError", bound=BaseException)


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


def shared_class(error_class: type[AnyError], module: str) -> type[AnyError]:
    """Return the class to raise for one of ours: also a subclass of the installed client's.

    Its instances pickle: where they are read, they are of the client's class if that is installed.
    """
    load(module)
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
