"""What became of a request, as one value.

Owns: the translation of a request's future into an error or an answer. Must not know: requests.
"""

from __future__ import annotations

import asyncio

from aioproducer.errors import KafkaError, NodeDisconnectedError, ProducerFailedError
from aioproducer.wire.schema import Message


def outcome_of(future: asyncio.Future[Message | None]) -> tuple[KafkaError | None, Message | None]:
    """The error or the answer of a request, whatever ended it."""
    if future.cancelled():
        return NodeDisconnectedError("the request was cancelled"), None
    error = future.exception()
    if error is not None:
        return error if isinstance(error, KafkaError) else ProducerFailedError(repr(error)), None
    return None, future.result()
