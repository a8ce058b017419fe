"""`opentelemetry-instrument` finds the instrumentor, and others' instrumentation beside it.

It needs an environment with `opentelemetry-distro`, `opentelemetry-instrumentation-aiokafka`,
`aiokafka` and this package's dependencies: this one, or the one whose `bin` folder is in
AIOPRODUCER_TEST_OTEL.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(os.environ.get("AIOPRODUCER_TEST_OTEL") or Path(sys.executable).parent)
COMMAND = BIN / "opentelemetry-instrument"

needs_command = pytest.mark.skipif(
    not COMMAND.exists(),
    reason=f"no {COMMAND}: AIOPRODUCER_TEST_OTEL names a folder that has the command",
)

PROGRAM = """
import asyncio, json, sys
{before}
from aioproducer.testing.embedded import EmbeddedCluster
from aioproducer.testing.reader import read_topic

async def main():
    async with EmbeddedCluster(topics={{"t": 1}}) as cluster:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"1")
            await producer.send("t", b"2")
        records = (await read_topic(cluster.bootstrap_servers, "t"))[0]
    marks = [value.decode() for each in records for name, value in each.headers]
    print("MARKS", json.dumps(marks))

asyncio.run(main())
"""
OURS = "from aioproducer.compat.aiokafka import AIOKafkaProducer"
THEIRS = f"""
import aiokafka
{OURS}
aiokafka.AIOKafkaProducer = AIOKafkaProducer
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
AIOKafkaInstrumentor().instrument()
"""


def run(before: str, **variables: str) -> tuple[list[str], list[str]]:
    """The `traceparent` values of the records of a program, and the ids of its spans."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        **variables,
    }
    done = subprocess.run(
        [str(COMMAND), str(BIN / "python"), "-c", PROGRAM.format(before=before)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (marks,) = [json.loads(line[6:]) for line in lines if line.startswith("MARKS ")]
    return marks, [line.split('"')[3] for line in lines if '"span_id":' in line]


@needs_command
@pytest.mark.parametrize(
    ("before", "disabled"),
    [(OURS, ""), (THEIRS, "aioproducer,aiokafka"), (THEIRS, "aiokafka")],
    ids=["ours", "theirs", "both"],
)
def test_each_record_of_a_program_has_one_span(before: str, disabled: str) -> None:
    marks, spans = run(before, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=disabled)
    assert sorted(mark.split("-")[2] for mark in marks) == sorted(
        span.removeprefix("0x") for span in spans
    )
    assert len(spans) == 2


def test_the_package_has_the_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = "opentelemetry_instrumentor"
    ((name, value),) = project["entry-points"][group].items()
    entry = importlib.metadata.EntryPoint(name, value, group)
    assert entry.load()().is_instrumented_by_opentelemetry is False
