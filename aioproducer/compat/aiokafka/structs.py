"""aiokafka's value types; its own classes if it is installed, as its consumers take no others.

Tuples of aiokafka and of this package with the same content are equal, and each call takes both.
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import preferred
from aioproducer.compat.aiokafka import _structs as _own

if TYPE_CHECKING:
    from aioproducer.compat.aiokafka._structs import (
        BrokerMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionMetadata,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    return preferred(name, __name__, "aiokafka.structs", "aiokafka", _own)
