"""Other masters: a cluster of processes, and a Spark Connect server; by `load`, and by streams.

They run with `make cluster-spark`, since both start another Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.children import environment
from support.spark import EmbeddedKafka

pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")

from support.spark_cluster import connect_server, standalone_cluster

FILES = 3
ROWS = 40

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("AIOPRODUCER_TEST_SPARK_FAULTS"),
        reason="takes long (make cluster-spark)",
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(FILES):
        lines = (f"{number * ROWS + row}" for row in range(ROWS))
        (folder / f"{number}.csv").write_text("\n".join(["id", *lines, ""]), encoding="ascii")
    return folder


def load(rows: Path, embedded: EmbeddedKafka, topic: str, master: str, *more: str) -> str:
    """Runs the command; what it says."""
    command = ["load", str(rows), "-t", topic, "--value", "id", "-b", embedded.servers]
    done = subprocess.run(
        [sys.executable, "-m", "aioproducer", *command, "--master", master, *more],
        cwd=rows.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("guarantee", [[], ["--exactly-once"]])
def test_a_folder_is_loaded_by_a_standalone_cluster(
    rows: Path, embedded: EmbeddedKafka, tmp_path: Path, guarantee: list[str]
) -> None:
    topic = embedded.topic(2)
    with standalone_cluster(tmp_path) as master:
        said = load(rows, embedded, topic, master, *guarantee)
        assert f"engine: spark (--master {master} is Spark's)" in said
        if guarantee:
            assert "it was loaded before" in load(rows, embedded, topic, master, *guarantee)
    assert sorted(embedded.numbers(topic)) == list(range(FILES * ROWS))


@pytest.mark.skipif(find_spec("grpc") is None, reason="needs grpcio (pyspark[connect])")
@pytest.mark.parametrize("guarantee", [[], ["--exactly-once"]])
def test_a_folder_is_loaded_through_spark_connect(
    rows: Path, embedded: EmbeddedKafka, tmp_path: Path, guarantee: list[str]
) -> None:
    topic = embedded.topic(2)
    with connect_server(tmp_path) as master:
        load(rows, embedded, topic, master, *guarantee)
        if guarantee:
            assert "it was loaded before" in load(rows, embedded, topic, master, *guarantee)
    assert sorted(embedded.numbers(topic)) == list(range(FILES * ROWS))


@pytest.mark.skipif(find_spec("grpc") is None, reason="needs grpcio (pyspark[connect])")
@pytest.mark.parametrize("way", ["source", "batch_writer"])
def test_a_stream_through_spark_connect_writes_a_batch_that_runs_again_once(
    embedded: EmbeddedKafka, tmp_path: Path, way: str
) -> None:
    topic = embedded.topic(2)
    lines, checkpoint = tmp_path / "lines", tmp_path / "checkpoint"
    lines.mkdir()
    given = {"folder": str(lines), "checkpoint": str(checkpoint), "servers": embedded.servers}
    with connect_server(tmp_path) as remote:
        for number in range(FILES):
            rows = range(number * ROWS, (number + 1) * ROWS)
            (lines / f"{number}.txt").write_text("\n".join(map(str, rows)), encoding="ascii")
            if number:  # as if Spark had died before it noted the last batch
                (checkpoint / "commits" / str(number - 1)).unlink()
                (checkpoint / "commits" / f".{number - 1}.crc").unlink(missing_ok=True)
            run_stream(tmp_path, given | {"remote": remote, "topic": topic, "way": way})
    assert sorted(embedded.numbers(topic)) == list(range(FILES * ROWS))


def run_stream(folder: Path, given: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.spark_connect", json.dumps(given)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
