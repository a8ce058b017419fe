"""The loader's public API with a real producer on embedded brokers."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from aioproducer import Producer
from aioproducer.errors import DeliveryTimeoutError, InvalidTopicError
from aioproducer.loader import (
    FileSource,
    Loader,
    LoadOptions,
    Position,
    RecordMapping,
    RowsSource,
)
from aioproducer.records.batch import DecodedRecord
from aioproducer.testing.broker import ClusterSettings, TopicSpec
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.wire.api_keys import ApiKey


@pytest.fixture
async def brokers() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, topics={"t": 6}) as cluster:
        yield cluster


@pytest.fixture
async def producer(brokers: EmbeddedCluster) -> AsyncIterator[Producer]:
    async with Producer(bootstrap_servers=brokers.bootstrap_servers) as started:
        yield started


async def read(cluster: EmbeddedCluster, topic: str = "t") -> dict[int, list[DecodedRecord]]:
    return await read_topic(cluster.bootstrap_servers, topic, timeout_s=30)


async def test_equal_keys_meet_in_one_partition_in_input_order(
    brokers: EmbeddedCluster, producer: Producer
) -> None:
    rows = [{"key": f"k{n % 50}", "n": n} for n in range(5000)]
    options = LoadOptions(RecordMapping(key=("key",)))
    result = await Loader(producer, RowsSource(rows), "t", options).run()
    assert result.progress.acknowledged == 5000
    home: dict[bytes | None, int] = {}
    for partition, records in (await read(brokers)).items():
        for record in records:
            assert home.setdefault(record.key, partition) == partition
        numbers = [json.loads(record.value or b"")["n"] for record in records]
        assert numbers == sorted(numbers)
    assert len(home) == 50


async def test_parquet_rows_become_json(
    brokers: EmbeddedCluster, producer: Producer, tmp_path: Path
) -> None:
    file = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"id": [1, 2], "amount": [1.5, None]}), file)
    mapping = RecordMapping(key=("id",), partition="id")
    await Loader(producer, FileSource(file), "t", LoadOptions(mapping)).run()
    found = await read(brokers)
    assert [(r.key, r.value) for r in found[1]] == [(b"1", b'{"id":1,"amount":1.5}')]
    assert [(r.key, r.value) for r in found[2]] == [(b"2", b'{"id":2,"amount":null}')]


async def test_partition_by_keeps_equal_values_together_whatever_the_key(
    brokers: EmbeddedCluster, producer: Producer
) -> None:
    rows = [{"key": str(n), "city": f"c{n % 7}"} for n in range(700)]
    mapping = RecordMapping(key=("key",), partition_by=("city",), value="city")
    await Loader(producer, RowsSource(rows), "t", LoadOptions(mapping)).run()
    cities = [{record.value for record in records} for records in (await read(brokers)).values()]
    assert sum(map(len, cities)) == 7


async def test_too_large_row_is_a_dead_letter_and_its_neighbours_arrive(
    brokers: EmbeddedCluster, producer: Producer, tmp_path: Path
) -> None:
    brokers.create_topic("small", TopicSpec(1, configs={"max.message.bytes": "2000"}))
    rows = [{"text": "x" * size} for size in (10, 2_000_000, 3000, 20)]
    dead = tmp_path / "dead"
    options = LoadOptions(RecordMapping(value="text"), dead_letter=dead, max_outstanding=1)
    result = await Loader(producer, RowsSource(rows), "small", options).run()
    assert (result.progress.acknowledged, result.progress.failed) == (2, 2)
    entries = [json.loads(line) for line in dead.read_text().splitlines()]
    assert [(entry["row"], entry["stage"]) for entry in entries] == [
        (2, "delivery"),
        (3, "delivery"),
    ]
    assert [len(r.value or b"") for r in (await read(brokers, "small"))[0]] == [10, 20]


async def test_load_survives_a_broker_that_goes_away(
    brokers: EmbeddedCluster, producer: Producer
) -> None:
    rows = ({"n": n} for n in range(20_000))
    loader = Loader(producer, RowsSource(rows), "t")
    running = asyncio.create_task(loader.run())
    while loader.progress.acknowledged < 1000:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await brokers.stop_broker(2)
    result = await running
    assert result.progress.acknowledged == 20_000
    found = {record.value for records in (await read(brokers)).values() for record in records}
    assert len(found) == 20_000


async def test_load_without_a_cluster_ends_before_the_first_unacknowledged_row(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    options = LoadOptions(state=tmp_path / "state", max_outstanding=100)
    async with Producer(
        bootstrap_servers=brokers.bootstrap_servers,
        delivery_timeout_ms=600,
        request_timeout_ms=500,
        linger_ms=0,
    ) as producer:
        loader = Loader(producer, RowsSource({"n": n} for n in range(100_000)), "t", options)
        running = asyncio.create_task(loader.run())
        while loader.progress.acknowledged < 200:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for node_id in brokers.state.brokers:
            brokers.freeze_broker(node_id)
        with pytest.raises(DeliveryTimeoutError):
            await running
        for node_id in brokers.state.brokers:
            brokers.thaw_broker(node_id)
    assert loader.progress.outstanding == 0
    assert loader.progress.failed > 0
    position = loader.state.position
    assert position is not None
    assert 200 <= position.row <= loader.progress.acknowledged
    settled = loader.state.settled
    assert settled.acknowledged == position.row


@pytest.mark.parametrize("versions", [(3, 9), (3, 7)], ids=["named", "not named"])
async def test_of_many_rows_only_the_bad_one_is_a_dead_letter(
    tmp_path: Path, versions: tuple[int, int]
) -> None:
    settings = ClusterSettings(api_versions={ApiKey.PRODUCE: versions})
    topics = {"t": TopicSpec(2, configs={"cleanup.policy": "compact"})}
    dead = tmp_path / "dead.ndjson"
    rows = [{"key": None if n == 500 else f"k{n}", "n": n} for n in range(1000)]
    options = LoadOptions(RecordMapping(key=("key",)), dead_letter=dead)
    async with EmbeddedCluster(brokers=3, topics=topics, settings=settings) as brokers:
        async with Producer(bootstrap_servers=brokers.bootstrap_servers) as producer:
            result = await Loader(producer, RowsSource(rows), "t", options).run()
        found = await read(brokers)
    assert (result.progress.acknowledged, result.progress.failed) == (999, 1)
    (line,) = dead.read_text().splitlines()
    buried = json.loads(line)
    assert (buried["row"], buried["stage"]) == (501, "delivery")
    assert "without key" in buried["reason"] or versions == (3, 7)
    numbers = [[json.loads(each.value or b"")["n"] for each in found[at]] for at in sorted(found)]
    assert all(some == sorted(some) for some in numbers)
    assert sorted(n for some in numbers for n in some) == [n for n in range(1000) if n != 500]


async def test_invalid_topic_ends_the_load(producer: Producer) -> None:
    with pytest.raises(InvalidTopicError):
        await Loader(producer, RowsSource([{"n": 1}]), "no/such topic").run()


async def test_several_files_are_one_load(
    brokers: EmbeddedCluster, producer: Producer, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.ndjson.gz"
    first.write_text("k,v\n1,2\n")
    second.write_bytes(gzip.compress(b'{"k":"3","v":"4"}\n'))
    options = LoadOptions(RecordMapping(key=("k",), value="v"))
    result = await Loader(producer, FileSource([first, second]), "t", options).run()
    assert result.state.position == Position(str(second), None, 1)
    found = {(r.key, r.value) for records in (await read(brokers)).values() for r in records}
    assert found == {(b"1", b"2"), (b"3", b"4")}
