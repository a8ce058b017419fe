"""aiokafka's errors by their names; its own classes if it is installed.

Its consumers raise those, and what the producer raises is an instance of them, too.
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import names_of_errors, preferred
from aioproducer.compat.aiokafka import _errors as _own

if TYPE_CHECKING:
    from aioproducer.compat.aiokafka._errors import *  # noqa: F403
else:
    __all__ = names_of_errors(_own)  # noqa: PLE0605


def __dir__() -> list[str]:
    return names_of_errors(_own)


def __getattr__(name: str) -> Any:
    return preferred(name, __name__, "aiokafka.errors", "aiokafka", _own)
