"""Waiting for the topic of a load before anything is sent to it.

Owns: how long, and what is said in the end. Must not know: the terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from aioproducer.errors import KafkaError, MetadataTimeoutError


class KnowsTopics(Protocol):
    """What the wait needs of a producer."""

    async def partitions_for(self, topic: str) -> Sequence[object]:
        """The topic's partitions."""
        ...


async def wait_for_topic(producer: KnowsTopics, topic: str, within_s: float) -> None:
    """Return once the cluster knows the topic.

    Raises:
        MetadataTimeoutError: it does not within `within_s`, or the producer's `max_block_ms`.
        KafkaError: waiting longer would not help.
    """
    began = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(within_s):
            await producer.partitions_for(topic)
    except KafkaError:
        raise  # Some are a TimeoutError, too.
    except TimeoutError:
        elapsed_ms = round((asyncio.get_running_loop().time() - began) * 1000)
        raise MetadataTimeoutError(
            "the cluster does not know the topic",
            topic=topic,
            elapsed_ms=elapsed_ms,
            advice="create the topic, or check its name",
        ) from None
