"""The requests of queries in each version, and the results they read from the responses."""

from __future__ import annotations

import pytest

from aioproducer.core.transactions import coordinator_queries
from aioproducer.errors import UnknownTopicOrPartitionError
from aioproducer.wire.messages import ListTransactionsRequest, MetadataResponse
from aioproducer.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


@pytest.mark.parametrize(
    ("prefix", "version", "pattern"),
    [("a.b", 2, "a\\.b.*"), ("a.b", 1, None), ("", 2, None)],
)
def test_brokers_filter_by_prefix_from_version_2_on(
    prefix: str, version: int, pattern: str | None
) -> None:
    request = coordinator_queries.list_open(prefix, None).make(version)
    assert isinstance(request, ListTransactionsRequest)
    assert request.transactional_id_pattern == pattern


def test_filter_by_age_needs_version_1() -> None:
    assert coordinator_queries.list_open("", older_than_ms=60_000).min_version == 1
    assert coordinator_queries.list_open("", older_than_ms=None).min_version == 0


def test_partition_count_is_that_of_the_topic_asked_for() -> None:
    topics = [
        MetadataResponseTopic(name=name, partitions=[MetadataResponsePartition()] * count)
        for name, count in (("other", 1), ("t", 3))
    ]
    query = coordinator_queries.partition_count("t", may_create=False)
    assert query.read(MetadataResponse(topics=topics)) == 3
    with pytest.raises(UnknownTopicOrPartitionError):
        query.read(MetadataResponse(topics=topics[:1]))
