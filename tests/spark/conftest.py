"""One Spark session and one embedded cluster for all tests here; without Spark they are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.children import ROOT, environment
from support.spark import EmbeddedKafka, embedded_kafka

from aioproducer.spark.session import local_session

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # py4j leaves sockets to the garbage collector, PySpark uses what pandas deprecates.
            item.add_marker(pytest.mark.filterwarnings("default"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`local[2]`; its workers are this Python and find this tree."""
    pytest.importorskip("pyspark", reason="needs pyspark (the extra `spark`)")
    pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `spark`)")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs Java 17 or newer, on the PATH or by JAVA_HOME")
    # The directory of discovery is what a wheel makes of it: a top-level module.
    discovery = ROOT / "aioproducer/spark/discovery"
    os.environ["PYTHONPATH"] = environment(discovery)["PYTHONPATH"]
    os.environ["AIOPRODUCER_ALLOW"] = "env:AIOPRODUCER_TEST_*"  # of the workers, too
    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        # To start and compile takes longer here than what is run.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home),
    }
    session = local_session("aioproducer tests", settings, master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedKafka]:
    with embedded_kafka() as kafka:
        yield kafka
