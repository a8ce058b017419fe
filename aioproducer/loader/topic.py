"""Waiting for the topic of a load before anything is sent to it."""

from __future__ import annotations

import asyncio

from aioproducer.errors import KafkaError, MetadataTimeoutError
from aioproducer.loader.options import ProducerLike

_PAUSE_S = 0.1
"""Between two waits, each as long as the producer waits at most."""


async def wait_for_topic(producer: ProducerLike, topic: str, within_s: float) -> None:
    """Return once the topic exists; raise `MetadataTimeoutError` after `within_s`.

    `within_s` may be longer than `max_block_ms`. Other errors end the wait at once.
    """
    began = asyncio.get_running_loop().time()
    reason: MetadataTimeoutError | None = None
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    await producer.partitions_for(topic)
                except MetadataTimeoutError as error:
                    reason = error
                    await asyncio.sleep(_PAUSE_S)
                else:
                    return
    except KafkaError:
        raise  # Some are a TimeoutError, too.
    except TimeoutError:
        elapsed_ms = round((asyncio.get_running_loop().time() - began) * 1000)
        if reason is not None:
            raise reason.with_context(elapsed_ms=elapsed_ms) from reason.__cause__
        raise MetadataTimeoutError(
            "the topic does not exist in the cluster",
            topic=topic,
            elapsed_ms=elapsed_ms,
            advice="create the topic, or check its name",
        ) from None
