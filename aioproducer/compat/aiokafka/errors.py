"""aiokafka's errors by their names; its own classes if it is installed.

Its consumers raise those, and what the producer raises is an instance of them, too.
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import preferred
from aioproducer.compat.aiokafka import _errors as _own

if TYPE_CHECKING:
    from aioproducer.compat.aiokafka._errors import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return preferred(name, __name__, "aiokafka.errors", "aiokafka", _own)
