"""`aioproducer cluster`: its topics."""

from __future__ import annotations

import pytest

from aioproducer.cli import main
from aioproducer.cli.cluster import EngineOptions
from aioproducer.cli.exit_codes import ExitCode
from aioproducer.testing import EmbeddedCluster
from aioproducer.testing.broker import TopicSpec


def test_topics_exist_before_a_client_can_connect_and_create_them() -> None:
    make, _ = EngineOptions(brokers=2, port=0).maker({"orders": TopicSpec(4, 2)})
    cluster = make()
    assert isinstance(cluster, EmbeddedCluster)
    partitions = cluster.state.topics["orders"].partitions
    assert [len(each.replicas) for each in partitions] == [2] * 4


@pytest.mark.parametrize(
    ("topic", "reason"), [("a/b", "INVALID_TOPIC_EXCEPTION"), ("a:1:3", "replicate the partition")]
)
def test_a_topic_that_brokers_refuse_ends_it(
    topic: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["cluster", "--brokers", "2", "--port", "0", "--topic", topic])
    error = capsys.readouterr().err
    assert (code, reason in error, f"topic {topic[0]}" in error) == (ExitCode.REFUSED, True, True)
