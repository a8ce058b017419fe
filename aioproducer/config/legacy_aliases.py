"""Properties of the 0.8 producer (`kafka.producer.ProducerConfig`), with meanings and defaults.

librdkafka took several of the names over. So properties count as 0.8's when one of them is a name
of 0.8 alone, or when they name the cluster as `metadata.broker.list` and all of them are its names.

Invariants
- What such properties leave out has 0.8's default, not Kafka 4's, as the program may rely on it.
- What 0.8 did without an option for it, one request at a time per broker, is done here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aioproducer.config.option import int_of
from aioproducer.config.table import CoreOptions

_INT_MAX: Final = 2**31 - 1
_CODECS: Final = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4"}


class LegacyProperty(NamedTuple):
    """One property of 0.8.

    Attributes:
        option: The option it sets.
        default: 0.8's default as text; None where that is ours too.
        convert: How its value (text or not) becomes the option's.
        alone: Whether no other producer has the name.
    """

    option: str
    default: str | None = None
    convert: Callable[[Any], object] | None = None
    alone: bool = False


def _or_minus_one(value: Any) -> int:
    return max(int_of(value), -1)


LEGACY_PROPERTIES: Final = {
    "metadata.broker.list": LegacyProperty("bootstrap_servers"),
    "client.id": LegacyProperty("client_id"),
    "producer.type": LegacyProperty("producer_type", "sync", alone=True),
    "request.required.acks": LegacyProperty("acks", "0"),
    "request.timeout.ms": LegacyProperty("request_timeout_ms", "10000"),
    "message.send.max.retries": LegacyProperty("retries", "3"),
    "retry.backoff.ms": LegacyProperty("retry_backoff_ms", "100"),
    "topic.metadata.refresh.interval.ms": LegacyProperty(
        "metadata_max_age_ms", "600000", _or_minus_one
    ),
    "queue.buffering.max.ms": LegacyProperty("linger_ms", "5000"),
    # 0 is librdkafka's for no bound; 0.8 has none.
    "queue.buffering.max.messages": LegacyProperty(
        "buffer_max_records", "10000", lambda value: int_of(value) or None
    ),
    "queue.enqueue.timeout.ms": LegacyProperty(
        "enqueue_timeout_ms", "-1", _or_minus_one, alone=True
    ),
    "batch.num.messages": LegacyProperty("batch_max_records", "200"),
    "compression.codec": LegacyProperty(
        "compression_type", "none", lambda value: _CODECS.get(str(value).strip(), value)
    ),
    "compressed.topics": LegacyProperty("compressed_topics", alone=True),
    "serializer.class": LegacyProperty("value_serializer", alone=True),
    "key.serializer.class": LegacyProperty("key_serializer", alone=True),
    "partitioner.class": LegacyProperty("partitioner", "kafka.producer.DefaultPartitioner"),
    "send.buffer.bytes": LegacyProperty("send_buffer_bytes", "102400"),
}

_UNSPOKEN: Final = {"max.in.flight.requests.per.connection": "1"}


def are_of_0_8(properties: Mapping[str, object]) -> bool:
    """Return whether the properties were written for the 0.8 producer."""
    if any(name in LEGACY_PROPERTIES and LEGACY_PROPERTIES[name].alone for name in properties):
        return True
    return "metadata.broker.list" in properties and all(
        name in LEGACY_PROPERTIES for name in properties
    )


def left_out(properties: Mapping[str, object], options: Mapping[str, object]) -> dict[str, object]:
    """Return the properties that 0.8 would have added."""
    added: dict[str, object] = {
        name: row.default
        for name, row in LEGACY_PROPERTIES.items()
        if row.default is not None and row.option not in options
    }
    if "key_serializer" not in options and "serializer.class" in properties:
        added["key.serializer.class"] = properties["serializer.class"]
    if "max_in_flight_requests_per_connection" not in options:
        added |= _UNSPOKEN
    return added


def longest_delivery_ms(config: CoreOptions) -> int:
    """Return the longest time 0.8 took to give up, which only the number of retries bounded."""
    each = config.request_timeout_ms + config.retry_backoff_ms
    return min(config.linger_ms + (config.retries + 1) * each, _INT_MAX)
