"""The pages in `aioproducer/docs` say what is true: every snippet runs, and no page is left out.

`test_guides.py` and `test_migration.py` have the larger ones.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.pages import DOCS, blocks, definitions, page, run_program

import aioproducer
from aioproducer import (
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    fastapi,
    serializers,
    testing,
)
from aioproducer.errors import CommitOutcomeUnknownError
from aioproducer.testing import EmbeddedCluster, ThreadedCluster, end_offsets, read_topic
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.wire.api_keys import ApiKey

ROOT = Path(__file__).parent.parent


async def values(servers: str, topic: str) -> list[bytes]:
    """The committed values of a topic, sorted."""
    found = await read_topic(servers, topic, isolation_level="read_committed")
    return sorted(record.value or b"" for records in found.values() for record in records)


async def test_programs_about_transactions_write_what_they_say(tmp_path: Path) -> None:
    programs = [block for block in blocks(page("transactions")) if "AIOKafka" not in block]
    async with EmbeddedCluster(topics={"orders": 3, "payments": 3, "carts": 1}) as cluster:
        servers = cluster.bootstrap_servers
        for program in programs:
            await asyncio.to_thread(run_program, program, tmp_path, servers)
        offsets = TopicPartition("carts", 0), TopicPartition("orders", 0)
        async with TransactionAdmin(bootstrap_servers=servers) as admin:
            billing = await admin.committed_offsets("billing", offsets)
            loader = await admin.committed_offsets("orders-loader", offsets)
        assert billing == {offsets[0]: OffsetAndMetadata(43)}
        assert loader == {offsets[1]: OffsetAndMetadata(3)}
        assert await values(servers, "payments") == [b"charged"]
        assert await values(servers, "orders") == [
            *(b"row 1", b"row 2", b"row 3"),
            *(b"shipped", b"shipped", b"value"),
        ]


@pytest.mark.parametrize("arrives", [True, False])
async def test_program_finds_out_the_outcome_of_a_commit(arrives: bool) -> None:
    program = next(each for each in blocks(page("transactions")) if "is_committed" in each)
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        is_committed = definitions(program, servers)["is_committed"]
        producer = Producer(bootstrap_servers=servers, transactional_id="billing-1")
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"once")
        fault = cluster.state.faults.swallow(ApiKey.END_TXN, apply=arrives)
        committing = asyncio.ensure_future(producer.commit_transaction())
        async with asyncio.timeout(20):
            while not fault.struck:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
        await producer.close(0)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            await committing
        for _ in range(2):
            assert await is_committed(caught.value)
        assert await values(servers, "orders") == [b"once"]


def test_programs_about_loading_send_every_row(tmp_path: Path) -> None:
    file, rows = tmp_path / "flights.csv", "carrier,flight,origin,time_hour\n"
    rows += "".join(f"UA,{n},EWR,2013-01-01T10:00:00Z\n" for n in range(10))
    at_least_once, exactly_once = blocks(page("loads"))
    with ThreadedCluster(topics={"flights": 3}) as cluster:
        servers = cluster.bootstrap_servers
        file.write_text(f"{rows}UA,x,EWR,never\n")
        assert run_program(at_least_once, tmp_path, servers) == "10 1\n"
        file.write_text(rows)
        for _ in range(2):  # the second time there is nothing left to do
            assert run_program(exactly_once, tmp_path, servers) == "True\n"
        assert sum(asyncio.run(end_offsets(servers, "flights")).values()) >= 20


async def test_metrics_named_on_the_page_about_monitoring_exist() -> None:
    async with (
        EmbeddedCluster() as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        metrics = producer.metrics()
    named = re.findall(r'metrics\(\)\["(\w+)"\]', page("monitoring"))
    assert set(named) <= set(metrics)
    assert len(named) == 3


def test_names_imported_in_the_pages_are_public() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md")))
    for module in (aioproducer, fastapi, testing, serializers):
        for names in re.findall(rf"^from {module.__name__} import ([\w, ]+)$", text, re.MULTILINE):
            for name in names.partition(" as ")[0].split(", "):
                assert name in module.__all__


@asynccontextmanager
async def serving(program: str, servers: str) -> AsyncIterator[httpx.AsyncClient]:
    """The application that a program defines, and a client of it."""
    scope: dict[str, Any] = {"__name__": "program"}
    exec(program.replace("localhost:9092", servers), scope)
    app = scope["app"]
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


async def test_applications_on_the_page_about_web_applications_answer() -> None:
    orders, probe, live = [block for block in blocks(page("web")) if "ProducerLifespan(" in block]
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        async with serving(orders, servers) as client:
            assert (await client.post("/orders", json={"id": 1})).json() == {"offset": 0}
        async with serving(probe, servers) as client:
            async with asyncio.timeout(20):
                while (await client.get("/ready")).status_code == 503:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert (await client.get("/ready")).json() == {"ready": True, "error": None}
        async with serving(live, servers) as client:
            assert "Orders" in (await client.get("/live/")).text


def test_the_test_file_on_the_page_about_web_applications_is_the_example() -> None:
    example = (ROOT / "examples" / "test_orders_app.py").read_text(encoding="utf-8")
    assert example in blocks(page("web"))


def test_files_named_in_the_guides_exist() -> None:
    for path in DOCS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`(examples/[\w./]+)`", text):
            assert (ROOT / name).exists(), name
        for name in re.findall(r"\]\((images/[\w.-]+)\)", text):
            assert (DOCS / name).exists(), name
