"""confluent-kafka's producer with one import changed.

    from aioproducer.compat.confluent import Producer  # was: from confluent_kafka import Producer

confluent-kafka need not be installed. Where it is, `import aioproducer.compat.confluent` serves for
the whole module: names that are not here, such as `Consumer`, are confluent-kafka's own.

If confluent-kafka is installed, exceptions are also instances of its classes. `KafkaError` and
messages are so only in a program that has imported `confluent_kafka`. Each exception has an
`aioproducer.KafkaError` as its `__cause__`.

What differs on purpose (confluent-kafka -> here):

- `enable.idempotence` is false -> it is on, unless another option forbids it
- a record without a callback counts in `len()` until `poll()` was called -> it counts until its
  outcome is known
- the delivered message has no headers -> it has those of the record
- a producer that is dropped without `close()` loses records that are not sent -> it delivers them
  in the background; the end of the process waits for that, at most 10 s
- `error_cb` is called for every broken connection -> it is called for errors that prevent the
  start, and with `_ALL_BROKERS_DOWN` each time that the last broker is lost
- `stats_cb` gets all of librdkafka's statistics -> it gets the totals, and traffic and `rtt` of
  brokers (average, maximum), without topics; see `aioproducer.metrics`
- `oauth_cb` is called in a thread of librdkafka -> in a worker thread
- `logger` gets librdkafka's log -> no effect: logs go to the logger `aioproducer`
- `send_offsets_to_transaction` takes the result of `consumer_group_metadata()` -> it also takes an
  `aioproducer.ConsumerGroupMetadata`, for programs without confluent-kafka
- `AIOProducer` has threads and a second buffer -> it has neither: `linger.ms` makes batches
- `AIOProducer.produce()` takes no headers -> it does
- `batch.size` is 1,000,000 -> 131,072: a batch's memory is allocated whole
- `acks` from 2 to 1000 are taken, and brokers refuse each record -> refused by the constructor
- values and keys are text or read-only buffers -> `bytearray` and `memoryview` as well
- a record with the timestamp -1 is written with -1 -> it is written with the time of the call
- properties of TLS and SASL are ignored without `security.protocol` -> refused, as the connection
  would be neither encrypted nor authenticated; `security.protocol=plaintext` allows them
- `throttle_cb` is called -> it is not, with a warning; see the metric `produce-throttle-time-avg`
- 1.3 us of user CPU per record of 100 bytes with a callback, 0.9 us without -> 2.4 us (CPython
  3.11); without callbacks 1.5 us (measured in turns on the same machine)
"""

from typing import TYPE_CHECKING, Any

from aioproducer.compat._forwarding import forwarded, version_of
from aioproducer.compat.confluent import errors, message, serialization
from aioproducer.compat.confluent.aio import AIOProducer
from aioproducer.compat.confluent.errors import KafkaError
from aioproducer.compat.confluent.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from aioproducer.compat.confluent.producer import Producer
from aioproducer.compat.confluent.serialization import SerializingProducer

if TYPE_CHECKING:
    from aioproducer.compat.confluent.errors import KafkaException

__all__ = [
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AIOProducer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "SerializingProducer",
    "errors",
    "message",
    "serialization",
]


_INTERFACE_VERSION = "2.16.1"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version_of("confluent_kafka", _INTERFACE_VERSION)
    if name in __all__:
        return getattr(errors, name)
    return forwarded(name, __name__, "confluent_kafka", "confluent-kafka")
