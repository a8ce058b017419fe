"""kafka-python's value types; its own classes if it is installed, as its consumers take no others.

Tuples of theirs and of ours with the same content are equal, and either does where one is asked
for.
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import preferred
from aioproducer.compat.kafka import _structs as _own

if TYPE_CHECKING:
    from aioproducer.compat.kafka._structs import (
        BrokerMetadata,
        OffsetAndMetadata,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "BrokerMetadata",
    "OffsetAndMetadata",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    return preferred(name, __name__, "kafka.structs", "kafka-python", _own)
