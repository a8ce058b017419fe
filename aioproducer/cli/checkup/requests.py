"""Requests to a broker that answers normally, beyond those to coordinators.

Invariant: no request changes anything on the cluster; none creates a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from aioproducer.core.transactions.coordinator_queries import CoordinatorQuery
from aioproducer.errors.base import raise_for_code
from aioproducer.records.committed import MAX_TIMESTAMP, offsets_request
from aioproducer.testing.wire_client import first_of
from aioproducer.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from aioproducer.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from aioproducer.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioproducer.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.wire.schema import Message

_WITHOUT_CREATION = 4
_WITH_OPERATIONS = 8
_LAST_BY_NAME = 12
_TOPIC_RESOURCE = 2
_FIRST_WITH_MAX_TIMESTAMP = 7
_NO_MECHANISM = "?"


def cluster_and_topic(topic: str | None) -> CoordinatorQuery[MetadataResponse]:
    """Ask for the cluster, and for the topic with this principal's permissions (KIP-430)."""

    def make(version: int) -> Message:
        wanted = [] if topic is None else [MetadataRequestTopic(name=topic)]
        if version < _WITHOUT_CREATION:
            # Asking for one topic would create it; for all of them does not.
            return MetadataRequest(topics=None if topic is not None and version else [])
        return MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= _WITH_OPERATIONS and bool(wanted),
        )

    def read(answer: Message) -> MetadataResponse:
        response = cast(MetadataResponse, answer)
        raise_for_code(response.error_code)
        return response

    return CoordinatorQuery(MetadataRequest, make, read, max_version=_LAST_BY_NAME)


def topic_configs(topic: str, *names: str) -> CoordinatorQuery[Mapping[str, str]]:
    """Ask for the named options of a topic."""

    def read(answer: Message) -> Mapping[str, str]:
        result = first_of(cast(DescribeConfigsResponse, answer).results, "topic")
        raise_for_code(result.error_code, result.error_message, topic=topic)
        return {each.name: each.value for each in result.configs if each.value is not None}

    resource = DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(names)
    )
    return CoordinatorQuery(
        DescribeConfigsRequest, lambda _: DescribeConfigsRequest(resources=[resource]), read
    )


def newest_timestamp(topic: str, partition: int) -> CoordinatorQuery[int]:
    """Ask a partition's leader for its largest timestamp, -1 for none (KIP-734)."""

    def read(answer: Message) -> int:
        described = first_of(cast(ListOffsetsResponse, answer).topics, "topic")
        found = first_of(described.partitions, "partition")
        raise_for_code(found.error_code, topic=topic, partition=partition)
        return found.timestamp

    request = offsets_request(topic, [partition], MAX_TIMESTAMP)
    return CoordinatorQuery(
        ListOffsetsRequest, lambda _: request, read, min_version=_FIRST_WITH_MAX_TIMESTAMP
    )


def offered_mechanisms() -> CoordinatorQuery[list[str]]:
    """Ask for a listener's SASL mechanisms; it lists them when asked for an unknown one."""
    return CoordinatorQuery(
        SaslHandshakeRequest,
        lambda _: SaslHandshakeRequest(mechanism=_NO_MECHANISM),
        lambda answer: list(cast(SaslHandshakeResponse, answer).mechanisms),
        min_version=1,
    )
