"""Waiting for the topic of a load before anything is sent to it.

Owns: the time limit and its error. Not here: the terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from aioproducer.errors import KafkaError, MetadataTimeoutError


class TopicSource(Protocol):
    """The part of a producer that the wait needs."""

    async def partitions_for(self, topic: str) -> Sequence[object]:
        """Return the topic's partitions."""
        ...


async def wait_for_topic(producer: TopicSource, topic: str, within_s: float) -> None:
    """Return once the topic exists in the cluster.

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
            "the topic does not exist in the cluster",
            topic=topic,
            elapsed_ms=elapsed_ms,
            advice="create the topic, or check its name",
        ) from None
