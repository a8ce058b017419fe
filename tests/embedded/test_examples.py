"""The programs in examples/ do what they say, on embedded brokers."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from runpy import run_path
from typing import Any

import httpx
import pytest
from support.programs import EXAMPLES, example
from support.waiting import until

from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.kafka.ports import free_ports
from aioproducer.testing.reader import read_topic


@pytest.fixture
async def brokers() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


async def test_service_places_every_order_in_its_customers_partition(
    brokers: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers.create_topic("orders", 3)
    assert await example("service.py").main(brokers.bootstrap_servers) == 0
    assert "999 more placed, 0 failed" in capsys.readouterr().out
    found = await read_topic(brokers.bootstrap_servers, "orders")
    records = [record for partition in found.values() for record in partition]
    assert {json.loads(record.value or b"")["id"] for record in records} == set(range(1, 1001))
    customers = [{record.key for record in partition} for partition in found.values()]
    assert sum(map(len, customers)) == 7


async def test_threads_finds_the_cluster_by_the_environment(
    brokers: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers.create_topic("readings", 3)
    monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", brokers.bootstrap_servers)
    with pytest.raises(SystemExit, match="0"):
        await asyncio.to_thread(run_path, str(EXAMPLES / "threads.py"), run_name="__main__")
    assert "4000 of 4000 readings stored" in capsys.readouterr().out


async def test_a_celery_worker_that_starts_before_kafka_publishes_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("celery")
    (port,) = free_ports(1)
    monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", f"127.0.0.1:{port}")
    worker = example("celery_worker.py")
    await asyncio.to_thread(worker.start_producer)
    async with EmbeddedCluster(brokers=1, ports=[port], topics={"orders": 1}):
        assert await asyncio.to_thread(worker.publish, {"id": 1}) == 0
        await asyncio.to_thread(worker.close_producer)


async def test_loader_loads_and_goes_on_where_it_ended(
    brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    brokers.create_topic("flights", 3)
    file = tmp_path / "f.csv"
    rows = "".join(f"UA,{n},EWR,2013-01-01T10:00:00Z\n" for n in range(100))
    file.write_text(f"carrier,flight,origin,time_hour\n{rows}")
    load = example("loader.py").load
    for expected in (100, 0):
        result = await load([str(file)], "flights", brokers.bootstrap_servers, tmp_path)
        assert (result.complete, result.progress.acknowledged) == (True, expected)
    found = await read_topic(brokers.bootstrap_servers, "flights")
    (record,) = [r for each in found.values() for r in each if r.key == b"UA+7"]
    assert record.timestamp_ms == 1_357_034_400_000
    assert tuple(record.headers) == (("origin", b"EWR"),)


async def test_an_aiohttp_application_publishes_and_refuses(brokers: EmbeddedCluster) -> None:
    pytest.importorskip("aiohttp")
    from aiohttp.test_utils import TestClient, TestServer

    brokers.create_topic("events", 1)
    app = example("aiohttp_app.py").create_app(brokers.bootstrap_servers)
    async with TestClient(TestServer(app)) as client:
        async with client.post("/events", json={"n": 1}) as stored:
            assert (stored.status, await stored.json()) == (201, {"partition": 0, "offset": 0})
        too_large = io.BytesIO(json.dumps({"text": "x" * 1_100_000}).encode())
        async with client.post("/events", data=too_large) as refused:
            assert (refused.status, (await refused.json())["persistence"]) == (413, "not persisted")
    found = await read_topic(brokers.bootstrap_servers, "events")
    assert [json.loads(record.value or b"") for record in found[0]] == [{"n": 1}]


async def test_a_litestar_application_publishes_and_refuses(brokers: EmbeddedCluster) -> None:
    pytest.importorskip("litestar")
    brokers.create_topic("events", 1)
    app = example("litestar_app.py").create_app(brokers.bootstrap_servers)
    transport = httpx.ASGITransport(app)
    async with (
        app.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://x") as client,
    ):
        stored = await client.post("/events", json={"n": 1})
        assert (stored.status_code, stored.json()) == (201, {"partition": 0, "offset": 0})
        refused = await client.post("/events", json={"text": "x" * 1_100_000})
        assert (refused.status_code, refused.json()["persistence"]) == (413, "not persisted")


async def test_a_faststream_application_publishes(brokers: EmbeddedCluster) -> None:
    pytest.importorskip("faststream", reason="FastStream is not installed")
    for topic in ("orders", "invoices"):
        brokers.create_topic(topic, 1)
    app = example("faststream_app.py").create_app(brokers.bootstrap_servers)
    running = asyncio.create_task(app.run())
    invoices: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(20):
            while len(invoices) < 3:
                await asyncio.sleep(0.05)
                (records,) = (await read_topic(brokers.bootstrap_servers, "invoices")).values()
                invoices = [json.loads(record.value or b"") for record in records]
    finally:
        app.exit()
        await running
    assert invoices == [
        {"order": 1, "total": 7},
        {"order": 2, "total": 0},
        {"order": 3, "total": 5},
    ]


@pytest.mark.slow
async def test_demo_loads_all_flights_and_finds_them_again() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, EXAMPLES / "demo.py"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"CLUSTER": "embedded"},
    )
    async with asyncio.timeout(110):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "336,776" in out.decode()
    assert "all as in the source" in out.decode()


def test_demo_notices_a_record_that_is_missing_doubled_or_changed() -> None:
    demo = example("demo.py")
    rows = [(b"k1", b"v1"), (b"k1", b"v2"), (b"k2", b"v3")]

    def content(*pairs: tuple[bytes, bytes]) -> object:
        made = demo.Content()
        for key, value in pairs:
            made.add(key, value)
        return made

    assert content(*rows) == content(*reversed(rows))
    assert content(*rows) != content(*rows[1:])
    assert content(*rows) != content(*rows, rows[0])
    assert content(*rows) != content(*rows[1:], (b"k1", b"vX"))
    assert content(*rows) != content(*rows[1:], (b"k2", b"v1"))


def test_demos_own_key_hash_is_kafkas() -> None:
    # Values of org.apache.kafka.common.utils.UtilsTest, as unsigned numbers.
    murmur2 = example("demo.py").murmur2
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {data: murmur2(data) for data in known} == {
        data: signed % 2**32 for data, signed in known.items()
    }


def test_the_tests_of_the_fastapi_example_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", ".", "test_orders_app.py"],
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parent)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


async def test_the_fastapi_example_serves_before_kafka_and_publishes_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    cluster = EmbeddedCluster(1, ports=[port], topics={"orders": 1})
    monkeypatch.setenv("AIOPRODUCER_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    app = example("orders_app.py").app
    order = {"customer": "ada", "amount": 3}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        early = await client.post("/orders", json=order)
        assert (early.status_code, early.headers["Retry-After"]) == (503, "1")
        assert (await client.get("/ready")).json()["state"] == "connecting"
        async with cluster:
            await until(lambda: app.state.aioproducer.health().ready)
            assert (await client.get("/ready")).status_code == 200
            assert (await client.post("/orders", json=order)).status_code == 201
