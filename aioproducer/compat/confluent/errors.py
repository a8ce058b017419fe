"""confluent-kafka's errors by their names; its own exceptions if it is installed.

Its consumers raise those, and what the producer raises is an instance of them, too. `KafkaError` is
the one of this package: no class of both is an exception to Python, and callbacks may raise theirs.
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import names_of_errors, preferred
from aioproducer.compat.confluent import _errors as _own
from aioproducer.compat.confluent._errors import KafkaError as KafkaError  # noqa: PLC0414

if TYPE_CHECKING:
    from aioproducer.compat.confluent._errors import *  # noqa: F403
else:
    __all__ = names_of_errors(_own)  # noqa: PLE0605


def __dir__() -> list[str]:
    return names_of_errors(_own)


def __getattr__(name: str) -> Any:
    return preferred(name, __name__, "confluent_kafka.error", "confluent-kafka", _own)
