"""Properties written for the 0.8 producer."""

from __future__ import annotations

import logging

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.errors import ConfigError
from aioproducer.serializers import StringSerializer

ASYNC = {"metadata.broker.list": "a:1,b:2", "producer.type": "async"}


def read(**words: str) -> ProducerConfig:
    return ProducerConfig.from_properties(
        ASYNC | {name.replace("_", "."): text for name, text in words.items()}
    )


def test_what_they_leave_out_has_the_default_of_0_8() -> None:
    config = ProducerConfig.from_properties({"metadata.broker.list": "a:1"})
    assert config.buffer_max_records == 10_000
    assert config.linger_ms == 5_000
    assert config.batch_max_records == 200
    assert config.retries == 3
    assert config.enqueue_timeout_ms == -1
    assert config.request_timeout_ms == 10_000
    assert config.metadata_max_age_ms == 600_000
    assert config.send_buffer_bytes == 102_400
    assert config.producer_type == "sync"
    assert config.acks == 0
    assert config.max_in_flight_requests_per_connection == 1
    assert config.partitioner == "java_string_hash"


def test_every_word_is_understood() -> None:
    config = ProducerConfig.from_properties(
        {
            "metadata.broker.list": "a:1,b:2",
            "client.id": "me",
            "producer.type": "async",
            "request.required.acks": "-1",
            "request.timeout.ms": "7000",
            "message.send.max.retries": "5",
            "retry.backoff.ms": "50",
            "topic.metadata.refresh.interval.ms": "9000",
            "queue.buffering.max.ms": "40",
            "queue.buffering.max.messages": "500",
            "queue.enqueue.timeout.ms": "0",
            "batch.num.messages": "20",
            "compression.codec": "2",
            "compressed.topics": "t, u",
            "serializer.class": "kafka.serializer.StringEncoder",
            "key.serializer.class": "kafka.serializer.DefaultEncoder",
            "partitioner.class": "kafka.producer.ByteArrayPartitioner",
            "send.buffer.bytes": "1000",
        }
    )
    assert config.bootstrap == (("a", 1), ("b", 2))
    assert config.client_id == "me"
    assert config.producer_type == "async"
    assert config.acks == "all"
    assert config.request_timeout_ms == 7_000
    assert config.retries == 5
    assert config.retry_backoff_ms == 50
    assert config.metadata_max_age_ms == 9_000
    assert config.linger_ms == 40
    assert config.buffer_max_records == 500
    assert config.enqueue_timeout_ms == 0
    assert config.batch_max_records == 20
    assert config.compression_type == "snappy"
    assert config.compressed_topics == ("t", "u")
    assert isinstance(config.value_serializer, StringSerializer)
    assert config.key_serializer is None
    assert config.partitioner == "java_bytes_hash"
    assert config.send_buffer_bytes == 1_000


@pytest.mark.parametrize(
    ("word", "text", "option", "value"),
    [
        ("queue_enqueue_timeout_ms", "-5", "enqueue_timeout_ms", -1),
        ("topic_metadata_refresh_interval_ms", "-5", "metadata_max_age_ms", -1),
        ("topic_metadata_refresh_interval_ms", "0", "metadata_max_age_ms", 0),
        ("compression_codec", "gzip", "compression_type", "gzip"),
        ("compression_codec", "0", "compression_type", "none"),
        ("request_required_acks", "1", "acks", 1),
    ],
)
def test_values_mean_what_they_meant(word: str, text: str, option: str, value: object) -> None:
    assert getattr(read(**{word: text}), option) == value


def test_keys_are_serialized_as_values_unless_something_else_is_said() -> None:
    config = read(serializer_class="kafka.serializer.StringEncoder")
    assert config.key_serializer is config.value_serializer is not None
    nothing = read(serializer_class="kafka.serializer.NullEncoder").value_serializer
    assert nothing is not None
    assert nothing("x") is None


def test_a_record_may_take_as_long_as_the_tries_of_0_8_took() -> None:
    assert read().delivery_timeout_ms == 5_000 + 4 * (10_000 + 100)
    assert read(message_timeout_ms="60000").delivery_timeout_ms == 60_000


def test_a_file_in_words_that_others_took_over_is_theirs_when_it_has_theirs() -> None:
    theirs = {"metadata.broker.list": "a:1", "queue.buffering.max.ms": "9"}
    assert ProducerConfig.from_properties(theirs | {"batch.size": "5"}).retries > 3
    assert ProducerConfig.from_properties(theirs).retries == 3
    java = {"bootstrap.servers": "a:1", "send.buffer.bytes": "9", "client.id": "me"}
    assert ProducerConfig.from_properties(java).acks == "all"
    alone = {"bootstrap.servers": "a:1", "queue.enqueue.timeout.ms": "9"}
    assert ProducerConfig.from_properties(alone).retries == 3


def test_a_file_that_relies_on_no_acknowledgements_is_warned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "aioproducer"):
        read(request_required_acks="1")
        assert not caplog.records
        read()
    assert ["request.required.acks" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("producer_type", "both"),
        ("queue_buffering_max_messages", "many"),
        ("queue_enqueue_timeout_ms", "soon"),
        ("serializer_class", "com.example.AvroEncoder"),
        ("partitioner_class", "com.example.Partitioner"),
        ("compression_codec", "9"),
    ],
)
def test_what_cannot_be_meant_is_refused(word: str, text: str) -> None:
    with pytest.raises(ConfigError):
        read(**{word: text})
