"""The order of records with asynchronous serializers: start with `SerializationQueue`.

Serializers of several calls run side by side. A record is appended when every earlier call for the
same topic has appended its own, has failed or was cancelled. Topics do not wait for each other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from aioproducer.errors import KafkaError, KafkaTimeoutError, WouldBlockError

T = TypeVar("T", bound=tuple[Any, ...])
T_co = TypeVar("T_co", covariant=True)


class PendingSerialization(Protocol[T_co]):
    """One or more records with a serializer that has not finished."""

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait for the serializers; return their results."""

    def close(self) -> None:
        """Give it up before it was awaited."""


class SerializationQueue:
    """The calls for each topic, beginning with the first unfinished serialization.

    `enter`, `is_queued` and `check_free` may be called in any thread, the rest in the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_block: float) -> None:
        self._loop = loop
        self._max_block = max_block
        self._topics: dict[str, _TopicQueue] = {}
        self._lock = threading.RLock()  # a signal handler may send in the middle of a send
        self._error: KafkaError | None = None

    def __bool__(self) -> bool:
        """Return whether any call is queued."""
        return bool(self._topics)

    def is_queued(self, topic: str) -> bool:
        """Return whether a record of this topic has to wait for an earlier one."""
        return topic in self._topics

    def check_free(self, topic: str) -> None:
        """Raise if a record of this topic would have to wait."""
        if topic in self._topics:
            raise WouldBlockError(
                "an earlier record of the topic is being serialized",
                topic=topic,
                advice="use send(), which waits",
            )

    def enter(self, topic: str) -> Place:
        """Add a call to the end of a topic's queue; the caller has to leave the place."""
        with self._lock:
            queue = self._topics.get(topic)
            if queue is None:
                queue = self._topics[topic] = _TopicQueue()
            place = Place(self, topic)
            queue.waiting.append(place)
        return place

    async def finish(self, place: Place, made: T | PendingSerialization[T]) -> T:
        """Return a serialized record once all earlier records of its topic are appended.

        The caller then leaves the place and appends the record, without a wait in between.
        """
        if self._error is not None:
            discard(made)
            self._check_open(place)
        slow = "the record's serializer"
        try:
            async with asyncio.timeout(self._max_block) as place.timeout:
                finished = made if isinstance(made, tuple) else await made
                slow = "the serializer of an earlier record of the topic"
                await self._turn(place)
        except TimeoutError as error:
            self._check_open(place)
            raise KafkaTimeoutError(
                f"{slow} took longer than max_block_ms={round(self._max_block * 1000)}",
                topic=place.topic,
            ) from error
        return finished

    def close(self, error: KafkaError) -> None:
        """End all current and later waits with this error."""
        self._error = error
        now = self._loop.time()
        with self._lock:
            places = [place for queue in self._topics.values() for place in queue.waiting]
        for place in places:
            if place.timeout is not None and not place.timeout.expired():
                place.timeout.reschedule(now)

    def leave(self, place: Place) -> None:
        """See `Place.leave`."""
        with self._lock:
            queue = self._topics.get(place.topic)
            if queue is None:
                return
            queue.remove(place)
            if queue.resumed or queue.waiting:
                queue.resume()
            else:
                del self._topics[place.topic]

    def _check_open(self, place: Place) -> None:
        if self._error is not None:
            raise self._error.with_context(topic=place.topic)

    async def _turn(self, place: Place) -> None:
        with self._lock:
            queue = self._topics[place.topic]
            if not queue.resumed and queue.waiting[0] is place:
                return
            place.turn = self._loop.create_future()
        await place.turn


@dataclass(slots=True, eq=False)
class Place:
    """One call in the queue of its topic; a context manager that leaves it.

    `turn` is done when it is the call's turn; None while its own serializer waits.
    """

    queue: SerializationQueue
    topic: str
    turn: asyncio.Future[None] | None = None
    timeout: asyncio.Timeout | None = None

    def leave(self) -> None:
        """Let the next record of the topic go on; safe to call again."""
        self.queue.leave(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


@dataclass(slots=True, eq=False)
class _TopicQueue:
    """The calls of one topic in their order.

    `resumed` calls have their turn but have not run yet; later calls queue until then.
    """

    resumed: set[Place] = field(default_factory=set)
    waiting: deque[Place] = field(default_factory=deque)

    def resume(self) -> None:
        """Resume all calls at the front whose serializers are done, in one turn of the loop."""
        while self.waiting:
            turn = self.waiting[0].turn
            if turn is None:
                return
            self.resumed.add(self.waiting.popleft())
            if not turn.done():
                turn.set_result(None)

    def remove(self, place: Place) -> None:
        """Remove a call, if it is here."""
        self.resumed.discard(place)
        if place in self.waiting:
            self.waiting.remove(place)


def discard(made: T | PendingSerialization[T]) -> None:
    """Give up a record whose serializer will not be awaited."""
    if not isinstance(made, tuple):
        made.close()
