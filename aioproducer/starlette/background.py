"""Records that are sent after the response.

Owns: a task for Starlette's and FastAPI's background tasks. Not here: requests.

An event that must not be lost is awaited before the response. Where its loss may be logged, the
handler can as well `await producer.send(...)` and answer: that waits for room only, and the
producer's `on_delivery_error` hears of what failed.
"""

from __future__ import annotations

from typing import Any

from aioproducer import log
from aioproducer.errors import KafkaError
from aioproducer.producer import Producer
from aioproducer.types import HeadersInput

_log = log.get("starlette")


async def publish_quietly(
    producer: Producer,
    topic: str,
    value: Any = None,
    key: Any = None,
    *,
    headers: HeadersInput = None,
) -> None:
    """Send a record and wait for its outcome; a failure is logged, since nobody is there to tell.

    Example:
        >>> background.add_task(publish_quietly, producer, "orders", b"value")
    """
    try:
        await producer.send_and_wait(topic, value, key, headers=headers)
    except KafkaError as error:
        _log.error("a record of a background task was lost: %s", error)
