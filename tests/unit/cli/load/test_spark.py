"""A load by Spark before Spark starts: the options that its tasks get."""

from __future__ import annotations

from aioproducer.cli.load.spark import for_tasks
from aioproducer.config import ProducerConfig
from aioproducer.spark.options import SourceOptions

OF_JAVA = "org.apache.kafka.common.serialization.StringSerializer"


def test_a_file_of_options_for_javas_producer_is_of_use_to_both_engines() -> None:
    properties = {
        "bootstrap.servers": "localhost:9092",
        "key.serializer": OF_JAVA,
        "value.serializer": OF_JAVA,
        "transactional.id": "mine",
        "linger.ms": "5",
    }
    assert ProducerConfig.from_properties(properties).linger_ms == 5
    sink = {f"kafka.{name}": value for name, value in for_tasks(properties).items()}
    config = SourceOptions.parse({**sink, "topic": "t"}, "write").config()
    assert (config.linger_ms, config.transactional_id) == (5, None)
    in_python = {"key_serializer": OF_JAVA, "transactional_id": "mine", "acks": "all"}
    assert for_tasks(in_python) == {"acks": "all"}
