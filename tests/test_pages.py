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
from support.pages import DOCS, blocks, definitions, page, run_block, run_program

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
from aioproducer.records import IMPLEMENTATION
from aioproducer.testing import (
    EmbeddedCluster,
    read_topic,
)
from aioproducer.transaction_admin import TransactionAdmin
from aioproducer.wire.api_keys import ApiKey

ROOT = Path(__file__).parent.parent


async def values(servers: str, topic: str) -> list[bytes]:
    """The committed values of a topic, sorted."""
    found = await read_topic(servers, topic, isolation_level="read_committed")
    return sorted(record.value or b"" for records in found.values() for record in records)


def test_every_page_with_snippets_is_run_by_a_test() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    for path in DOCS.glob("*.md"):
        if blocks(path.read_text(encoding="utf-8")):
            assert f'"{path.stem}"' in tests or f'"{path.name}"' in tests, path.name


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


async def test_the_snippets_about_loading_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file, rows = tmp_path / "flights.csv", "carrier,flight,origin,time_hour\n"
    rows += "".join(f"UA,{n},EWR,2013-01-01T10:00:00Z\n" for n in range(10))
    file.write_text(f"{rows}UA,x,EWR,never\n")
    scope: dict[str, Any] = {"Producer": Producer}
    at_least_once, exactly_once = blocks(page("loads"))
    async with EmbeddedCluster(topics={"flights": 3}) as cluster:
        servers = cluster.bootstrap_servers
        await run_block(at_least_once, scope, servers)
        file.write_text(rows)
        for _ in range(2):  # the second time there is nothing left to do
            await run_block(exactly_once, scope, servers)
        assert len(await values(servers, "flights")) == 20
    assert capsys.readouterr().out == "10 1\nTrue\nTrue\n"


async def test_the_snippets_about_security_work() -> None:
    plain, function, context = blocks(page("security"))
    scope: dict[str, Any] = {}
    await run_block(plain, scope, "localhost:9092")
    assert scope["producer"].config.sasl_mechanism == "SCRAM-SHA-512"
    assert "secret" not in repr(scope["producer"].config)

    async def read_from_vault(path: str) -> str:
        return f"of {path}"

    scope["read_from_vault"] = read_from_vault
    await run_block(function, scope, "localhost:9092")
    credentials = await scope["producer"].config.sasl_credentials()
    assert credentials == ("orders", "of kafka/orders")
    await run_block(context, scope, "localhost:9092")
    assert scope["producer"].config.ssl_context is scope["context"]


async def test_the_snippets_about_monitoring_work(capsys: pytest.CaptureFixture[str]) -> None:
    exporters, tracing, interceptor, reporter = blocks(page("monitoring"))
    scope: dict[str, Any] = {"Producer": Producer}
    imports, body = exporters.split("\n\n", 1)
    registry = "REGISTRY = type(REGISTRY)()\n"  # one that no other test shares
    async with EmbeddedCluster(topics={"orders": 3}) as cluster:
        servers = cluster.bootstrap_servers
        await run_block(f"{imports}\n{registry}{body}", scope, servers)
        assert float(capsys.readouterr().out) > 0
        await run_block(tracing, scope, servers)
        await run_block(interceptor, scope, servers)
        assert scope["audit"].failed == 0
        producer = scope["producer"]
        await run_block(reporter, scope, servers)
        assert "record-send-total 1.0\n" in capsys.readouterr().out
        for name in re.findall(r'metrics\(\)\["(\w+)"\]', page("monitoring")):
            assert name in producer.metrics()


async def test_the_snippet_about_installing_works(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(page("install"))
    await run_block(block, {}, "")
    assert capsys.readouterr().out == f"{IMPLEMENTATION}\n"


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
