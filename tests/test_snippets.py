"""Every Python block of README.md and of the pages is a program that runs as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import DOCS, ROOT, blocks, definitions, is_test, page, run_program, run_tests
from support.registry_server import serve_registry

from aioproducer.testing import StubSchemaRegistry, ThreadedCluster

TOPICS = {"orders": 3, "payments": 3, "carts": 1, "flights": 3, "customers": 1}
ELSEWHERE = {
    "deployment": "a service that ends by a signal: test_operations_pages.py",
    "spark": "needs Java: tests/spark/test_batch_write.py",
}

PRINTED: dict[str, list[str]] = {
    "README.md": [r"orders \d 0\n"],
    "sending": [
        r"\d 0\n2 \[\] \{TopicPartition\(.*\)\}\n0\n",
        r"2\n",
        r"2\n",
        r"100\n",
        r"20 zstd\n",
        r"",
    ],
    "install": [r"(native|pure)\n"],
    "loads": [r"10 0\n", r"True\n"],
    "monitoring": [
        r".*kafka_producer_record_send_total\{client_id=\"producer-1\"\} 1\.0\n.*",
        r"",
        r"",
        r"",
        r"0\n",
        r".*record-send-total 1\.0\n.*",
    ],
    "security": [r""] * 6,
    "serializers": [r"", r"", r"", r"orders value id\n", r"\(.*\)\n", r""],
    "tutorial": [
        r"partition \d, offset 0\n",
        r"",
        r"0 records are pending\n",
        r"written at offset 0\n",
        r"",
    ],
}
"""What each program of a page prints; test files and pages that are not here are only run."""


def every_block() -> Iterator[object]:
    """Page, number and text of each block."""
    for name in ["README.md", *sorted(path.stem for path in DOCS.glob("*.md"))]:
        if name in ELSEWHERE:
            continue
        for number, block in enumerate(blocks(page(name))):
            # The embedded brokers have no consumer groups: test_aiokafka_programs.py runs that one.
            if not is_test(block) and "AIOKafkaConsumer(" not in block:
                yield pytest.param(name, number, block, id=f"{name}-{number}")


@pytest.fixture
def kafka() -> Iterator[ThreadedCluster]:
    with ThreadedCluster(topics=dict(TOPICS)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    stub = StubSchemaRegistry()
    customer = definitions(blocks(page("serializers"))[-1])["CUSTOMER"]
    stub.register("customers-value", json.dumps(customer))
    with serve_registry(stub) as url:
        yield url


@pytest.mark.parametrize(("name", "number", "block"), list(every_block()))
def test_program_runs_as_pasted(
    name: str, number: int, block: str, kafka: ThreadedCluster, registry: str, tmp_path: Path
) -> None:
    if "faststream" in block:
        pytest.importorskip("faststream")
    (tmp_path / "flights.csv").write_text(
        "carrier,flight,origin,time_hour\n"
        + "".join(f"UA,{n},EWR,2013-01-01T10:00:00Z\n" for n in range(10))
    )
    printed = run_program(block, tmp_path, kafka.bootstrap_servers, registry)
    for line in re.findall(r"print\(.*\)  # (.+)$", block, flags=re.MULTILINE):
        assert line in printed.splitlines(), printed
    if name in PRINTED:
        assert re.fullmatch(PRINTED[name][number], printed, flags=re.DOTALL), printed


def test_a_type_checker_accepts_every_program(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for path in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        for number, block in enumerate(blocks(path.read_text(encoding="utf-8"))):
            (tmp_path / f"{path.stem}_{number}.py").write_text(block, encoding="utf-8")
    options = ["--config-file=", "--check-untyped-defs", "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", ["testing", "tutorial"])
def test_test_files_of_the_page_pass(name: str, tmp_path: Path) -> None:
    run_tests([block for block in blocks(page(name)) if is_test(block)], tmp_path)


@pytest.mark.parametrize("path", [*DOCS.glob("*.md")], ids=lambda path: path.stem)
def test_blocks_have_a_language_that_is_known(path: Path) -> None:
    languages = re.findall(r"^```(\S*)\n.*?^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    known = {"python", "console", "sh", "bash", "properties", "dockerfile", "yaml", "ini", "sql"}
    assert set(languages) <= known | {"", "json", "text"}


def test_pages_without_own_tests_are_known() -> None:
    for name in ELSEWHERE:
        assert blocks(page(name)), name
