"""Errors of commands about a topic that does not exist."""

from __future__ import annotations

from aioproducer.cli.connecting import started_producer
from aioproducer.cli.options import Connection
from aioproducer.cli.pointers import create_command
from aioproducer.cli.sessions import link_opener
from aioproducer.client.producer import Producer
from aioproducer.config import ProducerConfig
from aioproducer.errors import KafkaError, MetadataTimeoutError, UnknownTopicOrPartitionError
from aioproducer.loader.topic import wait_for_topic
from aioproducer.testing.wire_client import WireClient, first_of

_ASKING_S = 5.0


async def await_topic(
    producer: Producer, topic: str, connection: Connection, within_s: float
) -> None:
    """Return once the topic exists; the error says what to do if it does not."""
    try:
        await wait_for_topic(producer, topic, within_s)
    except KafkaError as error:
        raise await explained_topic(error, producer.config, connection) from error


async def check_topic(
    config: ProducerConfig, topic: str, connection: Connection, within_s: float
) -> None:
    """Wait for the topic as `await_topic` does, with a producer for this call alone."""
    async with started_producer(config.replace(transactional_id=None)) as producer:
        await await_topic(producer, topic, connection, within_s)


async def explained_topic(
    error: KafkaError, config: ProducerConfig, connection: Connection
) -> KafkaError:
    """Return the error; a missing topic in place of a timeout that it explains."""
    topic = error.topic
    if not isinstance(error, MetadataTimeoutError) or topic is None:
        return error
    if not await _is_missing(config, topic):
        return error
    return UnknownTopicOrPartitionError(
        f"the topic {topic!r} does not exist",
        topic=topic,
        elapsed_ms=error.elapsed_ms,
        advice=f"create it: {create_command(connection, topic)}; if it is about to be created, "
        "give more time with --topic-timeout",
    )


async def _is_missing(config: ProducerConfig, topic: str) -> bool:
    servers = config.bootstrap_servers
    try:
        async with WireClient(
            servers, timeout_s=_ASKING_S, open_link=link_opener(config)
        ) as client:
            described = first_of((await client.metadata([topic])).topics, "topic")
    except KafkaError:
        return False
    return described.error_code == UnknownTopicOrPartitionError.code
