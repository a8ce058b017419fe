"""Creating, deleting and listing topics on any cluster, over the wire.

Brokers learn of a topic one after the other, so both changes are awaited at every broker: a client
may bootstrap from any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from aioproducer import errors
from aioproducer._util.arguments import seconds_of
from aioproducer.errors.authorization import request_name, this_principal, with_access
from aioproducer.testing.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aioproducer.testing.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from aioproducer.testing.wire_client import OpenLink, WireClient, first_of
from aioproducer.wire.messages.metadata import MetadataResponseTopic
from aioproducer.wire.schema import Message

CREATE_VERSIONS, DELETE_VERSIONS = (2, 7), (1, 5)
"""v6 of DeleteTopics has another layout and nothing that is needed here."""

_NO_LEADER = -1


async def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_s: float = 30.0,
    open_link: OpenLink | None = None,
) -> None:
    """Create a topic and wait until every broker has a leader for each partition.

    Args:
        bootstrap: `host:port` of one or more brokers, separated by commas.
        name: The topic.
        partitions: How many; -1 for the cluster's default.
        replication_factor: -1 for the cluster's default.
        configs: Topic options by Kafka's names.
        timeout_s: For all of it.
        open_link: How to connect; without TLS and SASL if left out.

    Raises:
        TopicAlreadyExistsError: It was there before.
        BrokerError: The cluster refused for another reason.
        KafkaTimeoutError: It did not get done in time.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_milliseconds(timeout_s))
    async with WireClient(bootstrap, timeout_s=timeout_s, open_link=open_link) as client:
        change = _Change(client, request, CREATE_VERSIONS, errors.TopicAlreadyExistsError)
        await client.retry(change.attempt)
        await _wait_everywhere(client, name, _has_leaders)


async def delete_topic(
    bootstrap: str, name: str, *, timeout_s: float = 30.0, open_link: OpenLink | None = None
) -> None:
    """Delete a topic and wait until no broker has it.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
        BrokerError: The cluster refused for another reason.
        KafkaTimeoutError: It did not get done in time.
    """
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_milliseconds(timeout_s))
    async with WireClient(bootstrap, timeout_s=timeout_s, open_link=open_link) as client:
        change = _Change(client, request, DELETE_VERSIONS, errors.UnknownTopicOrPartitionError)
        await client.retry(change.attempt, final=(errors.UnknownTopicOrPartitionError,))
        await _wait_everywhere(client, name, _is_gone)


async def list_topics(bootstrap: str, *, timeout_s: float = 30.0) -> list[MetadataResponseTopic]:
    """Return every topic of the cluster with its partitions, by name.

    Raises:
        KafkaTimeoutError: No broker answered in time.
    """
    async with WireClient(bootstrap, timeout_s=timeout_s) as client:
        metadata = await client.retry(lambda: client.metadata(None))
        return sorted(metadata.topics, key=lambda topic: topic.name or "")


def _milliseconds(timeout_s: float) -> int:
    return int(seconds_of(timeout_s, "timeout_s") * 1000)


class _Change:
    """A request to the controller whose answer may get lost after it was carried out.

    `done_already` is the error that then answers the next try; a first try it fails.
    """

    def __init__(
        self,
        client: WireClient,
        request: CreateTopicsRequest | DeleteTopicsRequest,
        versions: tuple[int, int],
        done_already: type[errors.BrokerError],
    ) -> None:
        self._client = client
        self._request = request
        self._versions = versions
        self._done_already = done_already
        self._may_be_done = False

    async def attempt(self) -> None:
        controller = (await self._client.metadata([])).controller_id
        try:
            response = await self._client.ask(controller, self._request, *self._versions)
        except errors.KafkaConnectionError:
            self._may_be_done = True
            raise
        result = _only_result(response)
        if result.error_code == self._done_already.code and self._may_be_done:
            return
        if result.error_code == errors.RequestTimedOutError.code:
            self._may_be_done = True
        if result.error_code:
            error = errors.error_from_code(
                result.error_code, result.error_message, topic=result.name
            )
            raise with_access(error, request_name(type(self._request)), this_principal)


def _only_result(response: Message) -> CreatableTopicResult | DeletableTopicResult:
    if isinstance(response, CreateTopicsResponse):
        return first_of(response.topics, "topic")
    return first_of(cast(DeleteTopicsResponse, response).responses, "topic")


async def _wait_everywhere(
    client: WireClient, name: str, is_done: Callable[[MetadataResponseTopic], bool]
) -> None:
    """Return when every broker describes the topic as wanted, but those that have left."""
    await client.retry(lambda: client.metadata([]))
    for node_id in client.node_ids:
        while node_id in client.node_ids:
            try:
                found = (await client.metadata([name], node_id=node_id)).topics
                if is_done(first_of(found, "topic")):
                    break
                failure: errors.KafkaError | None = None
            except errors.KafkaConnectionError as error:
                failure = error
                await client.retry(lambda: client.metadata([]))
            await client.pause(failure)


def _has_leaders(topic: MetadataResponseTopic) -> bool:
    return bool(topic.partitions) and all(
        partition.error_code == 0 and partition.leader_id != _NO_LEADER
        for partition in topic.partitions
    )


def _is_gone(topic: MetadataResponseTopic) -> bool:
    return topic.error_code == errors.UnknownTopicOrPartitionError.code
