"""aioproducer: the asyncio-native producer client for Apache Kafka.

Importing this package loads the standard library and the option and error tables, nothing more;
codecs, security and integrations are imported when used.
"""

from typing import TYPE_CHECKING

from aioproducer._util.lazy import lazy_names
from aioproducer._version import __version__
from aioproducer.client.producer import Producer
from aioproducer.client.source_position import SourcePosition
from aioproducer.client.transactions import Transaction
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError
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

if TYPE_CHECKING:
    from aioproducer.runtime.delivery import Delivery

__all__ = [
    "ConsumerGroupMetadata",
    "Delivery",
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

if not TYPE_CHECKING:  # which form it has is chosen when it is used
    __getattr__ = lazy_names(__name__, {"runtime.delivery": "Delivery"})
