"""Test clusters on systems without POSIX, such as Windows."""

from __future__ import annotations

from support.windows import output_without_posix

REFUSED = """
from aioproducer.testing.kafka import ClusterError, ExternalCluster, KafkaCluster
try:
    KafkaCluster()
except ClusterError as error:
    print(error)
"""


def test_java_processes_as_brokers_are_refused_without_posix() -> None:
    assert "need Linux or macOS" in output_without_posix(REFUSED)
