"""Reads of a topic whose brokers or records are hostile."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import Producer, ProducerConfig
from aioproducer.errors import ConfigError, KafkaTimeoutError, ProtocolError
from aioproducer.records.committed import EARLIEST
from aioproducer.records.reader import DecodedRecord, RecordBatch
from aioproducer.spark import topic_range
from aioproducer.spark.options import SourceOptions
from aioproducer.spark.topic_range import Fetched, TopicRange
from aioproducer.testing import EmbeddedCluster, TopicSpec
from aioproducer.types import TimestampType
from aioproducer.wire.messages.fetch import FetchableTopicResponse, FetchResponse
from aioproducer.wire.messages.list_offsets import ListOffsetsResponse, ListOffsetsTopicResponse
from aioproducer.wire.messages.metadata import MetadataResponse

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}


def reader(**options: str) -> Any:
    from aioproducer.spark.reader import TopicReader

    parsed = SourceOptions.parse(OPTIONS | options, "read")
    return TopicReader(parsed, ["offset", "timestamp"])


def test_the_task_that_spark_runs_without_partitions_reads_nothing() -> None:
    from pyspark.sql.datasource import InputPartition

    assert list(reader().read(InputPartition(None))) == []


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (topic_range._leaders("t"), MetadataResponse()),
        (topic_range._offset("t", 0, EARLIEST, 0), ListOffsetsResponse()),
        (
            topic_range._offset("t", 0, EARLIEST, 0),
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse()]),
        ),
        (topic_range._fetch("t", 0, 0, 0), FetchResponse(responses=[FetchableTopicResponse()])),
    ],
)
def test_an_empty_answer_is_an_error_of_this_package(query: Any, answer: Any) -> None:
    with pytest.raises(ProtocolError, match="empty"):
        query.read(answer)


def reader_of(**kinds: Any) -> Any:
    from pyspark.sql.types import StructField, StructType

    from aioproducer.spark import AioproducerSource

    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    return AioproducerSource(OPTIONS).reader(schema)


def headers_of(value: Any) -> Any:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    return ArrayType(
        StructType([StructField("key", StringType()), StructField("value", value)]), False
    )


def test_a_schema_with_other_types_is_refused() -> None:
    from pyspark.sql import types

    wrong: dict[str, tuple[Any, str]] = {
        "value": (types.StringType(), "binary, not string"),
        "key": (types.IntegerType(), "binary, not int"),
        "timestamp": (types.TimestampNTZType(), "timestamp, not timestamp_ntz"),
        "topic": (types.BinaryType(), "string, not binary"),
        "headers": (headers_of(types.StringType()), "value:string"),
    }
    for name, (kind, reason) in wrong.items():
        with pytest.raises(ConfigError, match=f"column '{name}' of a read is .*{reason}"):
            reader_of(**{name: kind})
    with pytest.raises(ConfigError, match="there is no column 'text' in Kafka"):
        reader_of(text=types.StringType())


def test_a_schema_may_name_some_of_the_columns() -> None:
    from pyspark.sql import types

    reader_of(value=types.BinaryType(), topic=types.StringType(), offset=types.LongType())
    reader_of(partition=types.LongType(), timestampType=types.IntegerType())
    reader_of(headers=headers_of(types.BinaryType()), timestamp=types.TimestampType())


@pytest.mark.parametrize("time", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_that_is_no_date_does_not_end_a_read(time: int) -> None:
    fetched = Fetched([], TimestampType.CREATE_TIME)
    assert reader()._row(0, fetched, DecodedRecord(7, time, None, None, ())) == (7, None)


def test_a_time_is_read_in_utc() -> None:
    fetched = Fetched([], TimestampType.CREATE_TIME)
    _, moment = reader()._row(0, fetched, DecodedRecord(7, 1500, None, None, ()))
    assert moment.isoformat() == "1970-01-01T00:00:01.500000+00:00"


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"0":1e999}}',
        '{"t":{"0":0.7}}',
        "[" * 100_000,
        "[]",
        '{"t":{"0":%s}}' % ("9" * 5000),
    ],
)
def test_offsets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="startingoffsets"):
        reader(startingOffsets=text)._chosen("startingoffsets", "earliest", {0: 0}, {0: 1})


async def test_nothing_beyond_the_end_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    records = RecordBatch.records

    def counted(batch: RecordBatch) -> list[DecodedRecord]:
        decoded.append(batch.base_offset)
        return records(batch)

    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0)
        async with Producer(config) as producer:
            for _ in range(9):
                await producer.send_and_wait("t", b"x")
        monkeypatch.setattr(RecordBatch, "records", counted)
        async with TopicRange(config, "t", committed=False) as source:
            found = [each async for each in source.records(0, 0, 2)]
    assert [record.offset for each in found for record in each.records] == [0, 1]
    assert decoded == [0, 1]


async def test_a_partition_that_brokers_leave_out_ends_a_read_in_time() -> None:
    async with EmbeddedCluster(1, topics={"t": 1}) as cluster:
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=500)
        async with TopicRange(config, "t", committed=False) as source:
            with pytest.raises(KafkaTimeoutError, match="no answer within"):
                await anext(source.records(7, 0, 1))


async def test_a_partition_is_read_while_another_has_no_leader() -> None:
    async with EmbeddedCluster(2, topics={"t": TopicSpec(2, 1)}) as cluster:
        leaders = [cluster.state.partition("t", each).leader for each in (0, 1)]
        assert leaders[0] != leaders[1]
        config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, max_block_ms=3000)
        async with Producer(config) as producer:
            await producer.send_and_wait("t", b"x", partition=0)
        await cluster.stop_broker(leaders[1])
        async with TopicRange(config, "t", committed=False) as source:
            found = [each async for each in source.records(0, 0, 1)]
            with pytest.raises(KafkaTimeoutError, match="no answer within"):
                await source.offsets(EARLIEST)
    assert [record.value for each in found for record in each.records] == [b"x"]
