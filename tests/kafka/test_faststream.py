"""FastStream's own tests of `publish`, on real brokers, with its broker publishing natively.

FastStream's distributions hold no tests: AIOPRODUCER_TEST_FASTSTREAM names a checkout of its
repository, at the release that is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from aioproducer.testing.kafka import KafkaBackend

CHECKOUT = Path(os.environ.get("AIOPRODUCER_TEST_FASTSTREAM") or "/nowhere")

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        find_spec("faststream") is None or not (CHECKOUT / "tests").exists(),
        reason="AIOPRODUCER_TEST_FASTSTREAM names no checkout of FastStream's repository",
    ),
]

# Its brokers are those of the test, and each publishes by this package's producer.
PLUGIN = """
import functools, os
import faststream.kafka as kafka
from aioproducer.contrib.faststream import KafkaBroker

made = kafka.KafkaBroker.__init__

@functools.wraps(made)
def init(self, bootstrap_servers="localhost", *arguments, **options):
    if bootstrap_servers in ("localhost", "localhost:9092"):
        bootstrap_servers = os.environ["SERVERS"].split(",")
    made(self, bootstrap_servers, *arguments, **options)

kafka.KafkaBroker.__init__ = init
if os.environ["NATIVE"] == "1":
    kafka.KafkaBroker = KafkaBroker
"""

MOCKS = {"test_can_explicitly_publish_on_partition_0_from_publisher"}
"""Tests that replace `aiokafka.AIOKafkaProducer.send`, which is not called here."""


def failures(servers: str, folder: Path, *, native: bool) -> set[str]:
    """The names of the tests that fail."""
    (folder / "natively.py").write_text(PLUGIN, encoding="utf-8")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "natively", "-p", "no:cacheprovider"),
            *("-o", "addopts=", "-o", "filterwarnings=", "-W", "ignore", "-q", "-rf"),
            "tests/brokers/kafka/test_publish.py",
        ],
        cwd=CHECKOUT,
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{root}",
            "SERVERS": servers,
            "NATIVE": "1" if native else "0",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert any(" passed" in line for line in lines[-1:]), done.stdout + done.stderr
    failed = [line.split("::")[-1].split()[0] for line in lines if line.startswith("FAILED ")]
    return set(failed)


def test_what_passes_with_aiokafka_passes_natively(
    kafka_cluster: KafkaBackend, tmp_path: Path
) -> None:
    servers = kafka_cluster.bootstrap_servers
    plain = failures(servers, tmp_path, native=False)
    assert failures(servers, tmp_path, native=True) - plain <= MOCKS
