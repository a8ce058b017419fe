"""The pages in `aioproducer/docs` say what is true: every snippet runs, and no page is left out.

`test_guides.py` and `test_migration.py` have the larger ones.
"""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.pages import DOCS, blocks, page, run_block

import aioproducer
from aioproducer import (
    OffsetAndMetadata,
    Producer,
    SourcePosition,
    TopicPartition,
    fastapi,
    serializers,
    testing,
)
from aioproducer.errors import CommitOutcomeUnknownError, PreparedTransactionEndedError
from aioproducer.records import IMPLEMENTATION
from aioproducer.testing import (
    EmbeddedCluster,
    ThreadedCluster,
    end_offsets,
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


def test_the_programs_of_the_tutorial_work(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    *programs, test = blocks(page("tutorial"))
    with ThreadedCluster(topics={"orders": 3}) as cluster:
        for program in programs:
            exec(program.replace("localhost:9092", cluster.bootstrap_servers), scope)
        ends = asyncio.run(end_offsets(cluster.bootstrap_servers, "orders"))
    said = capsys.readouterr().out
    assert re.match(r"partition \d, offset 0\n\d 0 b'customer-7' b'{\"id\": 1}'\n0 records", said)
    markers = 2  # of the transaction: one for each of its keys' partitions, or for one
    assert 10_004 < sum(ends.values()) <= 10_004 + markers
    exec(test, scope)
    asyncio.run(scope["test_orders_arrive"]())


async def test_the_snippets_about_sending_work(capsys: pytest.CaptureFixture[str]) -> None:
    first, record, columns, threads, options, permissions = blocks(page("sending"))
    async with EmbeddedCluster(topics={"orders": 3}) as cluster:
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers) as producer:
            scope: dict[str, Any] = {"producer": producer}
            await run_block(first, scope, servers)
            assert (scope["result"].delivered, scope["left"]) == (2, 0)
            await run_block(record, scope, servers)
            assert (await scope["delivery"]).partition == 2
            await run_block(columns, scope, servers)
            assert scope["result"].delivered == 2
        await run_block(threads, scope, servers)
        offsets = await asyncio.to_thread(scope["work"], servers)
        assert len(offsets) == 100
        await run_block(options, scope, "localhost:9092")
        await run_block(permissions, scope, "localhost:9092")
    assert (scope["config"].linger_ms, scope["config"].compression_type) == (20, "zstd")
    assert capsys.readouterr().out.startswith("2 [] {TopicPartition(")


async def test_the_snippets_about_transactions_work() -> None:
    transaction, _, _, position, prepared = blocks(page("transactions"))
    scope: dict[str, Any] = {
        "Producer": Producer,
        "SourcePosition": SourcePosition,
        "TopicPartition": TopicPartition,
        "TransactionAdmin": TransactionAdmin,
    }
    async with EmbeddedCluster(topics={"orders": 3, "payments": 3, "carts": 1}) as cluster:
        servers, name, place = (
            cluster.bootstrap_servers,
            "orders-loader",
            TopicPartition("carts", 0),
        )
        async with Producer(bootstrap_servers=servers, transactional_id="billing-1") as producer:
            await run_block(transaction, scope | {"producer": producer}, servers)
        assert await values(servers, "orders") == [b"shipped"]
        assert await values(servers, "payments") == [b"charged"]
        async with TransactionAdmin(bootstrap_servers=servers) as admin:
            found = await admin.committed_offsets("billing", [place])
        assert found == {place: OffsetAndMetadata(43)}

        async with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
            scope["producer"] = producer
            await run_block(position, scope, servers)
            await run_block(prepared, scope, servers)
            assert (scope["start"], scope["prepared"].empty) == (None, False)
            read = await SourcePosition(name, "orders").read(producer)
        assert read == OffsetAndMetadata(1, "orders.csv")
        assert await values(servers, "orders") == [b"row 1", b"shipped", b"value"]


@pytest.mark.parametrize("arrives", [True, False])
async def test_the_snippet_about_a_commit_whose_outcome_is_unknown_finds_out(arrives: bool) -> None:
    _, snippet, *_ = blocks(page("transactions"))
    scope: dict[str, Any] = {
        "PreparedTransactionEndedError": PreparedTransactionEndedError,
        "TransactionAdmin": TransactionAdmin,
    }
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        await run_block(snippet, scope, servers)
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
            assert await scope["resolve"](caught.value, servers)
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


async def test_the_snippets_about_web_applications_work() -> None:
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        scope: dict[str, Any] = {}
        for snippet in blocks(page("web")):
            if "dependency_overrides" in snippet:  # a file of its own, see test_examples.py
                continue
            if "import FastStream" in snippet and find_spec("faststream") is None:
                continue
            exec(snippet.replace("localhost:9092", cluster.bootstrap_servers), scope)
        app = scope["app"]
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):
            assert (await client.post("/orders", json={"id": 1})).json() == {"offset": 0}
            assert "Orders" in (await client.get("/live/")).text
            assert (await client.get("/ready")).json() == {"ready": True, "error": None}


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
