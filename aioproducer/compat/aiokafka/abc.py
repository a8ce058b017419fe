"""aiokafka's abstract classes, for annotations and subclasses in programs.

They are its own classes if it is installed, as its consumers take no others.
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import preferred
from aioproducer.compat.aiokafka import _abc as _own

if TYPE_CHECKING:
    from aioproducer.compat.aiokafka._abc import (
        AbstractTokenProvider,
        ConsumerRebalanceListener,
    )

__all__ = [
    "AbstractTokenProvider",
    "ConsumerRebalanceListener",
]


def __getattr__(name: str) -> Any:
    return preferred(name, __name__, "aiokafka.abc", "aiokafka", _own)
