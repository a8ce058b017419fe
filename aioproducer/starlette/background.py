"""Records that are sent after the response.

An event that must not be lost is awaited before the response. Where its loss may be logged, the
handler can as well `await producer.send(...)` and answer: that waits for buffer memory only, and
the producer's `on_delivery_error` is called for what failed.
"""

from __future__ import annotations

import logging
from typing import Any

from aioproducer.client.producer import Producer
from aioproducer.errors import KafkaError
from aioproducer.starlette import limited
from aioproducer.types import HeadersInput


async def publish_quietly(
    producer: Producer,
    topic: str,
    value: Any = None,
    key: Any = None,
    *,
    headers: HeadersInput = None,
) -> None:
    """Send a record and wait for its outcome; a failure is logged.

    Of failures of the same kind for the same topic only some are logged one by one.

    Examples:
        >>> background.add_task(publish_quietly, producer, "orders", b"value")
    """
    try:
        await producer.send_and_wait(topic, value, key, headers=headers)
    except KafkaError as error:
        limited.write(
            producer,
            logging.ERROR,
            topic,
            type(error).__name__,
            "a record of a background task was lost: %s",
            error,
        )
