"""aioproducer: the asyncio-native producer client for Apache Kafka.

Importing this package loads the standard library and the option and error tables, nothing more;
codecs, security and integrations are imported when used.
"""

from aioproducer._version import __version__
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
from aioproducer.producer import Producer
from aioproducer.source_position import SourcePosition
from aioproducer.transactions import Transaction
from aioproducer.types import (
    ConsumerGroupMetadata,
    Node,
    OAuthToken,
    OffsetAndMetadata,
    PartitionInfo,
    Persistence,
    PreparedTransaction,
    Record,
    RecordMetadata,
    SaslCredentials,
    StreamOpener,
    TimestampType,
    TopicPartition,
)

__all__ = [
    "ConsumerGroupMetadata",
    "KafkaError",
    "Node",
    "OAuthToken",
    "OffsetAndMetadata",
    "PartitionInfo",
    "Persistence",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "Record",
    "RecordMetadata",
    "SaslCredentials",
    "SourcePosition",
    "StreamOpener",
    "TimestampType",
    "TopicPartition",
    "Transaction",
    "__version__",
]
