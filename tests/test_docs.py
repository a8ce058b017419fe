"""The documents say what is true: snippets run, targets, commands and files named exist."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import pytest

from aioproducer import OffsetAndMetadata, Producer, SourcePosition, TopicPartition
from aioproducer.errors import DeliveryTimeoutError
from aioproducer.testing import MockProducer
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic
from aioproducer.transaction_admin import TransactionAdmin

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "aioproducer" / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "aioproducer"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


async def test_the_first_ten_lines_work(capsys: pytest.CaptureFixture[str]) -> None:
    async with EmbeddedCluster(topics={"orders": 3}) as cluster:
        program = blocks(README, "python")[0].replace("localhost:9092", cluster.bootstrap_servers)
        assert len([line for line in program.splitlines() if line.strip()]) <= 10
        program = program.replace("asyncio.run(main())", "")
        scope: dict[str, object] = {}
        exec(program, scope)
        await scope["main"]()  # type: ignore[operator]
    assert re.fullmatch(r"orders \d 0\n", capsys.readouterr().out)


async def test_the_snippets_about_sending_work() -> None:
    body = textwrap.indent(blocks(README, "python")[1], "    ")
    scope: dict[str, object] = {}
    exec(f"async def snippet(producer):\n{body}\n    return result, left", scope)
    async with (
        EmbeddedCluster(topics={"orders": 3}) as cluster,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        result, left = await scope["snippet"](producer)  # type: ignore[operator]
    assert (result.delivered, left) == (2, 0)


async def test_the_snippet_about_transactions_works() -> None:
    body = textwrap.indent(blocks(README, "python")[2], "    ")
    scope: dict[str, object] = {"TopicPartition": TopicPartition}
    exec(f"async def snippet(producer):\n{body}", scope)
    async with EmbeddedCluster(topics={"orders": 3, "payments": 3, "carts": 1}) as cluster:
        servers, read = cluster.bootstrap_servers, []
        async with Producer(bootstrap_servers=servers, transactional_id="billing-1") as producer:
            await scope["snippet"](producer)  # type: ignore[operator]
        for topic in ("orders", "payments"):
            records = await read_topic(servers, topic, isolation_level="read_committed")
            read += [record.value for some in records.values() for record in some]
        place = TopicPartition("carts", 0)
        async with TransactionAdmin(bootstrap_servers=servers) as admin:
            positions = await admin.committed_offsets("billing", [place])
    assert (read, positions) == ([b"shipped", b"charged"], {place: OffsetAndMetadata(43)})


async def test_the_snippets_about_exactly_once_work() -> None:
    async with EmbeddedCluster(topics={"orders": 3}) as cluster:
        servers = cluster.bootstrap_servers
        program = "\n".join(blocks(README, "python")[3:5]).replace("localhost:9092", servers)
        body = textwrap.indent(program, "    ")
        scope: dict[str, object] = {
            "SourcePosition": SourcePosition,
            "TransactionAdmin": TransactionAdmin,
        }
        exec(f"async def snippet(producer):\n{body}\n    return start, prepared", scope)
        name = "orders-loader"
        async with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
            start, prepared = await scope["snippet"](producer)  # type: ignore[operator]
            assert (start, prepared.empty) == (None, False)
            found = await SourcePosition(name, "orders").read(producer)
        assert found == OffsetAndMetadata(1, "orders.csv")
        records = await read_topic(servers, "orders", isolation_level="read_committed")
        values = sorted(record.value or b"" for some in records.values() for record in some)
        assert values == [b"row 1", b"value"]


async def test_the_snippet_about_watching_works(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = (block for block in blocks(README, "python") if "ProducerCollector" in block)
    imports, body = program.split("\n\n", 1)
    scope: dict[str, object] = {"Producer": Producer}
    async with EmbeddedCluster(topics={"orders": 3}) as cluster:
        body = textwrap.indent(body, "    ").replace("localhost:9092", cluster.bootstrap_servers)
        registry = "REGISTRY = type(REGISTRY)()"  # one that no other test shares
        exec(f"{imports}\n{registry}\nasync def snippet():\n{body}", scope)
        await scope["snippet"]()  # type: ignore[operator]
    assert float(capsys.readouterr().out) > 0


async def test_the_snippet_about_web_applications_works() -> None:
    (program,) = (block for block in blocks(README, "python") if "ProducerLifespan" in block)
    scope: dict[str, object] = {}
    async with EmbeddedCluster(topics={"orders": 1}) as cluster:
        exec(program.replace("localhost:9092", cluster.bootstrap_servers), scope)
        app = scope["app"]
        async with (
            app.router.lifespan_context(app),  # type: ignore[attr-defined]
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app),  # type: ignore[arg-type]
                base_url="http://test",
            ) as client,
        ):
            assert (await client.post("/orders", json={"id": 1})).json() == {"offset": 0}
            assert "Kafka producer" in (await client.get("/live/")).text


async def test_the_snippet_about_testing_works() -> None:
    (program,) = (block for block in blocks(README, "python") if "MockProducer" in block)
    body = textwrap.indent(program, "    ")
    scope: dict[str, object] = {
        "DeliveryTimeoutError": DeliveryTimeoutError,
        "EmbeddedCluster": EmbeddedCluster,
        "MockProducer": MockProducer,
    }
    exec(f"async def snippet():\n{body}\n    return delivery", scope)
    delivery = await scope["snippet"]()  # type: ignore[operator]
    assert isinstance(delivery.exception(), DeliveryTimeoutError)


def test_make_targets_named_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z][a-z-]+)\b", "\n".join((README, contributing))))
    assert {"demo", "test", "bench"} <= named
    for target in named - {"sure"}:
        assert re.search(rf"^{target}\b.*:", makefile, flags=re.MULTILINE), target


def test_commands_named_in_the_readme_exist() -> None:
    commands = set(re.findall(r"aioproducer (cluster|produce|load|topics|perf)\b", README))
    assert commands == {"cluster", "produce", "load", "topics", "perf"}
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "aioproducer", command, "--help"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        for line in README.splitlines():
            if f"aioproducer {command} " in line and line.startswith("$"):
                for option in re.findall(r"(--[a-z-]+)", line):
                    assert option in done.stdout, f"{command} {option}"


def test_architecture_names_files_and_functions_that_exist() -> None:
    for path in re.findall(r"`([a-z_]+/[a-z_]+\.pyx?)`", ARCHITECTURE):
        assert (PACKAGE / path).exists(), path
    sources = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py*"))
    for owner, name in re.findall(r"`([A-Z]\w+)\.(\w+)`", ARCHITECTURE):
        assert f"class {owner}" in sources, owner
        assert re.search(rf"\b(def {name}\(|{name}\b.*[:=]|\"{name}\")", sources), name
