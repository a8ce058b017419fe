"""A missing topic or partition: how long writes wait for it, and what the error says."""

from __future__ import annotations

import asyncio

from aioproducer.client.producer import Producer
from aioproducer.errors import MetadataTimeoutError, UnknownTopicOrPartitionError
from aioproducer.types import Persistence


async def wait_for_topic(producer: Producer, topic: str, within_s: float) -> None:
    """Return once the topic exists; called in the loop of the producer."""
    engine = producer._usable()
    began = asyncio.get_running_loop().time()
    latest = producer._block_deadline(engine)
    try:
        await engine.metadata_task.waits.wait_for_topic(topic, min(began + within_s, latest))
    except MetadataTimeoutError as error:
        if isinstance(error.__cause__, UnknownTopicOrPartitionError):
            raise missing_topic(topic, began) from None
        # No broker has answered so far, which is not the topic's fault.
        await engine.metadata_task.waits.wait_for_topic(topic, latest)


async def wait_for_partition(
    producer: Producer, topic: str, partition: int, within_s: float
) -> None:
    """Return once the topic has that partition; called in the loop of the producer."""
    engine = producer._usable()
    latest = producer._block_deadline(engine)
    deadline = min(asyncio.get_running_loop().time() + within_s, latest)
    await engine.metadata_task.waits.wait_for_partition(topic, partition, deadline)


def missing_topic(topic: str, began: float) -> UnknownTopicOrPartitionError:
    """Return the error for a topic that was waited for since `began`, a time of the loop."""
    elapsed_ms = round((asyncio.get_running_loop().time() - began) * 1000)
    return UnknownTopicOrPartitionError(
        f"the topic {topic!r} does not exist",
        topic=topic,
        elapsed_ms=elapsed_ms,
        persistence=Persistence.NOT_PERSISTED,
        advice="create it and write again; nothing was written, so that is safe. If it is about to "
        "be created, raise topic.timeout.ms",
    )
