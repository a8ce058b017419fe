"""kafka-python 3's producer with one import changed.

    from aioproducer.compat.kafka import KafkaProducer  # was: from kafka import KafkaProducer

kafka-python need not be installed. Where it is, `import aioproducer.compat.kafka as kafka` serves
for the whole module: names that are not here, such as `KafkaConsumer`, are kafka-python's own.

If kafka-python is installed, errors are also instances of its classes. In a program that has
imported `kafka`, metadata is its named tuple. Each error has an `aioproducer.KafkaError` as its
`__cause__`.

What differs on purpose (kafka-python -> here):

- each record without a key gets a random partition -> each batch does, with equal shares of bytes
  (KIP-794)
- `close()` raises KafkaTimeoutError and leaves the producer open when its timeout ends -> what is
  left fails with IllegalStateError, and everything is released
- spans of OpenTelemetry's instrumentation for kafka-python have the partition -> those of records
  without a key have none if the topic has several partitions: their batch gets one later
- at exit, records have one second to be sent -> they have ten seconds
- a producer that is dropped without `close()` has one second -> it delivers in the background
- a record that the broker refuses fails its whole batch -> only that record fails
- a failure is silent if the future is not read -> it is logged
- `send()` in a callback may wait for ever -> it raises KafkaTimeoutError instead of waiting
- an unknown option is a ValueError, other mistakes KafkaConfigurationError ->
  KafkaConfigurationError, which is a ValueError as well
- options of TLS and SASL are ignored without `security_protocol` -> KafkaConfigurationError, as
  the connection would be neither encrypted nor authenticated; `security_protocol="PLAINTEXT"`
  allows them
- `metric_reporters` are kafka-python's classes -> objects, see `aioproducer.metrics.reporters`
- `metrics(raw=True)` has KafkaMetric objects -> `aioproducer.metrics.Metric` by `MetricName`
- a partitioner's `on_new_batch` is called -> it is not
- `kafka_client`, `socket_options`, `ssl_crlfile`, `sasl_kerberos_name`, `.._domain_name` ->
  refused, with what to do instead
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import forwarded, version_of
from aioproducer.compat.kafka import errors, partitioner, serializer, structs
from aioproducer.compat.kafka.partitioner import (
    DefaultPartitioner,
    Partitioner,
    StickyPartitioner,
)
from aioproducer.compat.kafka.producer import KafkaProducer
from aioproducer.compat.kafka.serializer import DefaultSerializer, JsonSerializer, Serializer

if TYPE_CHECKING:
    from aioproducer.compat.kafka.structs import OffsetAndMetadata, TopicPartition

__all__ = [
    "DefaultPartitioner",
    "DefaultSerializer",
    "JsonSerializer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "Partitioner",
    "Serializer",
    "StickyPartitioner",
    "TopicPartition",
    "errors",
    "partitioner",
    "serializer",
    "structs",
]


_INTERFACE_VERSION = "3.0.12"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version_of("kafka", _INTERFACE_VERSION)
    if name in __all__ and name in structs.__all__:
        return getattr(structs, name)
    return forwarded(name, __name__, "kafka", "kafka-python")
