"""aioproducer: the asyncio-native producer client for Apache Kafka.

Importing this package loads the standard library and the option and error tables, nothing more;
codecs, security and integrations are imported when used.
"""

from aioproducer._version import __version__
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.producer import Producer
from aioproducer.types import (
    Node,
    PartitionInfo,
    Persistence,
    Record,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)

__all__ = [
    "KafkaError",
    "Node",
    "PartitionInfo",
    "Persistence",
    "Producer",
    "ProducerConfig",
    "Record",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
    "__version__",
]
