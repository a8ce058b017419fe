"""Topics read back by `spark.read`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from support.spark import EmbeddedKafka

from aioproducer.blocking import Producer
from aioproducer.spark import register

pytestmark = pytest.mark.slow  # Spark starts


@pytest.fixture(autouse=True, scope="module")
def _registered(spark: Any) -> None:
    register(spark)


def read(spark: Any, kafka: EmbeddedKafka, topic: str, options: Mapping[str, str]) -> Any:
    reader = spark.read.format("aioproducer").option("kafka.bootstrap.servers", kafka.servers)
    return reader.option("topic", topic).options(**options).load()


def test_records_come_back_with_all_their_parts(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic()
    with Producer(bootstrap_servers=embedded.servers) as producer:
        producer.send(topic, b"a", key=b"k", headers=[("h", b"1")], partition=1, timestamp_ms=1500)
        producer.send(topic, None, partition=0, timestamp_ms=0)
    rows = read(spark, embedded, topic, {}).orderBy("partition").collect()
    assert [(each.partition, each.offset, each.key, each.value) for each in rows] == [
        (0, 0, None, None),
        (1, 0, b"k", b"a"),
    ]
    assert [(each.key, each.value) for each in rows[1].headers] == [("h", b"1")]
    assert (rows[1].timestamp.timestamp(), rows[1].timestampType) == (1.5, 0)
    assert {each.topic for each in rows} == {topic}


def test_offsets_bound_a_read(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic(1)
    with Producer(bootstrap_servers=embedded.servers) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    options = {
        "startingOffsets": json.dumps({topic: {"0": 3}}),
        "endingOffsets": json.dumps({topic: {"0": 7}}),
        "includeHeaders": "false",
    }
    frame = read(spark, embedded, topic, options)
    assert "headers" not in frame.columns
    assert [int(row.value) for row in frame.orderBy("offset").collect()] == [3, 4, 5, 6]
    assert read(spark, embedded, topic, {"startingOffsets": "latest"}).count() == 0


def test_what_was_aborted_is_read_only_on_request(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic(1)
    settings = {"bootstrap_servers": embedded.servers, "transactional_id": topic}
    with Producer(**settings) as producer:
        for number in range(4):
            producer.begin_transaction()
            producer.send_and_wait(topic, b"%d" % number)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    committed = read(spark, embedded, topic, {})
    every = read(spark, embedded, topic, {"isolation.level": "read_uncommitted"})
    assert sorted(int(row.value) for row in committed.collect()) == [0, 2]
    assert sorted(int(row.value) for row in every.collect()) == [0, 1, 2, 3]


def test_a_read_that_cannot_work_says_why(spark: Any, embedded: EmbeddedKafka) -> None:
    topic = embedded.topic(2)
    for options, reason in (
        ({"startingOffsets": json.dumps({topic: {"0": 3}})}, "which has"),
        ({"endingOffsets": json.dumps({topic: {"0": 3, "1": -1}})}, "ends at 0"),
        ({"startingOffsets": "soon"}, "must be earliest, latest"),
    ):
        with pytest.raises(Exception, match=reason):
            read(spark, embedded, topic, options).count()
